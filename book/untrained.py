"""What networks that learned nothing make of the claims: the audits' records, claim by claim."""

from dataclasses import dataclass
from typing import Any

from book.shown import Shown
from book.strips import Scale
from helpers.audit import summary

NAMES = {
    "trained": "trained",
    "random": "untrained",
    "shuffled": "shuffled",
    "random-x3": "untrained, blocks × 3",
    "fresh-blocks": "only blocks untrained",
}


@dataclass(frozen=True)
class Audited:
    """A claim of an audit with its paper."""

    shown: Shown
    model: str
    claim: dict[str, Any]

    @property
    def outcome(self) -> str:
        """What the nulls say together."""
        return self.claim["null"]["outcome"] if self.claim["null"] else "no null"

    @property
    def passing(self) -> list[str]:
        """The nulls on which it holds too."""
        return summary.passing(self.claim)

    @property
    def nulls(self) -> list[dict[str, Any]]:
        """What was found on each null, in the order of the names."""
        order = list(NAMES)
        known = [null for null in self.claim["nulls"] if null["null"] in order]
        others = [null for null in self.claim["nulls"] if null["null"] not in order]
        return [*sorted(known, key=lambda null: order.index(null["null"])), *others]

    @property
    def dots(self) -> list[float]:
        """The values on other seeds and other units."""
        others = (*self.claim["seeds"], *self.claim["redraws"])
        return [one["value"] for one in others if one["value"] is not None]

    @property
    def scale(self) -> Scale:
        """The axis of its strip."""
        return Scale.over(self.claim["region"], [self.claim, *self.claim["nulls"]], *self.dots)


def audited(papers: list[Shown], records: list[dict[str, Any]]) -> list[Audited]:
    """The claims that have a null, in the order of the papers; records of papers that are no more are left out."""
    found = []
    for shown in papers:
        for record in records:
            if record["paper"] == shown.slug and shown.stands:
                found += [Audited(shown, record["model"], claim) for claim in record["claims"] if claim["nulls"]]
    return found
