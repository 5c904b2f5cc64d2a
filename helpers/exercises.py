"""The exercises of a notebook: what a student fills in, what checks it, the solution, and what would give it away."""

import ast
import html
import re
from dataclasses import dataclass

from nbformat import NotebookNode

from helpers import cells, notebooks
from helpers.errors import HookbookError

TAGS = ("exercise", "check", "solution")
LIMIT = "within_seconds"  # the decorator of helpers.checks that every check carries
_FOLD = re.compile(r"<details\b.*?</details>", re.DOTALL)
_CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_TRIVIAL = 12  # characters without spaces; `return x` gives nothing away


@dataclass(frozen=True)
class Exercise:
    """An exercise: its number from 1 on, and its three cells."""

    number: int
    stub: NotebookNode
    check: NotebookNode
    solution: NotebookNode

    @property
    def name(self) -> str | None:
        """The function that a student fills in."""
        return next((function.name for function in _functions(self.stub.source)), None)

    @property
    def check_name(self) -> str | None:
        """The function that checks it: the one with the time limit, else the first."""
        functions = _functions(self.check.source)
        limited = [function for function in functions if _limited(function)]
        return next((function.name for function in limited + functions), None)

    @property
    def has_time_limit(self) -> bool:
        """Whether the check ends when the answer does not."""
        return any(_limited(function) for function in _functions(self.check.source))

    @property
    def solved(self) -> str:
        """The solution's code."""
        source = self.solution.source
        return source if self.solution.cell_type == "code" else "\n".join(_CODE.findall(source))

    @property
    def solved_name(self) -> str | None:
        """The function that the solution defines."""
        return next((function.name for function in _functions(self.solved)), None)

    @property
    def folded(self) -> bool:
        """Whether the solution stays hidden until a reader asks for it."""
        if self.solution.cell_type == "code":
            return bool(self.solution.metadata.get("jupyter", {}).get("source_hidden"))
        return not _CODE.search(_FOLD.sub("", self.solution.source))

    @property
    def revealing(self) -> list[str]:
        """The lines of the solution that give something away: neither short, nor an import, nor in the stub."""
        known = _squeezed(self.stub.source)
        lines = [line.strip().removeprefix("return ") for line in self.solved.splitlines()]
        return [
            line
            for line in lines
            if len(_squeezed(line)) >= _TRIVIAL
            and not re.match(r"(import|from) \w", line)
            and _squeezed(line) not in known
        ]


def of(nb: NotebookNode) -> list[Exercise]:
    """The exercises of a notebook, in order.

    Raises:
        HookbookError: the tagged cells do not come in threes: exercise, check, solution.
    """
    tagged = [(tag, cell) for cell in nb.cells for tag in TAGS if notebooks.has_tag(cell, tag)]
    for position, (tag, cell) in enumerate(tagged):
        if tag != (due := TAGS[position % 3]):
            place = f"cell {cell.get('id', '?')}"
            raise HookbookError(f"{place} is tagged `{tag}` where `{due}` is due: tag {', '.join(TAGS)} in this order.")
    if len(tagged) % 3:
        raise HookbookError(f"The last exercise has no cell tagged `{TAGS[len(tagged) % 3]}`: add it.")
    found = [cell for _, cell in tagged]
    return [Exercise(start // 3 + 1, *found[start : start + 3]) for start in range(0, len(found), 3)]


def given_away(exercise: Exercise, texts: list[str]) -> str | None:
    """The first line of the solution that one of the texts holds, however it is spaced or escaped; None if none."""
    squeezed = [_squeezed(text) for text in texts]
    return next((line for line in exercise.revealing if any(_squeezed(line) in text for text in squeezed)), None)


def without_solution(markdown: str) -> str:
    """The rest of a solution's text cell: what is folded, and code, is gone."""
    return _CODE.sub("", _FOLD.sub("", markdown)).strip()


def _functions(source: str) -> list[ast.FunctionDef]:
    tree = cells.tree(source)
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)] if tree else []


def _limited(function: ast.FunctionDef) -> bool:
    named = [node.func for node in function.decorator_list if isinstance(node, ast.Call)]
    return any(getattr(node, "id", getattr(node, "attr", None)) == LIMIT for node in named)


def _squeezed(text: str) -> str:
    """Without any white space, written out or as `\\n`, and without HTML's escapes."""
    return re.sub(r"\s|\\[nt]", "", html.unescape(text))
