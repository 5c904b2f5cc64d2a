"""The supervisor of a sweep: keeps workers busy, notices those that die, and says how every run ended."""

import errno
import os
import queue
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from helpers.batch import folders
from helpers.batch.crew import Crew, Member
from helpers.batch.disk import disk_error
from helpers.batch.endings import Ending, Limits
from helpers.batch.forks import warm_process
from helpers.batch.plan import SweepPlan, states
from helpers.batch.planned import Plan
from helpers.batch.store import Events
from helpers.batch.unchanged import Unchanged

_POLL_S = 0.2
_BUSY_S = 2  # between two looks at a run that another sweep executes
_KILL_S = 15  # for workers to end after the second Ctrl-C
_LEAVE_S = 10  # for kernels that stayed to end in order
_STILLBORN = 3  # workers that died before they could do anything: then something is wrong with all of them


@dataclass
class Supervisor:
    """One pass over the runs of a plan, or of a shard of it.

    Args:
        plan: the sweep.
        runs: the runs to see to, those of the shard.
        limits: what they may use.
        events: the sweep's diary.
        copies: the notebooks to execute, by slug.
        tell: called with each ending, and with nothing now and then, to show progress.
    """

    plan: SweepPlan
    runs: list[Plan]
    limits: Limits
    events: Events
    copies: dict[str, Path]
    tell: Callable[["Supervisor", Ending | None], None] = lambda supervisor, ending: None
    endings: dict[tuple[str, str], Ending] = field(default_factory=dict)
    stopped: str | None = None  # why nothing new starts, in one sentence
    interrupts: int = 0
    _waiting: deque[Plan] = field(default_factory=deque)
    _later: list[tuple[float, Plan]] = field(default_factory=list)  # runs that another sweep executes
    _tries: Counter = field(default_factory=Counter)
    _stillborn: int = 0
    _sent: int = 0
    _killed_at: float | None = None

    @property
    def busy(self) -> list[Member]:
        """The workers that execute something."""
        return [member for member in self._crew.members if member.plan is not None]

    def run(self) -> list[Ending]:
        """See every run to its end, and return how each ended, in the plan's order."""
        for run, state in zip(self.runs, states([_key(run) for run in self.runs], self.plan.runs_dir), strict=True):
            if state.status == "done":
                self.endings[_key(run)] = Ending(run, "done", state.folder, before=True)
            else:
                self._waiting.append(run)
        if self._waiting:
            self._unchanged = Unchanged(self.plan)
            with (
                warm_process(self.plan.notebooks, list(self._waiting)) as (environment, problem),
                self._hearing_signals(),
            ):
                if problem:
                    self.note("cold", why=problem)
                self._crew = Crew(self.plan.folder, os.environ | environment)
                try:
                    self._supervise()
                finally:
                    self._crew.end(_LEAVE_S if self.limits.stay else 0)
        for run in self.runs:
            self.endings.setdefault(_key(run), Ending(run, "never ran"))
        return [self.endings[_key(run)] for run in self.runs]

    def _supervise(self) -> None:
        while True:
            self._react()
            self._assign()
            if not self.busy and (self.stopped or not (self._waiting or self._later)):
                return
            try:
                member, answer = self._crew.heard.get(timeout=_POLL_S)
            except queue.Empty:
                self.tell(self, None)
                continue
            if answer is None:
                self._gone(member)
            else:
                getattr(self, f"_on_{answer.pop('event')}")(member, **answer)
            self.tell(self, None)

    def _react(self) -> None:
        """Pass on what signals asked for since the last look."""
        if self.interrupts and not self.stopped:
            self.stopped = "Interrupted: nothing new starts."
        while self._sent < min(self.interrupts, 2):
            self._sent += 1
            for member in self.busy:
                member.tell("stop")
        if self.interrupts > 1:
            self._killed_at = self._killed_at or time.monotonic()
            if time.monotonic() > self._killed_at + _KILL_S:
                for member in self.busy:
                    member.process.kill()

    def _assign(self) -> None:
        """Give every idle worker a run, and hire as many as there is work for."""
        now = time.monotonic()
        due = [plan for moment, plan in self._later if moment <= now]
        self._later = [(moment, plan) for moment, plan in self._later if moment > now]
        self._waiting.extend(due)
        if self.stopped or not self._waiting:
            return
        if problem := self._unchanged.problem():
            self.stopped = problem
            return
        present = [member for member in self._crew.members if not member.leaving]
        idle = [member for member in present if member.plan is None]
        for _ in range(min(self.limits.workers - len(present), len(self._waiting) - len(idle))):
            self._crew.hire()
        for member in idle:
            if member.worn and member.ready:
                self._crew.dismiss(member)
            elif member.ready and self._waiting:
                member.plan = self._waiting.popleft()
                self._tries[_key(member.plan)] += 1
                member.tell(
                    "run",
                    plan=replace(member.plan, source=self.copies[member.plan.slug]),
                    runs_dir=self.plan.runs_dir,
                    timeout=self.limits.timeout,
                    memory_mb=self.limits.memory_mb,
                    stay=self.limits.stay,
                )

    def _on_ready(self, member: Member) -> None:
        member.ready = True
        self._stillborn = 0

    def _on_started(self, member: Member, id: str, folder: str) -> None:
        member.folder = Path(folder)
        self.note("started", id=id, folder=member.folder.name)

    def _on_kernels(self, member: Member, processes: list) -> None:
        self._crew.noted(member, processes)

    def _on_ended(self, member: Member, id: str, status: str, private_mb: float, **facts: Any) -> None:
        plan, member.plan = member.plan, None
        folder, member.folder = member.folder or (facts.get("folder") and Path(facts["folder"])), None
        member.runs += 1
        member.private_mb, member.first_mb = private_mb, member.first_mb or private_mb
        again = facts.pop("again", False)
        if status == "busy":
            self._tries[_key(plan)] -= 1
            self._later.append((time.monotonic() + _BUSY_S, plan))
            return
        if status == "not written":
            self.stopped = self.stopped or facts["failure"]
            status = "killed"
        if folder is not None and status != "done":
            self._correct(folder, facts.get("failure"))  # where the worker could not say itself how it ended
        ending = Ending(plan, status, folder, facts.get("failure"), facts.get("seconds"), facts.get("before", False))
        self._settle(ending, again)
        if os.strerror(errno.ENOSPC) in (ending.failure or ""):  # a cell could not write
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.stopped = self.stopped or str(disk_error(full, self.plan.runs_dir))

    def _gone(self, member: Member) -> None:
        """A worker has ended. Unless it was told to, its run is killed, recorded as such, and tried again."""
        code = self._crew.bury(member)
        if member.plan is not None:
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            failure = f"the worker that executed it died ({how})"
            if self._killed_at:
                failure = f"it did not end within {_KILL_S} s of the second interrupt and was killed"
            if member.folder is not None:
                self._correct(member.folder, failure)
            self._settle(Ending(member.plan, "killed", member.folder, failure), again=True)
        elif not member.ready:
            self._stillborn += 1
            if self._stillborn >= _STILLBORN:
                log = self.plan.folder / "workers.log"
                self.stopped = f"The workers die before they can begin (exit code {code}): {log} says why."

    def _settle(self, ending: Ending, again: bool) -> None:
        key = _key(ending.plan)
        repeat = again and not self.stopped and not self.interrupts and self._tries[key] <= self.limits.retries
        status = ending.status
        self.note(
            "ended",
            id=ending.plan.fingerprint.id,
            slug=ending.plan.slug,
            status=status,
            folder=ending.folder and ending.folder.name,
            failure=ending.failure,
            seconds=ending.seconds,
            again=repeat,
        )
        if repeat:
            self._waiting.append(ending.plan)
            return
        self.endings[key] = ending
        self.tell(self, ending)

    def _correct(self, folder: Path, failure: str | None) -> None:
        try:
            folders.correct(folder, failure)
        except OSError:  # the disk is full: the next sweep corrects it
            pass

    def note(self, event: str, **facts: Any) -> None:
        """Add an event to the sweep's record; a disk that takes no more stops the sweep."""
        try:
            self.events.add(event, **facts)
        except OSError as error:
            self.stopped = self.stopped or str(disk_error(error, self.plan.runs_dir))

    @contextmanager
    def _hearing_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM are counted; a job in the background, which ignores Ctrl-C, goes on ignoring it."""

        def count(*_: object) -> None:
            self.interrupts += 1

        numbers = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, count) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _key(plan: Plan) -> tuple[str, str]:
    return plan.slug, plan.fingerprint.id
