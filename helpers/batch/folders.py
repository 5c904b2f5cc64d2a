"""The folders of runs: made once, locked while a run is in them, and never believed about being in progress."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from helpers import papers
from helpers.batch.record import EXIT_CODES, write_record

RUNS = papers.ROOT / "runs"
DIED = "the process that ran it ended before the run did"
_LOCK = ".lock"
_NAME = re.compile(r"([0-9a-f]{12})(?:-(\d+))?")


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


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the system frees it when this process dies, however it dies."""
    lock = FileLock(folder / _LOCK, thread_local=False)
    lock.acquire(timeout=0)
    try:
        yield
    finally:
        # the run's record is written: whoever looks from now on reads how it ended and asks for no lock
        with suppress(OSError):
            os.unlink(folder / _LOCK)
        lock.release()
        with suppress(OSError):  # where a locked file cannot be removed
            os.unlink(folder / _LOCK)


@contextmanager
def claimed(parent: Path, id: str) -> Iterator[bool]:
    """Whether this process alone may execute the run called `id` now; sweeps that share a run ask this first."""
    locks = parent / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    lock = FileLock(locks / id, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def busy(folder: Path) -> bool:
    """Whether a living process holds the folder's lock."""
    if not (folder / _LOCK).exists():
        return False
    lock = FileLock(folder / _LOCK, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except OSError:  # somebody else's folder: it cannot be asked
        return False
    lock.release()
    return False


def state(folder: Path) -> dict[str, Any] | None:
    """The run's record as it is true now; None where there is none yet.

    A record that says `running` while nobody holds the lock was left by a process that died: it says `killed` here.
    """
    record = _read(folder)
    if record is None or record.get("status") != "running" or busy(folder):
        return record
    record = _read(folder)  # it may have ended between the first look and the question
    if record is None or record.get("status") != "running":
        return record
    return record | {"status": "killed", "exit_code": EXIT_CODES["killed"], "failure": DIED}


def correct(folder: Path, failure: str | None = None) -> dict[str, Any] | None:
    """Write into a half-written folder's record that its run was killed; its files stay. Returns the record."""
    record = state(folder)
    if record is not None and record.get("failure") == DIED:
        record |= {"failure": failure or DIED}
        notebook = folder / f"{record.get('slug')}.ipynb"
        record |= {"notebook": notebook.name} if notebook.is_file() else {}
        write_record(folder, record)
        with suppress(OSError):
            os.unlink(folder / _LOCK)
    return record


def by_id(parent: Path) -> dict[str, list[Path]]:
    """The folders of a notebook's runs by the run's id, the earliest first."""
    found: dict[str, list[tuple[int, Path]]] = {}
    try:
        names = os.listdir(parent)
    except OSError:
        return {}
    for name in names:
        if match := _NAME.fullmatch(name):
            found.setdefault(match[1], []).append((int(match[2] or 1), parent / name))
    return {id: [folder for _, folder in sorted(folders)] for id, folders in found.items()}


def best(folders: list[Path]) -> tuple[Path, dict[str, Any]] | None:
    """What became of a run that may have been tried several times: done if once, else running, else the last try."""
    tries = [(folder, record) for folder in folders if (record := state(folder)) is not None]
    for status in ("done", "running"):
        for folder, record in tries:
            if record["status"] == status:
                return folder, record
    return tries[-1] if tries else None


def _read(folder: Path) -> dict[str, Any] | None:
    try:
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and "status" in record else None
