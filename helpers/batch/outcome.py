"""What became of an execution, judged by the kernel's exit, the outputs and the execution counts."""

import signal
from dataclasses import dataclass

from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode

_STOPPED = {
    "timed out": "the time limit was reached",
    "out of memory": "the kernel and what it started held more memory of their own than the limit allows",
    "interrupted": "interrupted from outside",
}


@dataclass
class Outcome:
    """How an execution ended.

    Attributes:
        status: done, failed, killed, out of memory, timed out, stopped early or interrupted.
        nb: the notebook with the outputs it has.
        cell: index of the cell that was running when it ended early; None when all ran.
        detail: what happened, for statuses without an error in the cell's own outputs.
        seconds: wall time.
        peak_private_mb: highest private memory of the kernel and its children, in MB; None if never seen.
        runs_before: how many runs the kernel had been through and was reset after; 0 for a fresh one.
    """

    status: str
    nb: NotebookNode
    cell: int | None
    detail: str
    seconds: float
    peak_private_mb: float | None
    runs_before: int = 0


def judge(
    nb: NotebookNode,
    *,
    stopped: str | None,
    error: BaseException | None,
    cell: int | None,
    returned: int | None,
    seconds: float,
    peak_private_mb: float | None,
    runs_before: int = 0,
) -> Outcome:
    """The status; papermill's word, which is `completed` whatever happened, is not asked.

    Args:
        nb: the notebook with its outputs.
        stopped: `timed out`, `out of memory` or `interrupted` if the watcher stopped it.
        error: what the executing thread raised.
        cell: index of the last cell begun.
        returned: the kernel process's exit code, negative for a signal; None while it lives.
        seconds: wall time.
        peak_private_mb: highest private memory seen.
        runs_before: how many runs the kernel had been through.

    Raises:
        OSError: the executing thread could not write its files.
    """
    code = [(index, one) for index, one in enumerate(nb.cells) if one.cell_type == "code"]
    errors = [(index, output) for index, one in code for output in one.outputs if output.output_type == "error"]
    missing = [index for index, one in code if one.source.strip() and one.execution_count is None]

    def outcome(status: str, at: int | None, detail: str = "") -> Outcome:
        return Outcome(status, nb, at, detail, seconds, peak_private_mb, runs_before)

    if stopped and (errors or missing or error):
        return outcome(stopped, cell, _STOPPED[stopped])
    if isinstance(error, OSError):
        raise error
    if isinstance(error, DeadKernelError) or (not errors and "Kernel died" in str(error)):
        if returned == 0:
            return outcome("stopped early", cell, "the kernel was told to exit")
        return outcome("killed", cell, "the kernel died" if returned is None else _how_it_died(returned))
    if errors:
        index, output = errors[0]
        if output.ename == "SystemExit" and output.evalue in ("", "0", "None"):
            return outcome("stopped early", index, "the cell ended the run with SystemExit")
        return outcome("out of memory" if _lacked_memory(output) else "failed", index)
    if error is not None:
        return outcome("failed", cell, f"{type(error).__name__}: {error}")
    if missing:
        return outcome("stopped early", missing[0], "the cell never ran")
    return outcome("done", None)


def _lacked_memory(error: NotebookNode) -> bool:
    """Whether a cell's error says that memory could not be had; torch on the CPU says so in a RuntimeError's words."""
    return error.ename.endswith(("MemoryError", "OutOfMemoryError")) or "can't allocate memory" in error.evalue


def _how_it_died(returned: int) -> str:
    if returned > 0:
        return f"the kernel ended by itself with exit code {returned}"
    name = signal.Signals(-returned).name
    hint = "; the system may have run out of memory" if name == "SIGKILL" else ""
    return f"the kernel was killed by {name}{hint}"
