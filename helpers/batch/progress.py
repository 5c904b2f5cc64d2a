"""What is seen of a sweep while it runs and when it has ended: one changing line, or a line per run in a log."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from helpers.batch.endings import Ending
from helpers.batch.plan import span
from helpers.batch.record import EXIT_CODES
from helpers.batch.supervisor import Supervisor

_LINES_S = 2  # between two lines about runs that are done; every other ending is told at once
_AT_MOST = 6  # runs not done that the summary shows, three lines each at most


class Shown:
    """Shows the progress of a supervisor: `shown.tell` is what the supervisor calls."""

    def __init__(self, console: Console, total: int):
        self._console = console
        self._total = total
        self._counts: Counter[str] = Counter()
        self._started = time.monotonic()
        self._fresh = 0
        self._line = 0.0
        self._bar: Progress | None = None

    @contextmanager
    def __call__(self) -> Iterator["Shown"]:
        """Show a line that changes, where there is a terminal."""
        if not self._console.is_terminal:
            yield self
            return
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
        with Progress(*columns, TextColumn("{task.fields[words]}"), console=self._console, transient=True) as self._bar:
            self._task = self._bar.add_task("runs", total=self._total, words="")
            yield self

    def tell(self, supervisor: Supervisor, ending: Ending | None) -> None:
        """Show where the sweep stands, and how a run has just ended."""
        if ending is not None:
            self._counts[ending.status] += 1
            self._fresh += 1
        finished = len(supervisor.endings)
        words = self._words(supervisor, finished)
        if self._bar is not None:
            self._bar.update(self._task, completed=finished, words=escape(words))
        if ending is None or (self._bar is not None and ending.status == "done"):
            return
        now = time.monotonic()
        if ending.status != "done" or now - self._line >= _LINES_S or finished == self._total:
            self._line = now
            took = "" if ending.seconds is None else f" after {ending.seconds:.1f} s"
            line = f"[{finished}/{self._total}] {point(ending)}: {ending.status}{took}; {words}"
            self._console.print(escape(line), soft_wrap=True)

    def _words(self, supervisor: Supervisor, finished: int) -> str:
        bad = sum(number for status, number in self._counts.items() if status != "done")
        words = f"{len(supervisor.busy)} running, {bad} not done"
        if self._fresh and finished < self._total:
            left = (time.monotonic() - self._started) / self._fresh * (self._total - finished)
            words += f", about {span(left)} left"
        return words


def summary(name: str, endings: list[Ending], stopped: str | None, shown: Any) -> str:
    """What is said at the end: a count by status, and the first runs that are not done, each with where and why.

    Args:
        name: the sweep's.
        endings: how every run of the plan or shard ended.
        stopped: why nothing new was started any more, if so.
        shown: makes a path as short as it can be typed.
    """
    counts = Counter(ending.status for ending in endings)
    before = sum(ending.before for ending in endings)
    lines = ["", f"{name}: {len(endings)} run{'s' * (len(endings) != 1)}"]
    for status in sorted(counts, key=list(EXIT_CODES).index):
        already = f" ({before} of them before)" if status == "done" and before else ""
        lines.append(f"  {counts[status]:>6} {status}{already}")
    if stopped:
        lines.append(stopped)
    told = [ending for ending in endings if ending.status not in ("done", "never ran")]
    for ending in told[:_AT_MOST]:
        place, _, error = (ending.failure or "").partition("\n")
        where = f"in {place}" if error else place
        lines.append(f"{ending.status}: {point(ending)} {where}".rstrip())
        if error:
            lines.append(f"    {error.splitlines()[0][:200]}")
        notebook = ending.folder / f"{ending.plan.slug}.ipynb" if ending.folder else None
        if notebook is not None and notebook.is_file():
            lines.append(f"    {shown(notebook)}")
    if len(told) > _AT_MOST:
        lines.append(f"and {len(told) - _AT_MOST} more: hookbook report {name}")
    return "\n".join(lines)


def exit_code(endings: list[Ending], interrupted: bool) -> int:
    """0 when all runs are done, 130 when the sweep was interrupted, else 1."""
    if all(ending.status == "done" for ending in endings):
        return 0
    return EXIT_CODES["interrupted"] if interrupted else 1


def point(ending: Ending) -> str:
    """A run as people name it: its notebook and the parameters that differ from the notebook's own."""
    changed = ", ".join(f"{name}={value!r}" for name, value in ending.plan.changed.items())
    return f"{ending.plan.slug}({changed})"
