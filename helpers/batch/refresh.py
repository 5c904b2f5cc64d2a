"""`hookbook refresh`: the outputs of a fresh default run, written into the committed notebook."""

from pathlib import Path

from nbformat import from_dict
from rich.console import Console

from helpers import notebooks
from helpers.batch.folders import RUNS
from helpers.batch.planned import locate, preset_parameters, same
from helpers.batch.record import RunRecord
from helpers.batch.single import run
from helpers.errors import HookbookError


def refresh(slug_or_path: str | Path, runs_dir: Path = RUNS, *, console: Console) -> RunRecord:
    """Run a notebook with its defaults and, if it is done, write outputs, counts and stamp into the file itself.

    Sources, cell ids and tags stay as they are; a run that is not done changes nothing.

    Raises:
        HookbookError: the quick preset is not the notebook's defaults, or the notebook was edited while it ran.
    """
    slug, path = locate(slug_or_path)
    defaults = {parameter.name: parameter.default for parameter in notebooks.parameters(path)}
    quick = notebooks.validate(notebooks.parameters(path), preset_parameters(slug, "quick"), slug)
    if others := [name for name, value in quick.items() if not same(value, defaults[name])]:
        raise HookbookError(
            f"{slug}: the quick preset differs from the parameters cell in {', '.join(others)}; make them the same."
        )
    record = run(path, {}, "quick", runs_dir, console=console)
    if record.status != "done":
        return record
    executed, committed = notebooks.read(record.notebook), notebooks.read(path)
    if [(cell.cell_type, cell.source) for cell in executed.cells] != [
        (cell.cell_type, cell.source) for cell in committed.cells
    ]:
        raise HookbookError(f"{path.name} was edited while it ran; refresh it again.")
    for old, fresh in zip(committed.cells, executed.cells, strict=True):
        if old.cell_type == "code":
            old.outputs = from_dict(fresh.outputs)
    committed.metadata["hookbook"] = executed.metadata["hookbook"]
    notebooks.write(notebooks.clean(committed), path)
    return record
