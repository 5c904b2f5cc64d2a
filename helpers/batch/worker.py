"""A worker of a sweep: executes one run after another, as the supervisor tells it, and dies with the supervisor.

It reads orders from its standard input, a line each, and answers in lines of JSON on what was its standard output.
"""

import base64
import json
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from helpers.batch import folders, memory
from helpers.batch.disk import UNWRITABLE, disk_error
from helpers.batch.planned import Plan
from helpers.errors import HookbookError

if TYPE_CHECKING:
    from helpers.batch.kept import Kept

_WATCH_S = 0.5


def order(kind: str, **content: Any) -> bytes:
    """An order as the line that a worker reads: values of parameters must arrive with their types, tuples too."""
    return base64.b64encode(pickle.dumps((kind, content))) + b"\n"


class Worker:
    """Carries out the orders; a second thread listens meanwhile, a third one reports which processes a kernel has."""

    def __init__(self, orders: Any, answers: Any):
        self._orders = orders
        self._answers = answers
        self._writing = threading.Lock()
        self._stops = 0
        self._waiting: list[dict[str, Any]] = []
        self._wake = threading.Condition()
        self._ended = False
        self._kept: tuple[str, Kept] | None = None

    def run(self) -> None:
        """Work until told to quit."""
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()
        self._say("ready")
        while True:
            with self._wake:
                while not self._waiting and not self._ended:
                    self._wake.wait()
                if not self._waiting:
                    break
                job = self._waiting.pop(0)
            self._job(**job)
        self._keep(None)

    def _keep(self, slug: str | None) -> "Kept | None":
        """The kernel that is kept for runs of one notebook; another's, or any if there is no slug, is ended."""
        if self._kept is not None and self._kept[0] != slug:
            self._kept[1].end()
            self._kept = None
        if slug is None:
            return None
        if self._kept is None:
            from helpers.batch.kept import Kept

            self._kept = slug, Kept()
        return self._kept[1]

    def _job(self, plan: Plan, runs_dir: Path, timeout: float | None, memory_mb: float | None, stay: bool) -> None:
        answer: dict[str, Any] = {"id": plan.fingerprint.id}
        try:
            answer |= self._carry_out(plan, runs_dir, timeout, memory_mb, self._keep(plan.slug if stay else None))
        except OSError as error:
            status = "not written" if error.errno in UNWRITABLE else "failed"
            answer |= {"status": status, "failure": str(disk_error(error, runs_dir))}
        except HookbookError as error:
            answer |= {"status": "failed", "failure": str(error)}
        except Exception:
            traceback.print_exc()
            answer |= {"status": "failed", "failure": traceback.format_exc().strip().splitlines()[-1]}
        self._say("ended", **answer, private_mb=round(memory.private_mb(), 1))

    def _carry_out(
        self, plan: Plan, runs_dir: Path, timeout: float | None, memory_mb: float | None, kept: "Kept | None"
    ) -> dict[str, Any]:
        from helpers.batch.single import carry_out  # half a second that the first run, not the start, waits for

        parent, id = runs_dir / plan.slug, plan.fingerprint.id
        with folders.claimed(parent, id) as mine:
            if not mine:
                return {"status": "busy"}
            tried = folders.by_id(parent).get(id, [])
            for folder in tried:
                folders.correct(folder)
            found = folders.best(tried)
            if found and found[1]["status"] in ("done", "running"):
                status = "done" if found[1]["status"] == "done" else "busy"
                return {"status": status, "before": True, "folder": str(found[0])}
            folder = folders.new_folder(parent, id)
            self._say("started", id=id, folder=str(folder))
            record = carry_out(
                plan,
                folder,
                timeout=timeout,
                memory_mb=memory_mb,
                pages=False,
                # two workers of one thread do more than one with two, and never wait for each other
                environment={"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
                stop=lambda: self._stops,
                kept=kept,
            )
            failure = None if record.failure is None else str(record.failure)
            return {
                "status": record.status,
                "failure": failure,
                "again": record.by_system,
                "seconds": record.seconds,
                "folder": str(folder),
            }

    def _listen(self) -> None:
        for line in self._orders:
            kind, content = pickle.loads(base64.b64decode(line))
            with self._wake:
                if kind == "run":
                    self._waiting.append(content)
                    self._stops = 0  # here, in the order of the orders: a stop that follows at once must not be lost
                elif kind == "stop":
                    self._stops += 1
                elif kind == "quit":
                    self._ended = True
                self._wake.notify()
            if kind == "quit":
                return
        # the supervisor is gone: nobody would hear how the run ends, and the next sweep corrects its record
        for process in _descendants():
            try:
                process.kill()
            except psutil.Error:
                continue
        os._exit(1)

    def _watch(self) -> None:
        """Tell the supervisor which processes it must end if this one dies."""
        told: list[tuple[int, float]] = []
        while True:
            time.sleep(_WATCH_S)
            try:
                now = [(process.pid, process.create_time()) for process in _descendants()]
            except psutil.Error:
                continue
            if now != told:
                told = now
                self._say("kernels", processes=now)

    def _say(self, event: str, **facts: Any) -> None:
        with self._writing:
            self._answers.write(json.dumps({"event": event, **facts}).encode() + b"\n")
            self._answers.flush()


def _descendants() -> list[psutil.Process]:
    try:
        return psutil.Process().children(recursive=True)
    except psutil.Error:
        return []


def main() -> None:
    """Work for the process that holds the other ends of standard input and output."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not look like an answer
    # Ctrl-C in a terminal reaches the whole group; the supervisor decides what it means. Ignored signals would be
    # inherited by the kernels, handled ones are not
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: None)
    Worker(sys.stdin.buffer, answers).run()


if __name__ == "__main__":
    main()
