"""What the rules about notebooks share: a notebook under examination, a problem, and the list of rules."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from helpers import notebooks
from helpers.papers import Paper
from helpers.parameters import Parameter

CLAIM_IDS = re.compile(r"C\d+[a-z]?(?:(?:, | and |, and )C\d+[a-z]?)*(?!\w)")
Found = Iterator[tuple[int | str, str]]  # the index of a cell or the name of a place, and what is wrong there


@dataclass(frozen=True)
class Problem:
    """A broken rule: its name, the place, what is wrong; `advice` alone fails no test."""

    rule: str
    where: str
    message: str
    advice: bool = False

    def __str__(self) -> str:
        kind = f"{self.rule}, advice only" if self.advice else self.rule
        return f"{self.where}: {self.message} [{kind}]"


@dataclass(frozen=True)
class Book:
    """A notebook under examination; `paper` is None outside the catalogue."""

    path: Path
    nb: NotebookNode
    paper: Paper | None
    parameters: list[Parameter]

    @property
    def defaults(self) -> dict[str, Any]:
        """The values that the parameters cell sets."""
        return {parameter.name: parameter.default for parameter in self.parameters}

    @property
    def code(self) -> list[tuple[int, NotebookNode]]:
        """Index and cell of all code cells that hold code."""
        return [(i, c) for i, c in enumerate(self.nb.cells) if c.cell_type == "code" and c.source.strip()]

    @property
    def markdown(self) -> list[tuple[int, NotebookNode]]:
        """Index and cell of all markdown cells."""
        return [(i, c) for i, c in enumerate(self.nb.cells) if c.cell_type == "markdown"]

    @property
    def outputs(self) -> list[tuple[int, NotebookNode]]:
        """Index of the cell and output, for all outputs."""
        return [(i, output) for i, cell in self.code for output in cell.outputs]

    def place(self, index: int) -> str:
        """Section and id of a cell, for messages."""
        return f"{notebooks.heading(self.nb, index)}, cell {self.nb.cells[index].get('id', index)}"

    def headings(self, level: int) -> list[tuple[int, str]]:
        """Index of the cell and text, for all headings of that level."""
        pattern = re.compile(rf"^{'#' * level}[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
        return [(i, text) for i, c in self.markdown for text in pattern.findall(notebooks.without_code(c.source))]


RULES: dict[str, Callable[[Book], Found]] = {}


def rule(function: Callable[[Book], Found]) -> Callable[[Book], Found]:
    """Enter a function into the list of rules; its name, with hyphens, is the rule's."""
    RULES[function.__name__.replace("_", "-")] = function
    return function
