"""The worker processes of a sweep as their supervisor sees them, and the reaper that comes after all of them."""

import json
import queue
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers import papers
from helpers.batch.planned import Plan
from helpers.batch.reaper import kill
from helpers.batch.worker import order

_RUNS_AT_MOST = 500  # of one worker: whatever a library leaks ends with the process
_RUNS_AT_LEAST = 50
_GROWTH_MB = 200
# what libraries do without if they must, and workers have no use for: jsonschema would check addresses and durations
# with the first two (half of a worker's start), papermill would read notebooks from a cluster with the third (35 MB)
_LEFT_OUT = ("rfc3987_syntax", "isoduration", "pyarrow")


@dataclass(eq=False)
class Member:
    """A worker process: what it executes, where, and how it has grown."""

    process: subprocess.Popen
    ready: bool = False
    leaving: bool = False
    plan: Plan | None = None
    folder: Path | None = None
    kernels: list[tuple[int, float]] = field(default_factory=list)
    runs: int = 0
    first_mb: float | None = None
    private_mb: float = 0.0

    @property
    def worn(self) -> bool:
        """Whether a fresh process should take its place."""
        grown = self.first_mb is not None and self.private_mb > self.first_mb + _GROWTH_MB
        return self.runs >= _RUNS_AT_MOST or (grown and self.runs >= _RUNS_AT_LEAST)

    def tell(self, kind: str, **content: Any) -> None:
        """Send an order; a worker that has just died will be noticed by its silence."""
        try:
            self.process.stdin.write(order(kind, **content))
            self.process.stdin.flush()
        except OSError:
            pass


class Crew:
    """Starts, hears and ends workers. What they say arrives in `heard`, as (member, answer); None when one has gone.

    Args:
        folder: the sweep's folder, where what workers write to their standard error goes.
        environment: of the workers and, through them, of the kernels.
    """

    def __init__(self, folder: Path, environment: dict[str, str]):
        self.members: list[Member] = []
        self.heard: queue.Queue[tuple[Member, dict[str, Any] | None]] = queue.Queue()
        self._log = folder / "workers.log"
        self._environment = environment
        self._reaper = self._start("helpers.batch.reaper", subprocess.DEVNULL, start_new_session=True)

    def hire(self) -> Member:
        """Start another worker."""
        member = Member(self._start("helpers.batch.worker", subprocess.PIPE))
        self.members.append(member)
        threading.Thread(target=self._hear, args=(member,), daemon=True).start()
        return member

    def noted(self, member: Member, processes: list[tuple[int, float]]) -> None:
        """A worker said which processes its kernel has: remember it, here and in the reaper."""
        member.kernels = processes
        try:
            self._reaper.stdin.write(json.dumps([member.process.pid, processes]).encode() + b"\n")
            self._reaper.stdin.flush()
        except OSError:  # somebody killed it; the sweep does not depend on it
            pass

    def dismiss(self, member: Member) -> None:
        """Let a worker that executes nothing go."""
        member.leaving = True
        member.tell("quit")

    def bury(self, member: Member) -> int:
        """A worker has gone: end what it left behind, and return its exit code."""
        self.members.remove(member)
        kill(member.kernels)
        self.noted(member, [])
        return member.process.wait()

    def end(self, patience: float = 0) -> None:
        """End all workers that are left, and what they left.

        Args:
            patience: seconds for workers that execute nothing to end their kernels in order.
        """
        deadline = time.monotonic() + patience
        for member in self.members if patience else ():
            self.dismiss(member)
        for member in list(self.members):
            with suppress(subprocess.TimeoutExpired):
                member.process.wait(max(0, deadline - time.monotonic()) if member.plan is None else 0)
            member.process.kill()
            self.bury(member)
        with suppress(OSError):  # what it was told last may still wait to be written, and it may be dead
            self._reaper.stdin.close()
        self._reaper.wait()

    def _start(self, module: str, answers: int, **options: Any) -> subprocess.Popen:
        # the helpers that planned the sweep, and nothing that happens to lie where it was started (-P); PYTHONPATH
        # would say so too, but to the kernels as well
        left_out = dict.fromkeys(_LEFT_OUT)
        code = (
            f"import sys; sys.path.insert(0, {str(papers.ROOT)!r}); sys.modules |= {left_out!r}; "
            f"from {module} import main; main()"
        )
        with open(self._log, "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                stdin=subprocess.PIPE,
                stdout=answers,
                stderr=log,
                env=self._environment,
                **options,
            )

    def _hear(self, member: Member) -> None:
        with member.process.stdout as answers:
            for line in answers:
                self.heard.put((member, json.loads(line)))
        self.heard.put((member, None))
