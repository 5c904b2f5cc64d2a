"""From rows per unit to a verdict: the rules that `Ledger.check` applies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from math import inf
from typing import Any, Literal

import numpy as np
import pandas as pd

from helpers.errors import HookbookError
from helpers.papers import CHECKED_KINDS, Claim
from helpers.rows import units_of
from helpers.stats import FEWEST, Interval, crossed_interval, mean_interval, ratio_interval, units_needed
from helpers.tables import number, sentence, span

Verdict = Literal["holds", "fails", "open", "not tested", "out of scope", "checked"]


@dataclass(frozen=True)
class Control:
    """A control on the claim's own units: its value and the paired contrast, value minus control.

    Both are None where the control is undefined (an untrained model that cannot do the task). `beaten` says whether the
    contrast is clear of zero in the claim's direction.
    """

    value: float | None = None
    contrast: Interval | None = None
    beaten: bool = False


_TOO_MANY = 50  # times the units at hand: a plan that nobody would carry out


@dataclass(frozen=True, repr=False)
class Row:
    """What was found for a claim: a row of the ledger, and shown by itself as a sentence."""

    claim: Claim
    verdict: Verdict
    reason: str
    interval: Interval | None = None
    counts: dict[str, int] = field(default_factory=dict)  # unit name -> number of such units
    controls: dict[str, Control] = field(default_factory=dict)
    hardest: str | None = None  # the control that comes nearest to the value, its uncertainty allowed for
    gate: str | None = None  # why a gate stopped the claim, or would have

    @property
    def value(self) -> float | None:
        """The statistic, in its own unit of measurement."""
        return self.interval and self.interval.value

    @property
    def low(self) -> float | None:
        """The interval's lower end."""
        return self.interval and self.interval.low

    @property
    def high(self) -> float | None:
        """The interval's upper end."""
        return self.interval and self.interval.high

    @property
    def n(self) -> int | None:
        """The number of independent units; of two crossed ones, the scarcer."""
        return self.interval and self.interval.n

    @property
    def control(self) -> float | None:
        """The value of the hardest control."""
        return self.controls[self.hardest].value if self.hardest else None

    def as_json(self) -> dict[str, Any]:
        """The claim's entry in the ledger's JSON; numbers that are not finite become null."""
        claim, paper = self.claim, self.claim.paper
        entry = {
            "id": claim.id,
            "kind": claim.kind,
            "statement": claim.statement,
            "statistic": claim.statistic,
            "unit": claim.unit,
            "test": claim.test.describe(),
            "region": claim.test.region,
            "paper_value": paper.value,
            "paper_says": paper.model_dump(exclude={"value"}),
            "value": self.value,
            "interval": _ends(self.interval),
            "method": self.interval and self.interval.method,
            "control": self.hardest,
            "control_value": self.control,
            "controls": {
                name: {
                    "value": control.value,
                    "contrast": control.contrast and control.contrast.value,
                    "interval": _ends(control.contrast),
                    "beaten": control.beaten,
                }
                for name, control in self.controls.items()
            },
            "n": self.n,
            "units": self.counts,
            "verdict": self.verdict,
            "reason": self.reason,
            "gate": self.gate,
            "threshold_from": claim.threshold_from,
            "seen_before": claim.seen_before,
            "tolerance": claim.tolerance,
        }
        return plain(entry)

    def __repr__(self) -> str:
        return sentence(self.as_json())

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>"


def plain(value: Any) -> Any:
    """Turn what stands in a ledger into strict JSON: NaN and infinities become null, unknown types text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def judge(claim: Claim, frame: pd.DataFrame, seed: int = 0) -> Row:
    """Measure the claim on rows from `rows.tidy`, and give the verdict that follows by rule.

    Raises:
        HookbookError: a value lies outside the claim's bounds.
    """
    try:
        interval = _interval(claim, frame, frame["value"], claim.bounds, seed)
        controls = {name: _control(claim, frame, name, seed) for name in claim.controls}
    except HookbookError as error:
        raise HookbookError(f"{claim.id}: {error}") from None
    counts = {name: int(frame[unit].nunique()) for name, unit in zip(claim.units, units_of(claim), strict=True)}
    defined = {name: control for name, control in controls.items() if control.contrast}
    hardest = min(defined, key=lambda name: _margin(claim, defined[name].contrast), default=None)
    verdict, reason = _verdict(claim, frame["value"], interval, controls)
    return Row(claim, verdict, reason, interval, counts, controls, hardest)


def _verdict(claim: Claim, values: pd.Series, interval: Interval, controls: dict[str, Control]) -> tuple[Verdict, str]:
    (low, high), test, n = claim.test.region, claim.test.describe(), interval.n
    if claim.kind == "identity":
        return _identity(claim, values, interval)
    if n < (needed := max(FEWEST, claim.n_min)):
        few = " of the scarcer kind" if len(claim.units) > 1 else ""
        return "not tested", f"{n} units{few}, and at least {needed} are needed."
    if interval.low is None:
        return "open", f"There is {interval.method}."
    if interval.high < low or interval.low > high:
        return "fails", f"The interval lies wholly outside {test}."
    lacking = []
    if interval.low < low or interval.high > high:
        lacking.append(f"The interval straddles the edge of {test}; {_plan(claim, interval, (low, high))}.")
    unbeaten = {name: control for name, control in controls.items() if control.contrast and not control.beaten}
    lacking += [_unbeaten(claim, name, control.contrast) for name, control in unbeaten.items()]
    if lacking:
        return "open", " ".join(lacking)
    undefined = [name for name, control in controls.items() if control.contrast is None]
    if controls and len(undefined) == len(controls):
        return "open", f"No control is defined here ({', '.join(undefined)}): name a second one."
    if claim.kind in CHECKED_KINDS:
        return "checked", f"The interval lies inside {test}."
    aside = f" ({', '.join(undefined)}: undefined here)" if undefined else ""
    return "holds", f"The interval lies inside {test}, and every control is beaten{aside}."


def _identity(claim: Claim, values: pd.Series, interval: Interval) -> tuple[Verdict, str]:
    """An identity must hold on every unit, where a mean could hide the one that breaks it."""
    (low, high), test = claim.test.region, claim.test.describe()
    if "n_min" in claim.model_fields_set and interval.n < claim.n_min:
        return "not tested", f"{interval.n} units, and at least {claim.n_min} are needed."
    outside = values[(values < low) | (values > high)]
    if len(outside):
        return "fails", f"{len(outside)} of {len(values)} rows lie outside {test}, such as {number(outside.iloc[0])}."
    return "checked", f"Each of the {len(values)} values lies inside {test}."


def _unbeaten(claim: Claim, name: str, contrast: Interval) -> str:
    found = f"The control {name!r} is not beaten: contrast {number(contrast.value)}"
    if contrast.low is None:
        return f"{found}, {contrast.method}."
    found += f" {span((contrast.low, contrast.high))}"
    if _sign(claim) * contrast.value <= 0:
        return f"{found}, which has the wrong sign."
    return f"{found}; {_plan(claim, contrast, (0, inf) if claim.direction == 'above' else (-inf, 0))}."


def _plan(claim: Claim, interval: Interval, region: tuple[float, float]) -> str:
    units = units_needed(interval, region)
    if not units or units > _TOO_MANY * interval.n:
        return "the estimate lies so near the edge that more units would hardly decide it"
    return f"about {units:,} {'units' if len(claim.units) == 1 else 'units of each kind'} would settle it"


def _control(claim: Claim, frame: pd.DataFrame, name: str, seed: int) -> Control:
    if frame[name].isna().all():
        return Control()
    value = _interval(claim, frame, frame[name], claim.bounds, seed).value
    bounds = claim.bounds and (claim.bounds[0] - claim.bounds[1], claim.bounds[1] - claim.bounds[0])
    contrast = _interval(claim, frame, frame["value"] - frame[name], bounds, seed)
    return Control(value, contrast, contrast.low is not None and _margin(claim, contrast) > 0)


def _interval(
    claim: Claim, frame: pd.DataFrame, values: pd.Series, bounds: tuple[float, float] | None, seed: int
) -> Interval:
    denominators = frame["denominator"] if "denominator" in frame else None
    if len(units := units_of(claim)) == 2:
        first, second = (frame[unit] for unit in units)
        return crossed_interval(values, first, second, denominators=denominators, bounds=bounds)
    if denominators is not None:
        return ratio_interval(values, denominators, bounds=bounds, seed=seed)
    return mean_interval(values, bounds=bounds, seed=seed)


def _sign(claim: Claim) -> int:
    return 1 if claim.direction == "above" else -1


def _margin(claim: Claim, contrast: Interval) -> float:
    """By how much a control is surely beaten: the contrast's nearer end, or its value where it has no interval."""
    if contrast.low is None:
        return _sign(claim) * contrast.value
    return contrast.low if claim.direction == "above" else -contrast.high


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None or interval.low is None else [interval.low, interval.high]
