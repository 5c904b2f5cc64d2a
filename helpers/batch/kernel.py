"""Execute one notebook in one kernel and say truthfully how it ended."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from jupyter_client.kernelspec import KernelSpec
from nbformat import NotebookNode

from helpers.batch.kept import Kept, KeptManager, again
from helpers.batch.outcome import Outcome, judge
from helpers.batch.prompt import PromptManager
from helpers.warm.client import ADDRESS, Forked
from helpers.warm.provisioner import WarmProvisioner

_GRACE_S = 5  # between the interrupt and the kill
_SAMPLE_S = 0.5
_SHUTDOWN_S = (
    1.0  # all cells have run: half of it for the kernel to end, then SIGTERM (some hang for seconds in their end)
)


class _Stopped(Exception):
    """Raised between two cells after a stop was asked for, in case the running cell swallowed the interrupt."""


@dataclass
class _State:
    """What the executing thread and the watching one share."""

    nb: NotebookNode
    process: subprocess.Popen | Forked | None = None
    provisioner: WarmProvisioner | None = None
    cell: int | None = None
    reason: str | None = None  # why the watcher stopped it
    error: BaseException | None = None
    peak_bytes: int = 0
    limit_bytes: float | None = None
    children: dict[int, psutil.Process] = field(default_factory=dict)
    kept: Kept | None = None
    manager: PromptManager | None = None
    runs_before: int = 0

    def take(self) -> None:
        """Take the kernel that is kept, if there is one."""
        if self.kept is not None and (manager := self.kept.take()) is not None:
            self.manager, self.runs_before = manager, manager.runs
            self.process, self.provisioner = manager.provisioner.process, manager.provisioner


def execute(
    nb: NotebookNode,
    parameters: dict[str, Any],
    *,
    folder: Path,
    environment: dict[str, str],
    timeout: float | None = None,
    memory_mb: float | None = None,
    on_cell: Callable[[NotebookNode, int], None] = lambda nb, index: None,
    stop: Callable[[], int] = lambda: 0,
    warm: str | None = None,
    kept: Kept | None = None,
) -> Outcome:
    """Run every cell in a fresh kernel of this Python (unless one is kept), with the run's folder as working directory.

    Papermill injects the parameters and drives the kernel; it is not believed about how that ended. The execution has
    a thread of its own, so that this one can watch memory, the clock and Ctrl-C.

    Args:
        nb: the notebook; not changed.
        parameters: values to inject, none of them if empty.
        folder: the run's folder; also gets kernel.log when the kernel process itself writes something.
        environment: variables for the kernel beside those of this process.
        timeout: seconds for the whole run.
        memory_mb: what the kernel and its children may hold for themselves; beyond it the kernel is killed.
        on_cell: called in the executing thread before each cell, with the live notebook and the cell's index.
        stop: how often somebody has asked for an end, which a worker hears from elsewhere than from a Ctrl-C.
        warm: the address of a warm process to fork the kernel from; the one that HOOKBOOK_WARM names if None, and a
            cold start where that is not set.
        kept: takes the kernel that is in it, if there is one, and keeps the kernel for the next run where it can.
    """
    state = _State(nb, limit_bytes=None if memory_mb is None else memory_mb * 2**20, kept=kept)
    state.take()
    started = time.monotonic()
    with open(folder / "kernel.log", "wb") as log:
        environment = {**os.environ, **environment}
        manager = _manager_class(state, folder, environment, log, warm or os.environ.get(ADDRESS))
        before = _before(state, environment, folder)
        thread = threading.Thread(target=_work, args=(state, parameters, manager, before, on_cell), daemon=True)
        with _terminate_as_interrupt():
            try:
                _watch(thread, state, None if timeout is None else started + timeout, stop)
            finally:
                if kept is None or not kept.holds(state.manager):
                    _end(state)
    if not (folder / "kernel.log").stat().st_size:
        (folder / "kernel.log").unlink()
    outcome = judge(
        state.nb,
        stopped=state.reason,
        error=state.error,
        cell=state.cell,
        returned=state.process.poll() if state.process is not None else None,
        seconds=time.monotonic() - started,
        peak_private_mb=round(state.peak_bytes / 2**20, 1) if state.peak_bytes else None,
        runs_before=state.runs_before,
    )
    if kept is not None and outcome.status != "done":
        kept.end()
    return outcome


def _before(state: _State, environment: dict[str, str], folder: Path) -> Callable:
    """What the executing thread does when the kernel is ready."""

    async def before(notebook: NotebookNode) -> None:
        state.nb = notebook
        if state.kept is not None and state.runs_before:
            await state.kept.settle(state.manager.last_client, environment, folder)
        elif state.kept is not None:
            await state.kept.begin(state.manager.last_client)

    return before


def _work(state: _State, parameters: dict, manager: type, before_all: Callable, on_cell: Callable) -> None:
    # imported here: half a second that no other command needs to wait for
    from papermill.execute import ERROR_MARKER_TAG, execute_notebook

    def before(cell: NotebookNode, cell_index: int) -> None:
        if state.reason:
            raise _Stopped
        state.cell = cell_index
        on_cell(state.nb, cell_index)

    # papermill warns of parameters it cannot read and of dead kernels; both are told better elsewhere
    logging.getLogger("papermill").setLevel(logging.CRITICAL + 1)
    try:
        execute_notebook(
            state.nb,
            None,
            parameters=parameters,
            kernel_name="python3",
            language="python",
            progress_bar=False,
            start_timeout=120,
            autosave_cell_every=0,
            kernel_manager_class=manager,
            on_notebook_start=before_all,
            on_cell_start=before,
            on_cell_executed=lambda **_: _sample(state),  # what a short cell leaves is seen too
        )
    except BaseException as error:  # the watching thread decides what it means
        state.error = error
    state.nb.cells = [cell for cell in state.nb.cells if ERROR_MARKER_TAG not in cell.metadata.get("tags", [])]


def _manager_class(state: _State, folder: Path, environment: dict[str, str], log: Any, warm: str | None) -> type:
    """A kernel manager for one run: this interpreter, own environment; it hands out its process."""
    if state.manager is not None:
        return again(state.manager)

    class Manager(PromptManager if state.kept is None else KeptManager):
        address = warm
        kept = state.kept

        def __init__(self, **options: Any):
            super().__init__(**options)
            self.shutdown_wait_time = _SHUTDOWN_S

        @property
        def kernel_spec(self) -> KernelSpec:
            # never a kernel of another environment that happens to be called python3 too
            command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
            return KernelSpec(argv=command, display_name="Python 3", language="python")

        async def start_kernel(self, **options: Any) -> None:
            await super().start_kernel(
                **{**options, "env": environment, "cwd": str(folder), "stdout": log, "stderr": log}
            )
            state.manager = self
            state.process, state.provisioner = self.provisioner.process, self.provisioner

    return Manager


def _watch(thread: threading.Thread, state: _State, deadline: float | None, stop: Callable[[], int]) -> None:
    """Wait for the executing thread; interrupt and then kill the kernel at the deadline, at Ctrl-C or when asked to.

    Past its memory limit it is killed at once: an interrupt leaves it time to take the machine down.
    """
    thread.start()
    kill_at = None
    while thread.is_alive():
        try:
            thread.join(_SAMPLE_S)
            _sample(state)
            now = time.monotonic()
            if state.reason is None and deadline is not None and now >= deadline:
                state.reason = "timed out"
            if asked := stop():
                state.reason = state.reason or "interrupted"
                kill_at = 0 if asked > 1 else kill_at
            if state.reason == "out of memory" and kill_at is None:
                kill_at = now
            if state.reason is None or state.process is None:
                continue
            if kill_at is None:
                kill_at = now + _GRACE_S
                _signal(state.process.pid, signal.SIGINT)
            elif now >= kill_at:
                _signal(state.process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
                kill_at = now + _GRACE_S
        except KeyboardInterrupt:
            if state.reason == "interrupted":
                kill_at = 0  # pressed again: do not wait for the grace
            state.reason = "interrupted"


def _sample(state: _State) -> None:
    if state.process is None:
        return
    try:
        kernel = psutil.Process(state.process.pid)
        family = [kernel, *kernel.children(recursive=True)]
    except psutil.Error:
        return
    total = 0
    for process in family:
        try:
            total += process.memory_full_info().uss
            if process.pid != kernel.pid:
                state.children[process.pid] = process
        except psutil.Error:  # ended meanwhile, or a zombie
            continue
    state.peak_bytes = max(state.peak_bytes, total)
    if state.limit_bytes is not None and total > state.limit_bytes:
        state.reason = state.reason or "out of memory"


def _signal(pid: int, number: int) -> None:
    """Signal the kernel's process group (a kernel leads its own), or the process where there are no groups."""
    try:
        os.killpg(pid, number) if hasattr(os, "killpg") else os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _end(state: _State) -> None:
    """No orphans: what the kernel started and left behind ends with it (psutil knows a reused pid from the old one)."""
    if state.process is not None and state.process.poll() is None:
        _signal(state.process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    for child in state.children.values():
        try:
            child.kill()
        except psutil.Error:
            continue
    if state.provisioner is not None:
        state.provisioner.discard()


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does, with its record written; only the main thread may say so."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
