"""What would settle the open claims of a notebook: how many units, of what, and for roughly how many minutes."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from helpers import notebooks, papers, stored
from helpers.errors import HookbookError
from helpers.papers import Claim
from helpers.stats import Interval, units_needed
from helpers.tables import NONE, span

TOO_MANY = 50  # times the units at hand: a plan that nobody would carry out; a verdict's reason says the same
HARDLY = "the estimate sits on the edge: more units would hardly decide it"
_NOTE = (
    "A plan is as uncertain as the spread that it starts from. Of two crossed units the scarcer is counted; the other "
    "grows in proportion. Minutes are those of the whole run, as if all of it grew with the units; often it is less."
)


@dataclass(frozen=True)
class Ledger:
    """A ledger, what to call it, and how many minutes its run took, if that was recorded."""

    name: str
    claims: list[dict[str, Any]]
    minutes: float | None


@dataclass(frozen=True)
class Need:
    """What keeps an open claim open, and how much of what would settle it.

    Attributes:
        claim: the claim's id.
        what: its own interval, or the contrast to a control that is not beaten.
        unit: the independent unit; of two crossed ones the scarcer first, while the other grows in proportion.
        n: the number of such units now; of the scarcer.
        needed: the number that would settle it, None where more units would not.
        then: what it would be then, or why more units would not settle it.
        crossed: whether the unit is one of two crossed ones.
    """

    claim: str
    what: str
    unit: str
    n: int
    needed: int | None
    then: str
    crossed: bool

    @property
    def factor(self) -> float | None:
        """How many times as many units that is."""
        return None if self.needed is None else self.needed / self.n

    def minutes(self, now: float | None) -> float | None:
        """Roughly how long a run of that size takes, if all of it grows with the units; of crossed ones both grow."""
        if now is None or self.factor is None:
            return None
        return now * self.factor ** (2 if self.crossed else 1)


def ledgers(slug: str) -> list[Ledger]:
    """The ledger of the committed notebook and the stored evidence of each model.

    Raises:
        HookbookError: there is no such paper, it has no ledger yet, or one cannot be read.
    """
    paper = papers.paper(slug)
    found = []
    if paper.notebook.is_file():
        nb = notebooks.read(paper.notebook)
        seconds = nb.metadata.get("hookbook", {}).get("provenance", {}).get("seconds")
        if shown := notebooks.ledger(nb):
            minutes = None if seconds is None else seconds / 60
            found.append(Ledger(f"{shown.get('preset')} run on {shown['model']}", shown["claims"], minutes))
    for kept in stored.of_paper(slug):
        minutes = kept.get("run", {}).get("minutes")
        found.append(Ledger(f"evidence run on {kept['model']}", kept["claims"], minutes))
    if not found:
        raise HookbookError(f"{slug} has no ledger yet: run `hookbook refresh {slug}` or its evidence preset first.")
    return found


def needs(slug: str, ledger: Ledger) -> list[Need]:
    """What the open claims of a ledger need, in the ledger's order.

    A claim whose value lies outside its region is settled as soon as its interval is, whatever its controls do; one
    inside needs its interval inside and each control beaten, so that the largest of its numbers counts.

    Raises:
        HookbookError: the ledger is of an older form.
    """
    claims = {claim.id: claim for claim in papers.paper(slug).claims}
    found = []
    for row in ledger.claims:
        if row["verdict"] == "open":
            if not {"value", "interval", "region", "units", "controls"} <= row.keys():
                raise HookbookError(f"The {ledger.name} has a ledger of an older form: run it again.")
            found += _needs(row, claims.get(row["id"]))
    return found


def _needs(row: dict[str, Any], claim: Claim | None) -> list[Need]:
    scarcer, *others = sorted(row["units"], key=row["units"].get)
    unit = f"{scarcer} (and {others[0]})" if others else scarcer

    def need(what: str, needed: int | None, then: str) -> Need:
        return Need(row["id"], what, unit, row["n"], needed, then, bool(others))

    if row["interval"] is None:
        return [need("no interval", None, row["reason"])]
    low, high = region = _region(row)
    inside = low <= row["value"] <= high
    contrasts = list(_contrasts(row, claim)) if inside else []
    found = []
    if row["interval"][0] < low or row["interval"][1] > high:
        needed = _units(row["value"], row["interval"], row["n"], region, row.get("method") or "")
        settled = "fails" if not inside else "holds, once every control is beaten" if contrasts else "holds"
        found.append(
            need(f"interval {span(row['interval'])}, test {row['test']}", needed, settled if needed else HARDLY)
        )
    return found + [need(*contrast) for contrast in contrasts] or [need("no control", None, row["reason"])]


def _contrasts(row: dict[str, Any], claim: Claim | None) -> Iterator[tuple[str, int | None, str]]:
    """For each control that is not beaten: what it is, the units that its contrast needs, what comes of it."""
    sign = -1 if claim and claim.direction == "below" else 1
    for name, control in row["controls"].items():
        if control["beaten"] or control["contrast"] is None:
            continue
        what = f"control {name.replace('_', ' ')}, contrast {span(control['interval'])}"
        if control["interval"] is None:
            yield f"control {name.replace('_', ' ')}", None, "its contrast has no interval"
        elif sign * control["contrast"] <= 0:
            yield what, None, "the control does as well or better: more units would not make it hold"
        else:
            region = (0.0, inf) if sign > 0 else (-inf, 0.0)
            # how the contrast's interval was made is not kept; taken for t it needs more units rather than fewer
            needed = _units(control["contrast"], control["interval"], row["n"], region, "")
            yield what, needed, "the control is beaten" if needed else HARDLY


def _region(row: dict[str, Any]) -> tuple[float, float]:
    low, high = row["region"]
    return -inf if low is None else low, inf if high is None else high


def _units(value: float, ends: list[float], n: int, region: tuple[float, float], method: str) -> int | None:
    """The units that a plan needs, more than there are; None if the estimate sits on the edge."""
    needed = units_needed(Interval(value, *ends, n, method), region)
    return None if needed is None or needed > TOO_MANY * n else max(needed, n + 1)


def print_needs(slug: str, console: Console) -> None:
    """Print a table of what the open claims need for each ledger of a paper's notebook.

    Raises:
        HookbookError: as for `ledgers` and `needs`.
    """
    planned = [(ledger, needs(slug, ledger)) for ledger in ledgers(slug)]
    for ledger, found in planned:
        if not found:
            console.print(Text(f"{ledger.name}: no claim is open"))
            continue
        took = "" if ledger.minutes is None else f", {_time(ledger.minutes)} minutes"
        table = Table(title=Text(f"{ledger.name}{took}"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for column in ("Claim", "What keeps it open", "Unit"):
            table.add_column(column)
        for column in ("Now", "Needed", "Factor", "Minutes"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("Then", ratio=1)
        for one in found:
            numbers = (f"{one.n:,}", _count(one.needed), _times(one.factor), _time(one.minutes(ledger.minutes)))
            table.add_row(*map(Text, (one.claim, one.what, one.unit, *numbers, one.then)))
        console.print(table)
    if any(found for _, found in planned):
        console.print(Text(_NOTE))


def _count(units: int | None) -> str:
    return NONE if units is None else f"{units:,}"


def _times(factor: float | None) -> str:
    return NONE if factor is None else f"× {factor:.1f}"


def _time(minutes: float | None) -> str:
    """Minutes with two digits, as rough as they are."""
    return NONE if minutes is None else f"{float(f'{minutes:.2g}'):,g}"
