"""Rows of ledgers as a run would store them, made from a few numbers by the verdicts' own rules."""

import copy
import json
from pathlib import Path

import numpy as np
import pandas as pd
from catalogue_entries import CLAIM, STANDS

from helpers.papers import Claim, Paper
from helpers.verdicts import judge


def claim(**fields) -> Claim:
    return Claim.model_validate({**copy.deepcopy(CLAIM), "bounds": None, **fields})


def paper(*claims: Claim, slug: str = "some-paper") -> Paper:
    entry = {"slug": slug, **STANDS, "claims": [one.model_dump(exclude_none=True) for one in claims]}
    return Paper.model_validate(entry)


def spread(mean: float, deviation: float, n: int) -> np.ndarray:
    """n numbers of exactly that mean and standard deviation, symmetric about the mean."""
    x = np.linspace(-1, 1, n)
    return mean + deviation * (x - x.mean()) / x.std(ddof=1)


def row(of: Claim, values: np.ndarray, **controls: np.ndarray) -> dict:
    """The claim's entry in a ledger's JSON; values [unit], or [first unit, second unit] where two are crossed."""
    names = [unit.replace(" ", "_") for unit in of.units]
    columns = dict(zip(names, (index.ravel() for index in np.indices(values.shape)), strict=True))
    columns |= {"value": values.ravel()} | {name: control.ravel() for name, control in controls.items()}
    return judge(of, pd.DataFrame(columns)).as_json()


def ledger(rows: list[dict], model: str = "toy", **fields) -> dict:
    return {"paper": "some-paper", "model": model, "preset": "evidence", "claims": rows, "not_claimed": [], **fields}


def keep(folder: Path, stored: dict, slug: str = "some-paper") -> Path:
    """File a ledger as an evidence run would."""
    path = folder / stored["model"].replace("/", "--") / f"{slug}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(stored), encoding="utf-8")
    return path
