"""An audit as the terminal shows it: a row for each claim, and below what has to be said by name."""

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from helpers.audit import outcomes
from helpers.audit.findings import named
from helpers.audit.roles import NULLS_OF
from helpers.tables import NONE, SYMBOLS

_NULLS = NULLS_OF["behaviour"]
_SHORT = {
    "gate-stopped": "gate",
    "undefined": "undef.",
    "random-x3": "x 3",
    "shuffled": "shuff.",
    "fresh-blocks": "fresh",
}


def print_audit(record: dict[str, Any], console: Console) -> None:
    """Print the table of a notebook's audit, positive claims first and below a line those that do not hold anyway."""
    runs = record["runs"]
    table = Table(
        title=Text(f"{record['paper']} on {record['model']}: {runs['planned']} runs"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for column in ("Claim", "Verdict", *(_SHORT.get(null, null) for null in _NULLS), "own", "Null", "Kept by"):
        table.add_column(Text(column), no_wrap=True)
    positive = [claim for claim in record["claims"] if claim["positive"]]
    others = [claim for claim in record["claims"] if not claim["positive"]]
    for claim in (*positive, *others):
        nulls = {null["null"]: null["outcome"] for null in claim["nulls"] if not null.get("own")}
        own = {null["null"]: null["outcome"] for null in claim["nulls"] if null.get("own")}
        together = claim["null"]["outcome"] if claim["null"] else None
        cells = [
            claim["id"],
            f"{SYMBOLS[claim['verdict']]} {claim['verdict']}",
            *(_word(nulls.get(null)) for null in _NULLS),
            _word(outcomes.together(own)[0] if own else None),
            _word(together),
            f"{_share(claim['seed_stability'])}, {_share(claim['redraw_stability'])}",
        ]
        table.add_row(*map(Text, cells), end_section=bool(positive) and claim is positive[-1])
    console.print(table)
    console.print(Text("Kept by: the share of other seeds, and of other units, that give the same verdict."))
    for sentence in named(record):
        console.print(Text(sentence), soft_wrap=True)
    others = [one for one in runs["not_done"] if one["part"] != "default"]
    for one in others:
        console.print(
            Text(f"{one['part']} {one['label']} is {one['status']}: {one['failure'] or NONE}"), soft_wrap=True
        )


def print_summary(found: dict[str, Any], console: Console) -> None:
    """Print the counts over all audits that are kept."""
    console.print(
        Text(
            f"{found['claims']} claims audited, {found['positive']} positive; of these a null ran and failed on "
            f"{found['null_ran_and_failed']}, passed {found['null_passed']}, was undefined on "
            f"{found['null_undefined']}, stopped by a gate on {found['null_gate_stopped']}, not run on "
            f"{found['null_not_run']}. Pass rate {_share(found['null_pass_rate'])}, coverage "
            f"{_share(found['null_coverage'])}, verdicts that other seeds keep {_share(found['seed_stability'])}."
        ),
        soft_wrap=True,
    )


def _word(outcome: str | None) -> str:
    return NONE if outcome is None else _SHORT.get(outcome, outcome)


def _share(share: float | None) -> str:
    return NONE if share is None else f"{share:.0%}"
