"""`hookbook run`: one notebook, one set of parameters, one new folder with everything that came of it."""

import errno
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from rich.console import Console
from rich.markup import escape
from rich.status import Status

from helpers import models, notebooks, papers
from helpers.batch import html, kernel
from helpers.batch.record import EXIT_CODES, Failure, RunRecord, failure_of, never_reached, write_record
from helpers.errors import HookbookError
from helpers.fingerprint import Fingerprint, fingerprint, loads_model, stamp

RUNS = papers.ROOT / "runs"
_SAVE_S = 10  # a kill of everything loses at most the outputs of this many seconds
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


def run(
    slug_or_path: str | Path,
    parameters: dict[str, Any] | None = None,
    preset: str = "quick",
    runs_dir: Path = RUNS,
    *,
    timeout: float | None = None,
    console: Console = _QUIET,
) -> RunRecord:
    """Run a paper's notebook (or any notebook file) in a cold kernel, into a folder that did not exist before.

    Args:
        slug_or_path: a slug of the catalogue or the path of a notebook.
        parameters: values that differ from the preset's; text is converted by the parameter's type.
        preset: the catalogue's named set of parameters.
        runs_dir: the folder of all runs; this run gets `<slug>/<fingerprint>`, or the same with -2, -3 ...
        timeout: seconds for the whole run.
        console: where the running section is shown.

    Raises:
        HookbookError: unknown paper, preset or parameter, wrong value, no model (all before a kernel starts); a full
            disk.
    """
    plan = planned(slug_or_path, parameters or {}, preset, console)
    runs_dir = Path(runs_dir).resolve()  # the kernel works elsewhere
    try:
        return _run(plan, new_folder(runs_dir / plan.slug, plan.fingerprint.id), timeout, console)
    except OSError as error:
        raise _disk(error, runs_dir) from None


def planned(slug_or_path: str | Path, given: dict[str, Any], preset: str, console: Console = _QUIET) -> Plan:
    """Check everything about a run that can be checked without a kernel, and see to it that its model is here.

    Raises:
        HookbookError: as for `run`; also a given parameter that no cell reads.
    """
    slug, source = locate(slug_or_path)
    known = notebooks.parameters(source)
    defaults = {parameter.name: parameter.default for parameter in known}
    chosen = notebooks.validate(known, {**preset_parameters(slug, preset), **given}, slug)
    changed = {name: value for name, value in chosen.items() if not same(value, defaults[name])}
    if unread := [name for name in notebooks.unread_parameters(source) if name in changed]:
        raise HookbookError(f"No cell of {slug} reads {', '.join(unread)}: another value would change nothing.")
    everything = defaults | chosen
    if loads_model(notebooks.read(source)):
        # before the kernel, so that a missing network is one sentence and not the traceback of a cell
        with console.status(f"{slug}: looking for {everything['model_name']}"):
            models.fetch(everything["model_name"], everything.get("revision"))
    label = "custom" if given else preset  # only the preset's own run may be filed under its name
    return Plan(slug, source, label, everything, changed, fingerprint(source, everything))


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


def new_folder(parent: Path, name: str) -> Path:
    """Make `parent/name`, or the first of `name-2`, `name-3` ... that does not exist; two at once never share one."""
    parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            number += 1


def _run(plan: Plan, folder: Path, timeout: float | None, console: Console) -> RunRecord:
    notebook = folder / f"{plan.slug}.ipynb"
    facts = {
        "slug": plan.slug,
        "preset": plan.preset,
        "parameters": plan.parameters,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_record(folder, {**facts, "status": "running"})
    source = _without_traces(notebooks.read(plan.source))
    with console.status(f"{plan.slug}: starting a kernel") as status:
        outcome = kernel.execute(
            source,
            plan.changed,
            folder=folder,
            environment={
                "HOOKBOOK_PRESET": plan.preset,
                "HOOKBOOK_ROWS": str(folder),
                "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive"),  # spinning threads starve neighbours
                "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # the debugger nobody attached warns of frozen modules
            },
            timeout=timeout,
            on_cell=_reporter(plan.slug, source, notebook, console, status),
        )
    ledger = notebooks.ledger(outcome.nb)
    ended, failure = outcome.status, failure_of(outcome)
    if ended == "done" and (unreached := never_reached(plan.slug, ledger)):
        ended = "stopped early"
        failure = Failure("the ledger", None, None, "", f"never reached: {', '.join(unreached)}", "")
    facts |= {
        "status": ended,
        "seconds": round(outcome.seconds, 2),
        "peak_private_mb": outcome.peak_private_mb,
    }
    executed = _without_traces(outcome.nb, outputs=False)
    stamp(executed, plan.fingerprint, **facts)
    notebooks.write(executed, notebook)
    if failure is not None:
        notebooks.write_text(folder / "traceback.txt", f"{failure}\n\n{failure.traceback}".rstrip() + "\n")
    more = {"exit_code": EXIT_CODES[ended], "failure": str(failure) if failure else None, "notebook": notebook.name}
    write_record(folder, {**facts, **more, **executed.metadata["hookbook"]})
    return RunRecord(
        slug=plan.slug,
        status=ended,
        folder=folder,
        notebook=notebook,
        html=html.to_html(notebook),
        ledger=ledger,
        parameters=plan.parameters,
        preset=plan.preset,
        seconds=outcome.seconds,
        peak_private_mb=outcome.peak_private_mb,
        failure=failure,
    )


def _reporter(slug: str, nb: NotebookNode, notebook: Path, console: Console, status: Status) -> Any:
    """What is done before each cell: say which section runs, and now and then save what there is."""
    sections = list(dict.fromkeys(notebooks.heading(nb, index) for index in range(len(nb.cells))))
    shown, saved = None, time.monotonic()

    def on_cell(live: NotebookNode, index: int) -> None:
        nonlocal shown, saved
        section = notebooks.heading(live, index)
        if section != shown:
            line = f"{slug}: {escape(section)} [dim]({sections.index(section) + 1} of {len(sections)})"
            # a terminal has one line that changes, a log gets a line for each section
            status.update(line) if console.is_terminal else console.print(line)
            shown = section
        if time.monotonic() - saved > _SAVE_S:
            notebooks.write(live, notebook)
            saved = time.monotonic()

    return on_cell


def _without_traces(nb: NotebookNode, outputs: bool = True) -> NotebookNode:
    """Without papermill's metadata, which says `completed` whatever happened; a source also loses an earlier run."""
    nb.metadata.pop("papermill", None)
    if outputs:
        nb.cells = [cell for cell in nb.cells if not notebooks.has_tag(cell, "injected-parameters")]
        for name in ("widgets", "hookbook"):
            nb.metadata.pop(name, None)
    for cell in nb.cells:
        cell.metadata.pop("papermill", None)
        if outputs and cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return nb


def _disk(error: OSError, runs_dir: Path) -> HookbookError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return HookbookError(f"The disk is full: free space under {runs_dir} and run again; finished runs are kept.")
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return HookbookError(f"Cannot write to {error.filename or runs_dir}: choose a folder of yours with --runs.")
    return HookbookError(f"{error.strerror or error} ({error.filename or runs_dir}): mend that and run again.")
