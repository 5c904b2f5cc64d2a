"""`hookbook run`: one notebook, one set of parameters, one new folder with everything that came of it."""

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from rich.console import Console
from rich.markup import escape
from rich.status import Status

from helpers import notebooks
from helpers.batch import folders, kernel, memory
from helpers.batch.disk import disk_error
from helpers.batch.folders import RUNS, new_folder
from helpers.batch.kept import Kept
from helpers.batch.planned import Plan, planned
from helpers.batch.record import EXIT_CODES, Failure, RunRecord, failure_of, never_reached, write_record
from helpers.fingerprint import stamp

_SAVE_S = 10  # a kill of everything loses at most the outputs of this many seconds ...
_SAVE_SHARE = 0.05  # ... or more, where saving them would take more than this share of the time
_QUIET = Console(quiet=True)


def run(
    slug_or_path: str | Path,
    parameters: dict[str, Any] | None = None,
    preset: str = "quick",
    runs_dir: Path = RUNS,
    *,
    timeout: float | None = None,
    memory_mb: float | None = None,
    console: Console = _QUIET,
) -> RunRecord:
    """Run a paper's notebook (or any notebook file) in a cold kernel, into a folder that did not exist before.

    Args:
        slug_or_path: a slug of the catalogue or the path of a notebook.
        parameters: values that differ from the preset's; text is converted by the parameter's type.
        preset: the catalogue's named set of parameters.
        runs_dir: the folder of all runs; this run gets `<slug>/<fingerprint>`, or the same with -2, -3 ...
        timeout: seconds for the whole run.
        memory_mb: what the kernel and its children may hold for themselves.
        console: where the running section is shown.

    Raises:
        HookbookError: unknown paper, preset or parameter, wrong value, no model (all before a kernel starts); a full
            disk.
    """
    plan = planned(slug_or_path, parameters or {}, preset, console)
    runs_dir = Path(runs_dir).resolve()  # the kernel works elsewhere
    try:
        folder = new_folder(runs_dir / plan.slug, plan.fingerprint.id)
        return carry_out(plan, folder, timeout=timeout, memory_mb=memory_mb, console=console)
    except OSError as error:
        raise disk_error(error, runs_dir) from None


def carry_out(
    plan: Plan,
    folder: Path,
    *,
    timeout: float | None = None,
    memory_mb: float | None = None,
    console: Console = _QUIET,
    pages: bool = True,
    environment: dict[str, str] | None = None,
    stop: Callable[[], int] = lambda: 0,
    kept: Kept | None = None,
) -> RunRecord:
    """Execute a plan in a folder that was made for it, and leave there notebook, record and, if it failed, traceback.

    Args:
        plan: the run.
        folder: a new folder, which stays locked meanwhile.
        timeout: seconds for the whole run.
        memory_mb: what the kernel and its children may hold for themselves.
        console: where the running section is shown.
        pages: whether a run that is done gets an HTML page too; any other gets one anyway.
        environment: variables for the kernel beside those that every kernel gets.
        stop: how often somebody has asked for an end.
        kept: a kernel to use again and to keep; the record says after how many runs it was reset.

    Raises:
        OSError: the folder cannot be written; the run is not done then.
    """
    with folders.held(folder):
        return _carry_out(plan, folder, timeout, memory_mb, console, pages, environment or {}, stop, kept)


def _carry_out(
    plan: Plan,
    folder: Path,
    timeout: float | None,
    memory_mb: float | None,
    console: Console,
    pages: bool,
    environment: dict[str, str],
    stop: Callable[[], int],
    kept: Kept | None,
) -> RunRecord:
    notebook = folder / f"{plan.slug}.ipynb"
    facts = {
        "slug": plan.slug,
        "preset": plan.preset,
        "parameters": plan.parameters,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_record(folder, {**facts, "status": "running", "id": plan.fingerprint.id})
    source = _without_traces(notebooks.read(plan.source))
    kills = memory.kills()
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
                **environment,
            },
            timeout=timeout,
            memory_mb=memory_mb,
            stop=stop,
            kept=kept,
            on_cell=_reporter(plan.slug, source, notebook, console, status),
        )
    ledger = notebooks.ledger(outcome.nb)
    by_system = outcome.status == "killed"
    if by_system and memory.kills() > kills:
        outcome.status, outcome.detail = "out of memory", "the system killed the kernel because memory ran out"
    ended, failure = outcome.status, failure_of(outcome)
    if ended == "done" and (unreached := never_reached(plan.slug, ledger)):
        ended = "stopped early"
        failure = Failure("the ledger", None, None, "", f"never reached: {', '.join(unreached)}", "")
    facts |= {
        "status": ended,
        "seconds": round(outcome.seconds, 2),
        "peak_private_mb": outcome.peak_private_mb,
    }
    if outcome.runs_before:
        facts["state"] = f"reset, not fresh: {outcome.runs_before} run(s) before it in the same process"
    executed = _without_traces(outcome.nb, outputs=False)
    stamp(executed, plan.fingerprint, **facts)
    notebooks.write(executed, notebook)
    if failure is not None:
        notebooks.write_text(folder / "traceback.txt", f"{failure}\n\n{failure.traceback}".rstrip() + "\n")
    page = _page(notebook) if pages or ended != "done" else None
    more = {
        "id": plan.fingerprint.id,
        "exit_code": EXIT_CODES[ended],
        "failure": str(failure) if failure else None,
        "notebook": notebook.name,
        "ledger": ledger,
    }
    write_record(folder, {**facts, **more, **executed.metadata["hookbook"]})  # last: only now it counts as ended
    return RunRecord(
        slug=plan.slug,
        status=ended,
        folder=folder,
        notebook=notebook,
        html=page,
        ledger=ledger,
        parameters=plan.parameters,
        preset=plan.preset,
        seconds=outcome.seconds,
        peak_private_mb=outcome.peak_private_mb,
        failure=failure,
        by_system=by_system,
    )


def _page(notebook: Path) -> Path:
    from helpers.batch import html  # here: a sweep whose runs are all done needs none of what makes pages

    return html.to_html(notebook)


def _reporter(slug: str, nb: NotebookNode, notebook: Path, console: Console, status: Status) -> Any:
    """What is done before each cell: say which section runs, and now and then save what there is."""
    sections = list(dict.fromkeys(notebooks.heading(nb, index) for index in range(len(nb.cells))))
    shown, due = None, time.monotonic() + _SAVE_S

    def on_cell(live: NotebookNode, index: int) -> None:
        nonlocal shown, due
        section = notebooks.heading(live, index)
        if section != shown:
            line = f"{slug}: {escape(section)} [dim]({sections.index(section) + 1} of {len(sections)})"
            # a terminal has one line that changes, a log gets a line for each section
            status.update(line) if console.is_terminal else console.print(line)
            shown = section
        if (begun := time.monotonic()) >= due:
            notebooks.write(live, notebook)
            # the longer it takes to write what has come together, the rarer: over a run the cost stays linear
            due = time.monotonic() + max(_SAVE_S, (time.monotonic() - begun) / _SAVE_SHARE)

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
