"""Whether two runs of one notebook agree in what they say about a claim."""

import math
from typing import Any

from helpers.papers import Claim

_OPPOSITE = {"holds": "fails", "fails": "holds"}


def contradicts(one: str, other: str) -> bool:
    """Whether two verdicts exclude each other; `open` excludes none, since fewer units may leave it open."""
    return _OPPOSITE.get(one) == other


def disagreement(claim: Claim, committed: dict[str, Any], fresh: dict[str, Any] | None) -> str | None:
    """What a rerun says otherwise about a claim than the committed ledger, None if it may.

    The verdict must be the committed one where the committed interval, and the contrast to each control, is clear of
    its threshold by more than the claim's tolerance; nearer to it, only the opposite verdict is refused.

    Args:
        claim: the claim of the catalogue.
        committed: its entry in the committed ledger's JSON.
        fresh: its entry in the rerun's; None if there is none.
    """
    if fresh is None:
        return f"{claim.id} has no verdict any more; the committed one is {committed['verdict']}"
    old, new = committed["verdict"], fresh["verdict"]
    if old == new or (not contradicts(old, new) and _near(claim, committed)):
        return None
    reason = f" ({fresh['reason']})" if fresh.get("reason") else ""
    return f"{claim.id} {_shown(fresh)}{reason}, committed: {_shown(committed)}; the tolerance is {claim.tolerance:g}"


def _near(claim: Claim, row: dict[str, Any]) -> bool:
    """Whether an edge that decided the verdict lies within the tolerance of its threshold."""
    thresholds = [edge for edge in claim.test.region if math.isfinite(edge)]
    pairs = [(edge, threshold) for edge in row.get("interval") or () for threshold in thresholds]
    contrasts = [control.get("interval") for control in (row.get("controls") or {}).values()]
    pairs += [(edge, 0.0) for interval in contrasts for edge in interval or ()]
    return any(edge is not None and abs(edge - threshold) <= claim.tolerance for edge, threshold in pairs)


def _shown(row: dict[str, Any]) -> str:
    value, interval = row.get("value"), row.get("interval")
    parts = [row["verdict"]]
    parts += [f"at {value:.3g}"] if value is not None else []
    parts += [f"[{', '.join('open' if edge is None else f'{edge:.3g}' for edge in interval)}]"] if interval else []
    return " ".join(parts)
