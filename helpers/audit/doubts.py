"""What several runs tell about a claim and one ledger cannot: idle controls, and intervals that are too narrow."""

from math import isclose, sqrt
from typing import Any

from helpers.tables import number

_FEWEST_NULLS = 2  # on which a control must have been beaten before that is held against it
_FEWEST_RUNS = 4  # for a judgement on scatter
_LEVEL = 0.001  # how rarely independent units would scatter so widely
_T = 1.96  # half-width of an interval in standard errors; more with few units, which errs on the safe side


def idle_controls(trained: dict[str, Any], nulls: dict[str, dict[str, Any]]) -> list[str]:
    """Sentences about controls that could not have failed, as far as these runs can tell.

    Args:
        trained: the claim's entry in the default run's ledger.
        nulls: null -> its entry there.
    """
    found = []
    for name, control in trained["controls"].items():
        others = {null: row["controls"].get(name) for null, row in nulls.items()}
        others = {null: other for null, other in others.items() if other and other["contrast"] is not None}
        if control["value"] is None or len(others) < _FEWEST_NULLS:
            continue
        asked = ", ".join(f"{null}:" for null in others)
        if all(isclose(other["value"], control["value"], abs_tol=1e-12) for other in others.values()):
            found.append(
                f"the control {name} is {number(control['value'])} on every model ({asked}): it says no more than a "
                "threshold would"
            )
        elif control["beaten"] and all(other["beaten"] for other in others.values()):
            found.append(
                f"the control {name} is beaten on every null too ({asked}): nothing shows that it could have failed"
            )
    return found


def scatter(rows: list[dict[str, Any]]) -> list[str]:
    """A sentence where other seeds and other units move the value further than the interval allows.

    The usual reason is that the units are not independent (tokens of one prompt), or that what differs from run to run
    (a fit, a prompt) is no unit of the claim.

    Args:
        rows: the claim's entries in the ledgers of the default run, its seeds and its redraws.
    """
    from scipy.stats import chi2  # here: it takes a second to import

    rows = [row for row in rows if row["interval"] is not None]
    if len(rows) < _FEWEST_RUNS:
        return []
    values = [row["value"] for row in rows]
    mean = sum(values) / len(values)
    error = sum(((row["interval"][1] - row["interval"][0]) / 2 / _T) ** 2 for row in rows) / len(rows)
    spread = sum((value - mean) ** 2 for value in values)
    freedom = len(rows) - 1
    if not error or chi2.sf(spread / error, freedom) >= _LEVEL:
        return []
    return [
        f"over {len(rows)} seeds and redraws the value moves {sqrt(spread / error / freedom):.1f} times as far as its "
        "interval allows: its units are not independent, or what was drawn anew is none of them"
    ]
