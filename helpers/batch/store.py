"""The folder of a sweep: its plan, its events, and the lock that keeps a second one away."""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from helpers import notebooks
from helpers.batch.folders import RUNS
from helpers.batch.plan import SweepPlan, base
from helpers.errors import HookbookError
from helpers.fingerprint import shared


def find(name: str | Path, runs_dir: Path = RUNS) -> Path:
    """The folder of a sweep, given by name or as the folder itself.

    Raises:
        HookbookError: there is none; names the nearest.
    """
    for folder in (runs_dir / "sweeps" / name, Path(name)):
        if (folder / "sweep.json").is_file():
            return folder.resolve()
    known = sorted(path.parent.name for path in (runs_dir / "sweeps").glob("*/sweep.json"))
    near = get_close_matches(str(name), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known[:8]) or 'none yet'}."
    raise HookbookError(f"There is no sweep {str(name)!r}: {hint}")


def read(folder: Path) -> dict[str, Any]:
    """The sweep's plan as it was last written: name, generation, and its runs, those of earlier plans too.

    Raises:
        HookbookError: it cannot be read.
    """
    try:
        return json.loads((folder / "sweep.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HookbookError(f"{folder / 'sweep.json'} cannot be read ({error}): start the sweep again.") from None


def write(plan: SweepPlan) -> dict[str, Any]:
    """Write the plan beside what earlier plans of that name left, and return it.

    A run that is no longer in the plan stays in the file. It is `stale` when its notebook, its model or something
    else that it depends on has changed since; a run that the grid merely leaves out now is not.
    """
    bases = {slug: base(notebook) for slug, notebook in plan.notebooks.items()}
    plan.folder.mkdir(parents=True, exist_ok=True)
    with FileLock(plan.folder / ".plan-lock"):  # shards of one sweep may start at the same time
        file = plan.folder / "sweep.json"
        old = read(plan.folder) if file.is_file() else {"generation": 0, "runs": []}
        current = {(run.slug, run.fingerprint.id) for run in plan.runs}
        points = {(run.slug, json.dumps(run.parameters, sort_keys=True)) for run in plan.runs}
        before = {(run["slug"], run["id"]): run for run in old["runs"]}
        if current == {key for key, run in before.items() if run["generation"] == old["generation"]}:
            return old
        generation = old["generation"] + 1
        runs = [
            {
                "id": run.fingerprint.id,
                "slug": run.slug,
                "preset": run.preset,
                "parameters": run.parameters,
                "generation": generation,
                "base": bases[run.slug],
                "stale": False,
            }
            for run in plan.runs
        ]
        for key, run in before.items():
            if key not in current:
                point = run["slug"], json.dumps(run["parameters"], sort_keys=True)
                changed = run["base"] != bases[run["slug"]] if run["slug"] in bases else run["stale"]
                runs.append(run | {"stale": changed or point in points})
        written = {"name": plan.name, "generation": generation, "written": now(), "runs": runs}
        notebooks.write_text(file, json.dumps(written, ensure_ascii=False) + "\n")
        return written


def snapshot(plan: SweepPlan) -> dict[str, Path]:
    """Copies of the notebooks as they were planned: an edit while the sweep runs must not change what an id stands for.

    Raises:
        OSError: they cannot be written.
        HookbookError: a notebook was edited meanwhile.
    """
    copies = {}
    for slug, notebook in plan.notebooks.items():
        copies[slug] = plan.folder / "notebooks" / base(notebook) / f"{slug}.ipynb"
        if not copies[slug].is_file():
            copies[slug].parent.mkdir(parents=True, exist_ok=True)
            beside = copies[slug].with_suffix(f".{os.getpid()}.part")
            shutil.copyfile(notebook.path, beside)
            beside.replace(copies[slug])
            if shared(copies[slug]).hard != notebook.shared.hard:
                copies[slug].unlink()
                raise HookbookError(f"{notebook.path.name} was edited while the sweep was planned: start it again.")
    return copies


@contextmanager
def alone(plan: SweepPlan, shard: str) -> Iterator[None]:
    """Hold the sweep's lock, for this shard, while it runs.

    Raises:
        HookbookError: another process holds it.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    lock, owner = FileLock(plan.folder / f".lock-{shard}"), plan.folder / f"process-{shard}.json"
    try:
        lock.acquire(timeout=1, poll_interval=0.05)  # somebody may only be asking whether the sweep runs
    except Timeout:
        raise HookbookError(
            f"The sweep {plan.name} is being run already{_by_whom(owner)}: wait for it, or end it first."
        ) from None
    try:
        facts = {"pid": os.getpid(), "host": socket.gethostname(), "since": now()}
        notebooks.write_text(owner, json.dumps(facts) + "\n")
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


def live(folder: Path) -> bool:
    """Whether some process runs the sweep, or a shard of it, now."""
    for file in folder.glob(".lock-*"):
        lock = FileLock(file)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        except OSError:
            continue
        lock.release()
    return False


class Events:
    """The sweep's diary, a line of JSON for each thing that happened; also what a report can watch."""

    def __init__(self, folder: Path, shard: str):
        self._path = folder / f"events-{shard}.jsonl"

    def add(self, event: str, **facts: Any) -> None:
        """Append a line.

        Raises:
            OSError: it cannot be written.
        """
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"time": now(), "event": event, **facts}, ensure_ascii=False) + "\n")


def now() -> str:
    """The time as records state it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _by_whom(owner: Path) -> str:
    try:
        facts = json.loads(owner.read_text(encoding="utf-8"))
        return f" by process {facts['pid']} on {facts['host']}"
    except (OSError, ValueError, KeyError):
        return ""
