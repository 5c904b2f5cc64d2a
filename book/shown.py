"""What the book knows of a paper: its entry, the quick run in its notebook, its evidence runs, its cover."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from helpers import covers, gallery, notebooks, stored
from helpers.covers import Cover
from helpers.papers import ROOT, Paper

DEFAULT_MODEL = "smollm2-135m"  # whose habits have a page
TIERS = {
    "A": "the default language model",
    "B": "a small network trained in the notebook",
    "C": "an algorithm or a simulation",
    "D": "a talk or a position paper",
}


@dataclass(frozen=True)
class Shown:
    """A paper of the catalogue as pages show it; `root` is where its notebook and its ledgers lie."""

    paper: Paper
    root: Path = ROOT

    @property
    def slug(self) -> str:
        """The name of its page."""
        return self.paper.slug

    @property
    def place(self) -> Path:
        """Where its notebook is, from the root."""
        return self.paper.notebook.relative_to(ROOT)

    @property
    def stands(self) -> bool:
        """Whether there is something to read: stated claims, or a notebook that has not run yet, are not enough."""
        return self.quick is not None

    @cached_property
    def quick(self) -> dict[str, Any] | None:
        """The ledger that the notebook shows."""
        path = self.root / self.place
        return notebooks.ledger(path) if self.paper.status == "stands" and path.is_file() else None

    @property
    def model(self) -> str | None:
        """The model of the quick run."""
        return self.quick["model"] if self.quick else None

    @cached_property
    def evidence(self) -> list[dict[str, Any]]:
        """The ledgers of the evidence runs, that of the notebook's own model first."""
        kept = stored.of_paper(self.slug, self.root / "data" / "claims") if self.stands else []
        return sorted(kept, key=lambda ledger: ledger["model"] != self.model)

    @cached_property
    def decisive(self) -> dict[str, Any] | None:
        """The ledger whose verdicts stand on cards: the evidence, else the quick run."""
        return next(iter(self.evidence), self.quick)

    @cached_property
    def cover(self) -> Cover | None:
        """Its own figure."""
        return covers.figure(self.root / self.place) if self.stands else None

    @property
    def verdicts(self) -> dict[str, str]:
        """Verdict -> `3 hold here`."""
        return gallery.worded(self.paper, self.decisive) if self.decisive else {}

    @property
    def source(self) -> str:
        """Of which run these verdicts are."""
        return gallery.source(self.decisive) if self.decisive else "no run stored"

    @property
    def venue(self) -> str:
        """The venue without what a filter has no use for: `ATTRIB @ NeurIPS 2023`, `ICLR 2024`."""
        venue = self.paper.venue.split(" (")[0]
        workshop = re.match(r"ATTRIB\b.*@ (\w+ \d{4})", venue)
        main = re.match(r"\w+ \d{4}", venue)
        return f"ATTRIB @ {workshop[1]}" if workshop else main[0] if main else venue

    @property
    def tier(self) -> str:
        """What carries it."""
        return TIERS[self.paper.tier]

    @property
    def tags(self) -> list[str]:
        """Its techniques."""
        return self.paper.teaching.tags if self.paper.teaching else []

    @property
    def words(self) -> str:
        """What a search by free text looks into."""
        idea = self.paper.teaching.idea if self.paper.teaching else ""
        parts = [self.paper.title, *self.paper.authors, self.paper.venue, self.slug, *self.tags, idea]
        return " ".join(" ".join(parts).split()).lower()


def shown(catalogue: dict[str, Paper], root: Path = ROOT) -> list[Shown]:
    """All papers in the order of the themes."""
    return [Shown(paper, root) for paper in gallery.by_theme(catalogue)]
