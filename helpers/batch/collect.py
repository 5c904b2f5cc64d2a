"""A sweep as one tidy table: a row per run and claim, or a row per run, claim and unit. Works while the sweep runs."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import notebooks
from helpers.batch import store
from helpers.batch.folders import RUNS
from helpers.batch.plan import states

RUN = ["run", "slug", "status", "stale", "preset"]
CLAIM = ["claim", "kind", "value", "low", "high", "n", "unit", "verdict", "control", "control_value"]
COST = ["seconds", "peak_private_mb", "model_sha256", "folder"]
_NUMBERS = ["value", "low", "high", "control_value", "seconds", "peak_private_mb"]


@dataclass(frozen=True)
class Run:
    """A run of a sweep as it stands now: its entry in the plan, and what its folder tells."""

    id: str
    slug: str
    status: str
    stale: bool
    preset: str
    parameters: dict[str, Any]
    folder: Path | None
    record: dict[str, Any]

    @property
    def claims(self) -> list[dict[str, Any]]:
        """The claims of its ledger, if it is done."""
        if self.status != "done":
            return []
        ledger = self.record.get("ledger")
        if ledger is None and "ledger" not in self.record:  # a run from before records held it
            ledger = notebooks.ledger(self.folder / f"{self.slug}.ipynb")
        return ledger["claims"] if ledger else []


def gather(name: str | Path, runs_dir: Path = RUNS) -> list[Run]:
    """Every run of a sweep, those of earlier plans too.

    Raises:
        HookbookError: there is no such sweep.
    """
    folder = store.find(name, runs_dir)
    plan = store.read(folder)
    # the folder of all runs lies two above: a sweep that was copied elsewhere with its runs stays readable
    unstarted = "waiting" if store.live(folder) else "never ran"
    found = states([(run["slug"], run["id"]) for run in plan["runs"]], folder.parent.parent, unstarted)
    return [
        Run(
            run["id"],
            run["slug"],
            state.status,
            run["stale"],
            run["preset"],
            run["parameters"],
            state.folder,
            state.record,
        )
        for run, state in zip(plan["runs"], found, strict=True)
    ]


def results(name: str | Path, units: bool = False, runs_dir: Path = RUNS) -> pd.DataFrame:
    """The tidy table of a sweep; see `helpers.batch.results`.

    Columns: run, slug, status, stale, preset; a column per parameter; claim, kind, value, low, high, n, unit, verdict,
    control (the hardest), control_value; seconds, peak_private_mb, model_sha256, folder. A parameter that is called as
    one of these has `parameter_` before its name. A run that is not done has one row, without a claim.

    With `units` there is a row per unit: run, slug, stale, parameters, claim, and the columns of the claim's own rows.

    Raises:
        HookbookError: there is no such sweep.
    """
    runs = gather(name, runs_dir)
    return unit_table(runs) if units else table(runs)


def table(runs: list[Run]) -> pd.DataFrame:
    """A row per run and claim."""
    names = parameter_columns(runs)
    rows = []
    for run in runs:
        facts = {
            "run": run.id,
            "slug": run.slug,
            "status": run.status,
            "stale": run.stale,
            "preset": run.preset,
            **{names[name]: value for name, value in run.parameters.items()},
            "seconds": run.record.get("seconds"),
            "peak_private_mb": run.record.get("peak_private_mb"),
            "model_sha256": run.record.get("provenance", {}).get("model_sha256"),
            "folder": None if run.folder is None else str(run.folder),
        }
        rows += [facts | _claim(claim) for claim in run.claims] or [facts]
    # objects first: pandas would make 3.0 of a 3 that stands in one column with None
    frame = pd.DataFrame(rows, columns=[*RUN, *names.values(), *CLAIM, *COST], dtype=object)
    for name in names.values():
        frame[name] = typed(frame[name])
    kinds = {"stale": "bool", "n": "Int64"} | dict.fromkeys(_NUMBERS, "float64")
    return frame.astype({name: kinds.get(name, "string") for name in (*RUN, *CLAIM, *COST)})


def unit_table(runs: list[Run]) -> pd.DataFrame:
    """A row per run, claim and unit, as far as runs have left them; the claims' own columns follow the parameters."""
    names = parameter_columns(runs)
    frames = []
    for run in runs:
        for file in sorted((run.folder / "rows").glob(f"{run.slug}-*.parquet")) if run.folder else []:
            rows = pd.read_parquet(file)
            facts = {"run": run.id, "slug": run.slug, "status": run.status, "stale": run.stale}
            facts |= {names[name]: value for name, value in run.parameters.items()}
            facts["claim"] = file.stem.removeprefix(f"{run.slug}-")
            head = pd.DataFrame({name: [value] * len(rows) for name, value in facts.items()})
            frames.append(
                pd.concat([head, rows.rename(columns={name: f"rows_{name}" for name in facts if name in rows})], axis=1)
            )
    if not frames:
        return pd.DataFrame(columns=["run", "slug", "status", "stale", *names.values(), "claim", "value"])
    frame = pd.concat(frames, ignore_index=True)
    for name in names.values():
        frame[name] = typed(frame[name])
    mixed = [name for name in frame if frame[name].dtype == object]
    # units of one name may be numbers in one claim and words in another
    return frame.astype({name: "string" for name in mixed})


def parameter_columns(runs: list[Run]) -> dict[str, str]:
    """The column of each parameter, in the order of the notebooks."""
    taken = {*RUN, *CLAIM, *COST}
    names = dict.fromkeys(name for run in runs for name in run.parameters)
    return {name: f"parameter_{name}" if name in taken else name for name in names}


def typed(column: pd.Series) -> pd.Series:
    """A column with one type that parquet knows, None as missing; lists and mixed types become JSON text."""
    values = [value for value in column if not _missing(value)]
    kinds = {type(value) for value in values}
    for allowed, dtype in (({bool}, "boolean"), ({int}, "Int64"), ({int, float}, "Float64"), ({str}, "string")):
        if kinds <= allowed and (kinds or dtype == "string"):
            return pd.Series([None if _missing(value) else value for value in column], column.index, dtype)
    texts = [None if _missing(v) else v if isinstance(v, str) else json.dumps(v, default=repr) for v in column]
    return pd.Series(texts, column.index, "string")


def _claim(claim: dict[str, Any]) -> dict[str, Any]:
    low, high = claim.get("interval") or (None, None)
    unit = claim.get("unit")
    return {
        "claim": claim["id"],
        "kind": claim["kind"],
        "value": claim["value"],
        "low": low,
        "high": high,
        "n": claim["n"],
        "unit": unit if isinstance(unit, str) or unit is None else " × ".join(unit),
        "verdict": claim["verdict"],
        "control": claim["control"],
        "control_value": claim["control_value"],
    }


def _missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and value != value)
