"""The same claims on two models: their verdicts side by side, and how far these agree."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from helpers import split_half
from helpers.agreement import contradicts
from helpers.errors import HookbookError
from helpers.tables import SYMBOLS, number, span

Agreement = Literal["same", "opposite", "open on one", "no verdict on one", "other test"]
_WITHOUT = ("not tested", "out of scope")
# what concerns a model and its machine; a difference in anything else makes two runs two experiments
_OF_THE_MODEL = ("model_name", "revision", "dtype", "device", "batch_size", "prepend_bos", "chat_template")


@dataclass(frozen=True)
class Pair:
    """A claim with its rows of both ledgers."""

    slug: str
    first: dict[str, Any]
    second: dict[str, Any]

    @property
    def id(self) -> str:
        """The claim's id."""
        return self.first["id"]

    @property
    def agreement(self) -> Agreement:
        """How the two verdicts stand to each other; a claim whose test was changed between the runs is not the same."""
        one, other = self.first["verdict"], self.second["verdict"]
        if self.first.get("test") != self.second.get("test"):
            return "other test"
        if one == other:
            return "same"
        if contradicts(one, other):
            return "opposite"
        return "no verdict on one" if one in _WITHOUT or other in _WITHOUT else "open on one"


@dataclass(frozen=True)
class Comparison:
    """What two models have in common for one paper, and what must be said beside it."""

    slug: str
    pairs: list[Pair]
    remarks: list[str]


def compare(first: dict[str, dict], second: dict[str, dict], slugs: list[str]) -> list[Comparison]:
    """Put the ledgers of two models side by side.

    Args:
        first: the ledgers of one model by slug.
        second: those of the other.
        slugs: the papers; all that both models have if none is named.

    Raises:
        HookbookError: the models have no paper in common, or one lacks a paper that is named.
    """
    for slug in slugs:
        for ledgers in (first, second):
            if slug not in ledgers:
                model = next(iter(ledgers.values()))["model"]
                raise HookbookError(f"There is no run of {slug} on {model}: it has {', '.join(ledgers)}.")
    common = slugs or [slug for slug in first if slug in second]
    if not common:
        raise HookbookError(f"No paper is common to both models: {', '.join(first)} here, {', '.join(second)} there.")
    return [_comparison(slug, first[slug], second[slug]) for slug in common]


def summary(pairs: list[Pair]) -> str:
    """One sentence on how often the verdicts agree."""
    counts = Counter(pair.agreement for pair in pairs)
    with_verdict = sum(counts[kind] for kind in ("same", "opposite", "open on one"))
    share = f" ({counts['same'] / with_verdict:.0%})" if with_verdict else ""
    parts = [f"{counts['same']} of {with_verdict} verdicts agree{share}"]
    parts += [
        f"{counts[kind]} {kind}"
        for kind in ("opposite", "open on one", "no verdict on one", "other test")
        if counts[kind]
    ]
    return f"{', '.join(parts)}."


def print_table(comparison: Comparison, models: tuple[str, str], console: Console) -> None:
    """Print the claims of one paper, a line each, and the remarks below."""
    table = Table(title=Text(comparison.slug), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("Claim", "Test", *models, "Verdicts"):
        table.add_column(Text(column))
    for pair in comparison.pairs:
        found = (_found(pair.first), _found(pair.second))
        table.add_row(*map(Text, (pair.id, pair.first.get("test", ""), *found, pair.agreement)))
    console.print(table)
    for remark in (summary(comparison.pairs), *comparison.remarks):
        console.print(Text(remark))


def _comparison(slug: str, first: dict, second: dict) -> Comparison:
    rows = {row["id"]: row for row in second["claims"]}
    pairs = [Pair(slug, row, rows[row["id"]]) for row in first["claims"] if row["id"] in rows]
    remarks = []
    for here, there in ((first, second), (second, first)):
        alone = {row["id"]: None for row in here["claims"]}.keys() - {row["id"] for row in there["claims"]}
        if alone:
            remarks.append(f"Only on {here['model']}: {', '.join(sorted(alone))}.")
    if differing := _differing(first, second):
        remarks.append(f"The runs differ in more than the model: {'; '.join(differing)}.")
    return Comparison(slug, pairs, [*remarks, _ceiling(slug, first, second)])


def _ceiling(slug: str, first: dict, second: dict) -> str:
    """How far agreement can go at all, which needs the rows per unit of both runs."""
    if "folder" not in first:  # evidence; runs know their folder
        return "No split-half ceiling: the rows per unit are not kept with the evidence; --runs reads finished runs."
    found = split_half.agreement(slug, first["folder"], second["folder"])
    return str(found or "No split-half ceiling: no claim has rows with units enough to be halved.")


def _differing(first: dict, second: dict) -> list[str]:
    one, other = (ledger.get("run", {}).get("parameters") or {} for ledger in (first, second))
    names = [name for name in one if name in other and name not in _OF_THE_MODEL and one[name] != other[name]]
    return [f"{name} {one[name]} and {other[name]}" for name in names]


def _found(row: dict[str, Any]) -> str:
    measured = "" if row.get("value") is None else f" {number(row['value'])} {span(row.get('interval'))}".rstrip()
    return f"{SYMBOLS[row['verdict']]} {row['verdict']}{measured}"
