"""`hookbook sweep`: from what was asked for to runs in their folders, and an exit code that says if all are done."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from helpers.batch import plan as plans
from helpers.batch import progress, store
from helpers.batch.disk import UNWRITABLE, disk_error
from helpers.batch.endings import Ending, Limits
from helpers.batch.folders import RUNS
from helpers.batch.spec import Spec
from helpers.batch.supervisor import Supervisor
from helpers.errors import HookbookError


@dataclass(frozen=True)
class Swept:
    """How a sweep ended."""

    name: str
    folder: Path
    endings: list[Ending]
    exit_code: int


def sweep(
    spec: Spec,
    runs_dir: Path = RUNS,
    *,
    shard: tuple[int, int] = (1, 1),
    dry_run: bool = False,
    out: Console,
    err: Console,
    shown: Any = str,
) -> Swept | None:
    """Execute every run of a sweep that is not done yet, each once.

    Args:
        spec: what was asked for.
        runs_dir: the folder of all runs.
        shard: which part, of how many, this process sees to.
        dry_run: print the plan and return None.
        out: where plan and summary are printed.
        err: where progress is shown.
        shown: makes a path as short as it can be typed.

    Raises:
        HookbookError: a mistake in what was asked for (before any kernel starts), a sweep of this name that runs
            already, or a folder that cannot be written.
    """
    number, of = shard
    if not 1 <= number <= of:
        raise HookbookError(f"--shard counts from 1: {number}/{of} is none of {of} parts.")
    runs_dir = Path(runs_dir).resolve()
    plan = plans.planned(spec, runs_dir, err)
    runs = plan.shard(number, of)
    limits = Limits(spec.workers or cores(), spec.timeout, spec.memory, spec.retries, spec.stay)
    if dry_run:
        out.print(escape(plans.preview(plan, runs, limits.workers)), soft_wrap=True)
        return None
    part = f"{number}of{of}"
    try:
        with store.alone(plan, part):
            store.write(plan)
            events = store.Events(plan.folder, part)
            events.add("began", pid=os.getpid(), runs=len(runs), workers=limits.workers)
            supervisor = Supervisor(plan, runs, limits, events, store.snapshot(plan))
            show = progress.Shown(err, len(runs))
            supervisor.tell = show.tell
            with show():
                endings = supervisor.run()
            supervisor.note("ended all", stopped=supervisor.stopped)
    except OSError as error:
        if error.errno in UNWRITABLE:
            raise disk_error(error, runs_dir) from None
        raise
    out.print(escape(progress.summary(plan.name, endings, supervisor.stopped, shown)), soft_wrap=True)
    return Swept(plan.name, plan.folder, endings, progress.exit_code(endings, supervisor.interrupts > 0))


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
