"""The plan of a sweep: its runs with their ids, before any kernel starts, and what has become of each so far."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from helpers import notebooks
from helpers.batch import folders
from helpers.batch.planned import Notebook, Plan, label
from helpers.batch.spec import Spec, check_name
from helpers.errors import HookbookError
from helpers.fingerprint import digest

_QUIET = Console(quiet=True)


@dataclass(frozen=True)
class SweepPlan:
    """The runs of a sweep, each once, in the order of its grid."""

    name: str
    spec: Spec
    runs_dir: Path
    notebooks: dict[str, Notebook]
    runs: list[Plan]

    @property
    def folder(self) -> Path:
        """Where the sweep itself is recorded; the runs lie with all other runs of their notebook."""
        return self.runs_dir / "sweeps" / self.name

    def shard(self, number: int, of: int) -> list[Plan]:
        """Every `of`-th run, beginning with run `number`; together the shards are the plan."""
        return self.runs[number - 1 :: of]


def planned(spec: Spec, runs_dir: Path, console: Console = _QUIET) -> SweepPlan:
    """Check all runs of a sweep as one run is checked, and name them.

    Raises:
        HookbookError: a notebook, preset, parameter, value or model that a run could not have.
    """
    try:
        return _planned(spec, runs_dir, console)
    except HookbookError as error:
        raise spec.blame(error) from None


def _planned(spec: Spec, runs_dir: Path, console: Console) -> SweepPlan:
    found: dict[str, Notebook] = {}
    runs: dict[tuple[str, str], Plan] = {}
    given, ready, typed = spec.given(), set(), []
    for one in spec.notebooks:
        notebook = Notebook.at(one)
        if found.setdefault(notebook.slug, notebook).path != notebook.path:
            raise HookbookError(f"Two notebooks are called {notebook.slug}: rename one, or make two sweeps of them.")
        for point in given:
            values, changed = notebook.values(point, spec.preset)
            model = notebook.slug, values.get("model_name"), values.get("revision")
            if model not in ready:
                notebook.fetch(values, console)
                ready.add(model)
            print_ = notebook.shared.complete(values)
            plan = Plan(notebook.slug, notebook.path, label(point, spec.preset), values, changed, print_)
            if runs.setdefault((notebook.slug, print_.id), plan) is plan:
                typed.append((notebook.slug, {name: values[name] for name in point}))
    return SweepPlan(check_name(spec.name or _name(spec, typed)), spec, runs_dir, found, list(runs.values()))


def base(notebook: Notebook) -> str:
    """A hash of what the results of all runs of a notebook depend on, its parameters apart."""
    return digest(json.dumps(notebook.shared.hard, sort_keys=True))[:12]


@dataclass(frozen=True)
class State:
    """What has become of a run of a plan: a status of the record, `running`, or `waiting` before it has started."""

    status: str
    folder: Path | None
    record: dict[str, Any]


def states(runs: list[tuple[str, str]], runs_dir: Path, unstarted: str = "waiting") -> list[State]:
    """What has become of the runs, given as slug and id, as their folders tell."""
    by_slug = {slug: folders.by_id(runs_dir / slug) for slug in {slug for slug, _ in runs}}
    found = []
    for slug, id in runs:
        tried = folders.best(by_slug[slug].get(id, []))
        found.append(State(unstarted, None, {}) if tried is None else State(tried[1]["status"], *tried))
    return found


def preview(plan: SweepPlan, runs: list[Plan], workers: int) -> str:
    """What `--dry-run` prints: how many runs, how many are done, how the others ended, and how long it may take."""
    found = states([(run.slug, run.fingerprint.id) for run in runs], plan.runs_dir)
    counts = Counter(state.status for state in found)
    new = counts.pop("waiting", 0)
    lines = [f"{plan.name}: {len(runs)} run{'s' * (len(runs) != 1)} of {', '.join(plan.notebooks)}"]
    lines += [f"{counts.pop('done', 0)} done already, {new} not begun"]
    if counts:
        lines[-1] += ", " + ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
    left = [run.slug for run, state in zip(runs, found, strict=True) if state.status != "done"]
    each = {slug: _seconds(plan.notebooks[slug], runs, found) for slug in set(left)}
    if None in each.values():
        unknown = ", ".join(sorted(slug for slug, seconds in each.items() if seconds is None))
        lines.append(f"time left: unknown, as no finished run of {unknown} is recorded")
    elif left:
        total = sum(each[slug] for slug in left) / min(workers, len(left))
        lines.append(f"time left: about {span(total)} with {workers} worker{'s' * (workers != 1)}")
    return "\n".join(lines)


def span(seconds: float) -> str:
    """A time as people say it: 40 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _seconds(notebook: Notebook, runs: list[Plan], found: list[State]) -> float | None:
    """What a run takes: the mean of this plan's finished runs, else what the committed notebook says of itself."""
    taken = [
        state.record["seconds"]
        for run, state in zip(runs, found, strict=True)
        if run.slug == notebook.slug and state.status == "done" and state.record.get("seconds")
    ]
    if taken:
        return sum(taken) / len(taken)
    return notebooks.read(notebook.path).metadata.get("hookbook", {}).get("provenance", {}).get("seconds")


def _name(spec: Spec, points: list[tuple[str, dict[str, Any]]]) -> str:
    """A name that the same notebooks with the same points always get, so that the same command resumes."""
    slugs = list(dict.fromkeys(slug for slug, _ in points))
    short = slugs[0] if len(slugs) == 1 else f"{slugs[0]}-and-{len(slugs) - 1}-more"
    texts = sorted(json.dumps(point, sort_keys=True) for point in points)
    return f"{short}-{digest(json.dumps([spec.preset, texts]))[:8]}"
