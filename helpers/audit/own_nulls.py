"""Nulls that a notebook measures itself: a control that is the claim over again, fitted or found on permuted data.

An untrained model that cannot do the task leaves a causal effect undefined. The same edit with a direction from
shuffled labels, or the same search on permuted effects, is the null of such a claim on the trained model. It is a
column of the claim's rows; here it takes the place of the value, and has to pass what the value had to.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.batch.collect import Run
from helpers.papers import Claim
from helpers.verdicts import judge, plain


def own_nulls(
    claims: Sequence[Claim], named: Mapping[str, Sequence[str]], run: Run | None
) -> dict[str, dict[str, dict[str, Any] | None]]:
    """Claim -> null -> its entry, as the ledger's JSON would have it; None where the run left no rows.

    Args:
        claims: of the paper.
        named: claim -> those of its controls that are nulls, as the catalogue says.
        run: the default run.
    """
    stated = {claim.id: claim for claim in claims}
    return {id: {control: _entry(stated[id], control, run) for control in controls} for id, controls in named.items()}


def _entry(claim: Claim, control: str, run: Run | None) -> dict[str, Any] | None:
    path = run.folder / "rows" / f"{run.slug}-{claim.id}.parquet" if run and run.folder else Path()
    if not path.is_file():
        return None
    return in_its_place(claim, control, pd.read_parquet(path), int(run.parameters.get("seed", 0)))


def in_its_place(claim: Claim, control: str, rows: pd.DataFrame, seed: int = 0) -> dict[str, Any]:
    """The entry of a claim whose value is what one of its controls was; the other controls stay.

    Args:
        claim: as the catalogue states it.
        control: one of its controls.
        rows: of the claim, as the notebook gave them to its ledger.
        seed: of the bootstrap.
    """
    others = {name: text for name, text in claim.controls.items() if name != control}
    claim = claim.model_copy(update={"controls": others})
    if rows[control].isna().all():
        reason = f"The control {control} is undefined."
        return {"verdict": "open", "value": None, "interval": None, "reason": reason, "gate": None, "controls": {}}
    return plain(judge(claim, rows.drop(columns="value").rename(columns={control: "value"}), seed).as_json())
