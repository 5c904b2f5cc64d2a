"""A value with its interval on a line where the tested region is shaded: HTML that takes its colours from the page.

A page may hold thousands of them: the markup is kept short, and the numbers are told beside it in words.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from helpers.tables import number, span

_MARGIN = 0.06  # of what an axis shows, left free at both ends


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`."""

    low: float
    high: float

    @classmethod
    def over(cls, region: list[float | None], rows: Iterable[dict[str, Any] | None], *others: float | None) -> "Scale":
        """The axis that has room for the region's edges, for every value and interval, and for other numbers."""
        shown = [*region, *others]
        for row in rows:
            if row:
                shown += [row.get("value"), *(row.get("interval") or [])]
        shown = [float(one) for one in shown if one is not None and math.isfinite(one)]
        low, high = (min(shown), max(shown)) if shown else (0.0, 1.0)
        margin = _MARGIN * (high - low or 1)
        return cls(low - margin, high + margin)

    def place(self, value: float) -> float:
        """Where a value stands, in percent from the left, within the axis."""
        return round(100 * min(1, max(0, (value - self.low) / (self.high - self.low))), 2)


def strip(
    scale: Scale,
    region: list[float | None],
    row: dict[str, Any] | None,
    look: str,
    *,
    paper: float | None = None,
    dots: Iterable[float] = (),
) -> str:
    """One line: the shaded region, the interval, the value as a dot, the paper's value as a dashed line.

    Only for those who see: `told` says the same and stands beside it.

    Args:
        scale: the axis, which lines of one claim share.
        region: both ends of what was tested; None or infinite where it is open.
        row: what was found, with `value` and `interval`.
        look: a class of the style sheet: a verdict, or `null`.
        paper: the paper's own value.
        dots: further values, drawn small.
    """
    low, high = (math.inf if edge is None else edge for edge in region)
    left = scale.place(low if math.isfinite(low) else scale.low)
    right = scale.place(high if math.isfinite(high) else scale.high)
    parts = []
    if paper is not None:
        parts.append(f'<i class="paper" style="left:{scale.place(paper):g}%"></i>')
    if places := "".join(f"M{scale.place(dot):g} 0h0" for dot in dots):  # a line of no length with round ends is a dot
        parts.append(f'<svg viewBox="0 -1 100 2" preserveAspectRatio="none"><path d="{places}"/></svg>')
    value, interval = (row.get("value"), row.get("interval")) if row else (None, None)
    if interval:
        ends = scale.place(interval[0]), scale.place(interval[1])
        parts.append(f'<i class="interval" style="left:{ends[0]:g}%;width:{ends[1] - ends[0]:.4g}%"></i>')
    if value is not None:
        parts.append(f'<i class="value" style="left:{scale.place(value):g}%"></i>')
    place = f"--a:{left:g}%;--b:{right - left:.4g}%"
    return f'<span class="strip {look}" aria-hidden="true" style="{place}">{"".join(parts)}</span>'


def told(row: dict[str, Any] | None) -> str:
    """The value and its interval in words."""
    if row is None or row.get("value") is None:
        return "no value"
    return f"{number(row['value'])} {span(row.get('interval'))}".rstrip()


def look(verdict: str | None) -> str:
    """The style sheet's class for a verdict."""
    return (verdict or "none").replace(" ", "-")
