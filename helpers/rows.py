"""The rows of a claim, one per independent unit or per cell of two crossed ones, checked before they are used."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from helpers.errors import HookbookError
from helpers.papers import Claim


def units_of(claim: Claim) -> list[str]:
    """The columns that name a row's units: the claim's unit names with underscores for spaces."""
    return [name.replace(" ", "_") for name in claim.units]


def tidy(claim: Claim, rows: pd.DataFrame | Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows as a frame with one row per unit (or cell of two crossed units) and the claim's columns in order.

    Raises:
        HookbookError: a column is missing, unknown or no number; a value is not finite; a unit has several rows.
    """
    frame = rows if isinstance(rows, pd.DataFrame) else _frame(claim, rows)
    units, numbers = units_of(claim), ["value", *claim.controls]
    expected = [*units, *numbers]
    if missing := [name for name in expected if name not in frame]:
        raise HookbookError(f"{claim.id}: the rows lack the column {missing[0]!r}; it needs {', '.join(expected)}.")
    if unknown := [str(name) for name in frame if name not in [*expected, "denominator"]]:
        hint = f"it needs {', '.join(expected)} and takes denominator"
        raise HookbookError(f"{claim.id}: no use is known for the column {unknown[0]!r}; {hint}. Drop or rename it.")
    if frame.empty:
        raise HookbookError(f"{claim.id}: there are no rows; say why with ledger.not_tested({claim.id!r}, reason).")
    numbers += ["denominator"] * ("denominator" in frame)
    frame = frame[[*units, *numbers]].reset_index(drop=True)
    if frame[units].isna().any(axis=None):
        raise HookbookError(f"{claim.id}: some rows do not name their unit: fill in {' and '.join(units)}.")
    # lists, tuples and mixed types can neither be compared nor stored
    frame = frame.astype({unit: str for unit in units if frame[unit].dtype == object})
    for name in numbers:
        frame[name] = _column(claim, frame[name])
    if repeated := int(frame.duplicated(units).sum()):
        which = ", ".join(f"{unit}={frame[unit][frame.duplicated(units)].iloc[0]}" for unit in units)
        cure = f"tokens or rows of one {'cell' if len(units) > 1 else 'unit'} must be averaged first"
        raise HookbookError(f"{claim.id}: {repeated} rows repeat a unit ({which}, for one): {cure}.")
    return frame


def _frame(claim: Claim, columns: Mapping[str, Any]) -> pd.DataFrame:
    try:
        return pd.DataFrame({name: _listed(column) for name, column in columns.items()})
    except ValueError as error:
        raise HookbookError(f"{claim.id}: the rows' columns must be lists of one length: {error}.") from None


def _listed(column: Any) -> Any:
    return column.detach().cpu().numpy() if hasattr(column, "detach") else column


def _column(claim: Claim, column: pd.Series) -> pd.Series:
    try:
        values = column.astype(float)
    except (TypeError, ValueError):
        raise HookbookError(f"{claim.id}: the column {column.name!r} must hold numbers.") from None
    bad = int((~np.isfinite(values)).sum())
    undefined = column.name in claim.controls and values.isna().all()
    if bad and not undefined:
        cure = "drop those units openly, or say ledger.not_tested"
        if column.name in claim.controls:
            cure = "drop those units openly, or make the control undefined (NaN) on all"
        raise HookbookError(f"{claim.id}: {bad} of {len(values)} entries of {column.name!r} are not finite: {cure}.")
    return values
