"""The copy of a notebook that students get: no line of a solution in it, stubs untouched, every check unanswered."""

import copy
import hashlib
from pathlib import Path

from nbformat import NotebookNode

from helpers import exercises, notebooks
from helpers.errors import HookbookError
from helpers.exercises import Exercise


def write(path: Path, out: Path | None = None) -> Path:
    """Write the students' copy of a notebook and return where it is.

    Args:
        path: the notebook.
        out: a file, or a folder for `<slug>-student.ipynb`; by default the current one.

    Raises:
        HookbookError: it has no exercises, a solution's line stands elsewhere in it, or the file exists and is not an
            unedited copy, or cannot be written.
    """
    place = Path.cwd() if out is None else out
    place = place / f"{path.stem}-student.ipynb" if place.is_dir() else place
    if place.suffix != ".ipynb":
        raise HookbookError(f"{place} is no name for a notebook: end it with .ipynb, or name a folder that exists.")
    nb = copy_of(notebooks.read(path), path.stem)
    if place.exists() and not _may_be_replaced(place):
        raise HookbookError(f"{place} holds somebody's work and stays: name another file with --out, or move it away.")
    try:
        notebooks.write(nb, place)
    except OSError as error:
        raise HookbookError(f"{place} cannot be written ({error.strerror}): name another file with --out.") from None
    return place


def copy_of(nb: NotebookNode, slug: str) -> NotebookNode:
    """The notebook without solutions: their cells or folds, and every output that shows a line of one.

    Outputs of stubs and checks go too, and the stamp, since the copy is another notebook; all others stay to be read.

    Raises:
        HookbookError: the notebook has no exercises, or a line of a solution stands in another cell.
    """
    found = exercises.of(nb)
    if not found:
        raise HookbookError(f"{slug} has no exercises: tag their cells `exercise`, `check` and `solution`.")
    nb, kept = copy.deepcopy(nb), []  # the exercises found keep their solutions
    for cell in nb.cells:
        if notebooks.has_tag(cell, "solution"):
            rest = exercises.without_solution(cell.source) if cell.cell_type == "markdown" else ""
            if not rest:
                continue
            cell.source, cell.metadata = rest, NotebookNode()  # the next task stands here, and no solution any more
        elif notebooks.has_tag(cell, "exercise") or notebooks.has_tag(cell, "check"):
            cell.outputs, cell.execution_count = [], None
        elif cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _shows(output, found)]
        kept.append(cell)
    nb.cells = kept
    _refuse_leaks(nb, found)
    provenance = nb.metadata.get("hookbook", {}).get("provenance", {})
    nb.metadata["hookbook"] = {"provenance": provenance, "student": {"of": slug, "sources": _sources(nb)}}
    return nb


def _shows(part: dict, found: list[Exercise]) -> bool:
    return any(exercises.given_away(exercise, list(notebooks.strings(part))) for exercise in found)


def _refuse_leaks(nb: NotebookNode, found: list[Exercise]) -> None:
    for index, cell in enumerate(nb.cells):
        for exercise in found:
            if line := exercises.given_away(exercise, list(notebooks.strings(cell))):
                place = f"{notebooks.heading(nb, index)}, cell {cell.get('id', index)}"
                leak = f"A line of solution {exercise.number}, `{line}`, also stands at {place}"
                raise HookbookError(f"{leak}: write one of the two otherwise.")


def _may_be_replaced(place: Path) -> bool:
    """Whether the file is a copy that was written here and in which nobody has changed a cell since."""
    try:
        nb = notebooks.read(place)
    except HookbookError:
        return False
    return nb.metadata.get("hookbook", {}).get("student", {}).get("sources") == _sources(nb)


def _sources(nb: NotebookNode) -> str:
    """What tells an edited copy from a fresh one; running it edits nothing, nor does an empty cell at the end."""
    sources = "\0".join(cell.source.rstrip() for cell in nb.cells)
    return hashlib.sha256(sources.rstrip("\0").encode()).hexdigest()
