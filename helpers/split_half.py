"""How well verdicts can agree at all: between two models and within each, on disjoint halves of the units."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from helpers.errors import HookbookError
from helpers.papers import CHECKED_KINDS, Claim, catalogue
from helpers.rows import tidy, units_of
from helpers.stats import FEWEST
from helpers.verdicts import judge

HALVINGS = 10


@dataclass(frozen=True)
class Agreement:
    """Shares of equal verdicts over claims and halvings; `claims` names those that had units enough."""

    between: float
    within_first: float
    within_second: float
    claims: list[str]

    def __str__(self) -> str:
        return (
            f"Split-half ceiling ({', '.join(self.claims)}): on disjoint halves of the units {self.between:.0%} of the "
            f"verdicts agree between the models, {self.within_first:.0%} within the first, {self.within_second:.0%} "
            "within the second; two models can hardly agree more than each with itself."
        )


def finished_runs(model: str, folder: Path) -> dict[str, dict[str, Any]]:
    """The ledger of the newest finished run of each paper on a model, with `run` and the folder of its rows.

    Raises:
        HookbookError: the folder holds no finished run of that model.
    """
    found: dict[str, dict[str, Any]] = {}
    for path, record in sorted(_records(folder), key=lambda pair: pair[1].get("started") or ""):
        ledger = record.get("ledger")
        if record.get("status") == "done" and ledger and ledger["model"] == model:
            found[record["slug"]] = {**ledger, "run": {"parameters": record.get("parameters")}, "folder": path.parent}
    if not found:
        raise HookbookError(f"{folder} holds no finished run on {model}: run the notebooks on it first.")
    return found


def agreement(slug: str, first: Path, second: Path) -> Agreement | None:
    """Judge halves of the units of each claim that both runs measured; None where no claim has units enough.

    The half of one run is compared with the other half of the same run, and with the other half of the other run; where
    both have the same units, the halves are the same. Of crossed units the more plentiful one is halved.
    """
    scores, used = [], []
    for claim in catalogue()[slug].claims if slug in catalogue() else ():
        frames = [_frame(claim, folder / "rows" / f"{slug}-{claim.id}.parquet") for folder in (first, second)]
        if claim.kind in CHECKED_KINDS or any(frame is None or not _enough(claim, frame) for frame in frames):
            continue
        used.append(claim.id)
        for halving in range(HALVINGS):
            (a, a_rest), (b, b_rest) = ([_verdict(claim, half) for half in _halves(claim, f, halving)] for f in frames)
            scores.append((a == b_rest, a == a_rest, b == b_rest))
    return Agreement(*np.mean(scores, axis=0), claims=used) if used else None


def _records(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in folder.glob("*/*/run.json"):
        try:
            yield path, json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # half-written by a run that was killed
            continue


def _frame(claim: Claim, path: Path) -> pd.DataFrame | None:
    """The stored rows of a claim; None where it was not measured, or other columns than now."""
    try:
        return tidy(claim, pd.read_parquet(path))
    except (OSError, HookbookError):
        return None


def _enough(claim: Claim, frame: pd.DataFrame) -> bool:
    counts = sorted(frame[unit].nunique() for unit in units_of(claim))
    return min(counts[-1] // 2, *counts[:-1], counts[-1]) >= max(FEWEST, claim.n_min)


def _halves(claim: Claim, frame: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    unit = max(units_of(claim), key=lambda name: frame[name].nunique())
    names = np.random.default_rng(seed).permutation(sorted(frame[unit].unique()))
    chosen = frame[unit].isin(names[: len(names) // 2])
    return frame[chosen], frame[~chosen]


def _verdict(claim: Claim, frame: pd.DataFrame) -> str:
    return judge(claim, frame.reset_index(drop=True)).verdict
