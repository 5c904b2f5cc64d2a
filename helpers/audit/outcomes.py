"""What became of a claim on a null, and what its nulls say together: rules on rows of ledgers."""

from typing import Any, Literal

Outcome = Literal["failed", "passed", "undefined", "gate-stopped", "not run"]


def positive(row: dict[str, Any]) -> bool:
    """Whether the claim holds on the default run, on a model that can do the task."""
    return row["verdict"] == "holds" and not row.get("gate")


def of_null(row: dict[str, Any] | None) -> Outcome:
    """What the row of a claim on a null means.

    A null that passes has passed, whatever its gate said. One that does not is a failure only where the statistic is
    defined and the model could do the task: else the claim was never in danger, and another null has to be asked.

    Args:
        row: the claim's entry in the ledger's JSON; None where the run did not end as done.
    """
    if row is None:
        return "not run"
    if row["verdict"] == "holds":
        return "passed"
    if row["verdict"] == "not tested" and row["value"] is None:
        return "gate-stopped"
    # a gate that closed means a model at chance; without an interval the units are too few, or a denominator is not
    # clear of zero; with no control defined there is nothing to beat
    defined = [control for control in row["controls"].values() if control["contrast"] is not None]
    if row.get("gate") or row["verdict"] == "not tested" or row["interval"] is None:
        return "undefined"
    if row["controls"] and not defined:
        return "undefined"
    return "failed"


def together(outcomes: dict[str, Outcome]) -> tuple[Outcome, str | None]:
    """What the nulls of a claim say together, and the first that says it.

    One pass is enough to refute. Otherwise the first null that ran and failed decides, and those before it that are
    undefined do not count.

    Args:
        outcomes: null -> its outcome, in the order in which they decide.
    """
    for wanted in ("passed", "failed", "undefined", "gate-stopped"):
        for null, outcome in outcomes.items():
            if outcome == wanted:
                return wanted, null
    return "not run", None
