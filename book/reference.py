"""Pages on modules: what notebooks import, and what stands around them, each from its docstrings."""

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from helpers import cells, notebooks

# what somebody who writes or runs notebooks meets; what a notebook imports beyond it is added
_MODULES = (
    "papers", "models", "nulls", "datasets", "ioi", "facts", "counterparts", "metrics", "hooks", "interventions",
    "activations", "stats", "plots", "widgets", "claims", "verdicts", "power", "compare", "checks", "exercises",
    "notebooks", "parameters", "fingerprint", "stored", "batch", "errors",
)  # fmt: skip


@dataclass(frozen=True)
class Module:
    """A module of helpers with its own page."""

    name: str

    @property
    def idea(self) -> str:
        """The first line of its docstring."""
        source = Path(importlib.util.find_spec(f"helpers.{self.name}").origin).read_text(encoding="utf-8")
        return (cells.tree(source).body[0].value.value).strip().splitlines()[0]

    @property
    def page(self) -> str:
        """Its page as Markdown; autodoc fills it."""
        # autodoc writes reStructuredText
        return f"# helpers.{self.name}\n\n```{{eval-rst}}\n.. automodule:: helpers.{self.name}\n```\n"


def modules(paths: Iterable[Path]) -> list[Module]:
    """The modules that get a page.

    Args:
        paths: of the notebooks that stand.
    """
    imported = set()
    for path in paths:
        imported |= cells.imports(cell.source for cell in notebooks.code_cells(notebooks.read(path)))
    names = {name.split(".")[1] for name in imported if name.startswith("helpers.")}
    known = [name for name in names if importlib.util.find_spec(f"helpers.{name}")]
    return [Module(name) for name in dict.fromkeys([*_MODULES, *sorted(known)])]
