"""The scoreboard: a row for each claim and model, as the page shows it and as CSV."""

import csv
import io
from dataclasses import dataclass
from typing import Any

from book.shown import Shown
from helpers.papers import Claim

_COLUMNS = (
    "paper", "theme", "venue", "tier", "claim", "kind", "statement", "statistic", "unit", "test", "model", "preset",
    "value", "low", "high", "n", "control", "control_value", "paper_value", "ratio_to_paper", "verdict", "reason",
    "date",
)  # fmt: skip


@dataclass(frozen=True)
class Score:
    """A claim on a model: what the catalogue states and what the ledger found."""

    shown: Shown
    claim: Claim
    ledger: dict[str, Any]
    row: dict[str, Any]

    @property
    def date(self) -> str | None:
        """The day of an evidence run."""
        return self.ledger.get("run", {}).get("date")

    @property
    def ratio(self) -> float | None:
        """The value here over the paper's, where both are numbers and the paper's is not zero."""
        value, paper = self.row["value"], self.row.get("paper_value")
        return value / paper if value is not None and paper else None

    @property
    def verdict(self) -> str:
        """The verdict, which is a replication on a model of the paper's own class alone."""
        own_class = self.ledger["model"].startswith(tuple(self.shown.paper.model_class))
        return "replicates" if own_class and self.row["verdict"] == "holds" else self.row["verdict"]


def scores(papers: list[Shown]) -> list[Score]:
    """Every claim of every paper that stands, on each model with an evidence run, else as the quick run has it."""
    found = []
    for shown in papers:
        for ledger in shown.evidence or ([shown.quick] if shown.stands else []):
            rows = {row["id"]: row for row in ledger["claims"]}
            found += [Score(shown, claim, ledger, rows[claim.id]) for claim in shown.paper.claims if claim.id in rows]
    return found


def as_csv(found: list[Score]) -> str:
    """The same rows as comma-separated values, numbers as the ledgers have them."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for score in found:
        paper, row = score.shown.paper, score.row
        low, high = row["interval"] or (None, None)
        unit = " × ".join(score.claim.units)
        writer.writerow(
            {name: row.get(name) for name in ("kind", "statement", "statistic", "value", "n", "reason")}
            | {"control": row.get("control"), "control_value": row.get("control_value")}
            | {"paper": paper.slug, "theme": paper.theme, "venue": paper.venue, "tier": paper.tier}
            | {"claim": score.claim.id, "unit": unit, "test": row["test"], "model": score.ledger["model"]}
            | {"preset": score.ledger.get("preset"), "low": low, "high": high, "date": score.date}
            | {"paper_value": row.get("paper_value"), "ratio_to_paper": score.ratio, "verdict": score.verdict}
        )
    return text.getvalue()
