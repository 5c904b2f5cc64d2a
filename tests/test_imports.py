"""The first thing `make test` runs: in seconds, every import of every notebook, and none that pyproject.toml forgot."""

import pkgutil
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from helpers import cells, notebooks
from helpers.papers import ROOT

NOTEBOOKS = sorted(ROOT.glob("notebooks/*/*.ipynb"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NEEDED = [Requirement(text) for text in PROJECT["dependencies"]]
DEV = [Requirement(text) for text in PROJECT["optional-dependencies"]["dev"]]
BOOK = [Requirement(text) for text in PROJECT["optional-dependencies"]["book"]]
DISTRIBUTIONS = packages_distributions()
OWN = {"helpers", "book", *(path.stem for path in ROOT.glob("tests/**/*.py"))}


def _undeclared(imported: set[str], declared: list[Requirement]) -> set[str]:
    """Top-level names that are neither Python's, ours, nor part of a declared package."""
    names = {canonicalize_name(requirement.name) for requirement in declared}
    tops = {module.split(".")[0] for module in imported} - set(sys.stdlib_module_names) - OWN - {""}
    return {top for top in tops if not names & {canonicalize_name(name) for name in DISTRIBUTIONS.get(top, [])}}


def _broken(imported: set[str]) -> list[str]:
    """What an import of these modules and names says where it does not work."""
    complaints = []
    for name in sorted(imported):
        try:
            pkgutil.resolve_name(name.removesuffix(".*"))
        except (ImportError, AttributeError) as error:
            complaints.append(f"{name}: {error}")
    return complaints


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_imports_work(path: Path) -> None:
    nb = notebooks.read(path)
    complaints = [
        f"{path.stem}, cell {number}: {complaint}"
        for number, cell in enumerate(nb.cells)
        if cell.cell_type == "code"
        for complaint in _broken(cells.imports([cell.source]))
    ]
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_imports_are_declared(path: Path) -> None:
    imported = cells.imports(cell.source for cell in notebooks.code_cells(notebooks.read(path)))
    assert not _undeclared(imported, NEEDED), "add it to the dependencies in pyproject.toml, then make lock"


@pytest.mark.parametrize(
    ("folder", "declared"),
    [("helpers", NEEDED), ("book", NEEDED + BOOK), ("tests", NEEDED + DEV), ("tools", NEEDED + DEV)],
)
def test_code_imports_are_declared(folder: str, declared: list[Requirement]) -> None:
    undeclared = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / folder).rglob("*.py")
        for name in _undeclared(cells.imports([path.read_text(encoding="utf-8")]), declared)
    }
    assert not undeclared, "add it to the dependencies in pyproject.toml, then make lock"


def test_a_wrong_import_is_noticed() -> None:
    assert _broken({"pathlib.Path", "pathlib.*", "os.path.join"}) == []
    assert len(_broken({"pathlib.Pathh", "no_such_module"})) == 2
    assert _undeclared({"os.path", "helpers.papers", "yaml"}, [Requirement("PyYAML")]) == set()
    assert _undeclared({"yaml", "no_such_module.part"}, []) == {"yaml", "no_such_module"}


def test_every_notebook_was_found() -> None:
    assert NOTEBOOKS and all(re.fullmatch(r"[a-z0-9-]+", path.stem) for path in NOTEBOOKS)
