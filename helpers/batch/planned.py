"""A run that nothing speaks against: everything about it that can be checked before a kernel starts."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from helpers import notebooks, papers
from helpers.errors import HookbookError
from helpers.fingerprint import Fingerprint, Shared, shared
from helpers.parameters import Parameter

OF_THE_MODEL = ("model_name", "revision")  # the parameters that say on which model a preset is run
_QUIET = Console(quiet=True)


@dataclass(frozen=True)
class Plan:
    """A run that nothing speaks against: notebook, all parameters, those that differ from the cell's, its name."""

    slug: str
    source: Path
    preset: str
    parameters: dict[str, Any]
    changed: dict[str, Any]
    fingerprint: Fingerprint


@dataclass(frozen=True)
class Notebook:
    """A notebook as plans need it, read and hashed once for all its runs."""

    slug: str
    path: Path
    known: list[Parameter]
    unread: list[str]
    shared: Shared
    fetched: list[str]  # data sets that it calls for and that have to be fetched

    @classmethod
    def at(cls, slug_or_path: str | Path) -> "Notebook":
        """Read the notebook of a slug or path.

        Raises:
            HookbookError: it cannot be found or read, or its parameters cell is wrong.
        """
        slug, path = locate(slug_or_path)
        fetched = _fetched([cell.source for cell in notebooks.code_cells(notebooks.read(path))])
        return cls(slug, path, notebooks.parameters(path), notebooks.unread_parameters(path), shared(path), fetched)

    def values(self, given: dict[str, Any], preset: str = "quick") -> tuple[dict[str, Any], dict[str, Any]]:
        """All parameters, typed, and those among them that differ from the parameters cell.

        Raises:
            HookbookError: no such preset, an unknown parameter, a wrong value, or one that no cell reads.
        """
        defaults = {parameter.name: parameter.default for parameter in self.known}
        chosen = notebooks.validate(self.known, {**preset_parameters(self.slug, preset), **given}, self.slug)
        changed = {name: value for name, value in chosen.items() if not same(value, defaults[name])}
        if unread := [name for name in self.unread if name in changed]:
            raise HookbookError(
                f"No cell of {self.slug} reads {', '.join(unread)}: another value would change nothing."
            )
        return defaults | chosen, changed

    def fetch(self, values: dict[str, Any], console: Console = _QUIET) -> None:
        """See to it that the model of a run and the data it calls for are on this machine.

        Before the kernel, so that a missing network is one sentence and not the traceback of a cell.

        Raises:
            HookbookError: they are not, and cannot be had.
        """
        for name in self.fetched:
            from helpers import datasets  # see `_fetched`

            with console.status(f"{self.slug}: looking for {name}"):
                datasets.FETCHED[name]()
        if self.shared.model:
            from helpers import models  # here: it imports huggingface_hub, 10 MB in each worker

            with console.status(f"{self.slug}: looking for {values['model_name']}"):
                models.fetch(values["model_name"], values.get("revision"))


def _fetched(code: list[str]) -> list[str]:
    """The data sets that have to be fetched and that these cells call for."""
    if not any("datasets" in source for source in code):
        return []
    from helpers import datasets  # here: it imports pandas, a second and 60 MB for as long as a sweep lasts

    return [name for name in datasets.FETCHED if any(f"{name}(" in source for source in code)]


def planned(slug_or_path: str | Path, given: dict[str, Any], preset: str, console: Console = _QUIET) -> Plan:
    """Check everything about a run that can be checked without a kernel, and see to it that its model is here.

    Raises:
        HookbookError: unknown paper, preset or parameter, wrong value, a parameter that no cell reads, or no model.
    """
    notebook = Notebook.at(slug_or_path)
    values, changed = notebook.values(given, preset)
    notebook.fetch(values, console)
    return Plan(notebook.slug, notebook.path, label(given, preset), values, changed, notebook.shared.complete(values))


def label(given: Iterable[str], preset: str) -> str:
    """What a run is called that differs from a preset in the parameters `given`.

    A preset on another model is still that preset, which is how two models are compared; with anything else changed
    it is an experiment of its own, and must not be filed under the preset's name.
    """
    return preset if set(given) <= set(OF_THE_MODEL) else "custom"


def locate(slug_or_path: str | Path) -> tuple[str, Path]:
    """Slug and notebook file of a paper of the catalogue or of a path that ends in .ipynb.

    Raises:
        HookbookError: unknown slug, a paper without a notebook yet, or no such file.
    """
    if isinstance(slug_or_path, Path) or slug_or_path.endswith(".ipynb"):
        path = Path(slug_or_path).resolve()
        notebooks.read(path)
        return path.stem, path
    paper = papers.paper(slug_or_path)
    if not paper.notebook.is_file():
        raise HookbookError(f"{paper.slug} has no notebook yet; `hookbook list` shows which papers stand.")
    return paper.slug, paper.notebook


def preset_parameters(slug: str, preset: str) -> dict[str, Any]:
    """The parameters that a preset of a paper sets; a notebook outside the catalogue has only its defaults.

    Raises:
        HookbookError: there is no such preset.
    """
    presets = papers.paper(slug).presets if slug in papers.catalogue() else {}
    if preset in presets:
        return dict(presets[preset])
    if preset == "quick":
        return {}
    raise HookbookError(f"{slug} has no preset {preset}; it has {', '.join(presets) or 'quick'}.")


def same(one: Any, other: Any) -> bool:
    """Equal and of one type, which True and 1 are not."""
    return type(one) is type(other) and one == other
