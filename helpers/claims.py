"""The ledger: claims stated in the catalogue, checked on rows per unit, shown beside the paper's value."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from importlib.metadata import version
from inspect import cleandoc
from pathlib import Path
from string import Formatter
from typing import Any

import pandas as pd
from IPython.display import Markdown, display

from helpers.errors import HookbookError
from helpers.papers import Claim, paper
from helpers.rows import tidy
from helpers.tables import NONE, html_table, plain_table, print_table
from helpers.verdicts import Row, Verdict, judge, plain

__all__ = ["MIME", "Ledger", "Row", "print_table"]

MIME = "application/vnd.hookbook.ledger+json"
PACKAGES = ("torch", "transformers", "transformer-lens", "numpy", "scipy", "scikit-learn")


class Ledger:
    """What a notebook found for each claim of its paper.

    Each claim is settled once, by `check`, `not_tested`, `out_of_scope` or a closed `gate`. A second look with other
    rows is a hidden selection and refused; a cell run again with the same result is not. Claims never reached are
    `not tested`.

    Args:
        slug: the paper, as in the catalogue.
        model: name of the model measured.
        preset: name of the parameter set; by default what the runner says in HOOKBOOK_PRESET.
        gates: False computes every statistic although the model fails a gate, and marks the claim.
        sha256: of the model's weights, or its hub revision.
        seed: seeds the bootstrap, and is stated with the results.
        parameters: the notebook's parameters, stated with the results.

    Raises:
        HookbookError: no such paper.
    """

    def __init__(
        self,
        slug: str,
        *,
        model: str,
        preset: str | None = None,
        gates: bool = True,
        sha256: str | None = None,
        seed: int = 0,
        parameters: Mapping[str, Any] | None = None,
    ):
        self.paper = paper(slug)
        self.model = model
        self.preset = preset or os.environ.get("HOOKBOOK_PRESET") or None
        self.gates = gates
        self.seed = seed
        self._provenance = {
            "model": model,
            "sha256": sha256,
            "seed": seed,
            "parameters": parameters,
            "versions": {name: version(name).partition("+")[0] for name in PACKAGES},  # +cpu says nothing about results
        }
        self._claims = {claim.id: claim for claim in self.paper.claims}
        self._settled: dict[str, Row] = {}
        self._frames: dict[str, pd.DataFrame] = {}
        self._closed: dict[str, str] = {}

    def check(self, id: str, rows: pd.DataFrame | Mapping[str, Any]) -> Row:
        """Measure a claim on its units and settle its verdict by rule.

        Args:
            id: the claim's id.
            rows: one row per unit, or per cell of two crossed units: a column per unit name (underscores for spaces),
                `value`, a column per control (all NaN where it is undefined), and optionally `denominator`, which makes
                value and controls numerators of a sum over a sum.

        Raises:
            HookbookError: unknown claim, settled already, a wrong column, a repeated unit, a value not finite or out of
                bounds, or rows that cannot be written to the folder in HOOKBOOK_ROWS.
        """
        claim = self._claim(id)
        frame = tidy(claim, rows)
        if id in self._settled:
            if id in self._frames and frame.equals(self._frames[id]):
                return self._settled[id]
            raise self._second_look(id)
        row = judge(claim, frame, self.seed)
        self._write(id, frame)  # first, so that the cell can be run again when the disk was full
        self._frames[id] = frame
        return self._settle(row)

    def not_tested(self, id: str, reason: str) -> Row:
        """Settle a claim as not tested: the model cannot do the task, say, with its own accuracy in the reason.

        Raises:
            HookbookError: unknown claim, settled already, or no reason.
        """
        return self._settle(self._without_rows(id, "not tested", reason))

    def out_of_scope(self, id: str, reason: str) -> Row:
        """Settle a claim as out of scope: the model lacks what the paper presupposes, such as a second language.

        Raises:
            HookbookError: unknown claim, settled already, or no reason.
        """
        return self._settle(self._without_rows(id, "out of scope", reason))

    def gate(self, id: str, passed: bool, reason: str) -> bool:
        """Say whether a claim is to be measured: `if ledger.gate("C2", accuracy > 0.8, f"accuracy {accuracy:.2f}"):`.

        Where the gate is not passed, the claim is settled as not tested for that reason; with `gates=False` it is
        measured all the same, and marked with the reason.

        Raises:
            HookbookError: unknown claim, settled already, or no reason.
        """
        if passed:
            self._claim(id)
            return True
        stopped = self._without_rows(id, "not tested", reason)
        self._closed[id] = reason
        if self.gates:
            self._settle(stopped)
        return not self.gates

    def verdict(self, id: str) -> Verdict:
        """The verdict on a claim so far; `not tested` before it is reached.

        Raises:
            HookbookError: unknown claim.
        """
        return self._row(self._claim(id)).verdict

    def say(self, text: str, **values: object) -> None:
        """Show markdown with measured numbers in it: `ledger.say("It recovers {C2.value:.2f}, n = {C2.n}.")`.

        A claim has value, low, high, n, verdict, control (the hardest control's value) and controls[NAME].value; what
        does not exist shows as a dash. Other names are taken from `values`. Braces of formulas are doubled, as in any
        format string.

        Raises:
            HookbookError: a name that is no settled claim and no value, or a field that cannot be formatted.
        """
        try:
            shown = _Prose(self).vformat(cleandoc(text), (), values)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise HookbookError(f"The text {_start(text)!r} cannot be filled in: {error}.") from None
        display(Markdown(shown))

    def conclude(self, id: str) -> None:
        """Close a claim's section: its verdict, the test and unit that it had, and why.

        Raises:
            HookbookError: unknown claim, or not settled yet.
        """
        row = self._row(self._claim(id))
        if row.reason == "never reached":
            raise HookbookError(f"{id} has not been checked yet: conclude below its check.")
        units = " × ".join(f"{n} {name}s" for name, n in row.counts.items()) or "no units"
        judged = f"on each of {units}" if row.claim.kind == "identity" else f"by a 95 % interval over {units}"
        judged += ", and each control beaten" if row.claim.controls else ""
        display(Markdown(f"**{id} {row.verdict}** (test: {row.claim.test.describe()}, {judged}). {row.reason}"))

    def to_json(self) -> dict[str, Any]:
        """The ledger as strict JSON, claims in the catalogue's order, with nothing that changes from run to run."""
        return plain(
            {
                "paper": self.paper.slug,
                "model": self.model,
                "preset": self.preset,
                "claims": [self._row(claim).as_json() for claim in self._claims.values()],
                "not_claimed": self.paper.not_claimed,
                "provenance": self._provenance,
            }
        )

    def table(self) -> None:
        """Show the ledger: a table for readers and, in the same output, its JSON for runner, book and tests."""
        ledger = self.to_json()
        display({"text/plain": plain_table(ledger), "text/html": html_table(ledger), MIME: ledger}, raw=True)

    def _claim(self, id: str) -> Claim:
        if id not in self._claims:
            near = get_close_matches(id, self._claims, n=3, cutoff=0.3) or list(self._claims)
            known = f"did you mean {' or '.join(near)}?" if near else "its entry in the catalogue states none."
            raise HookbookError(f"{self.paper.slug} has no claim {id!r}: {known}")
        return self._claims[id]

    def _row(self, claim: Claim) -> Row:
        unreached = Row(claim, "not tested", "never reached", gate=self._closed.get(claim.id))
        return self._settled.get(claim.id, unreached)

    def _without_rows(self, id: str, verdict: Verdict, reason: str) -> Row:
        claim = self._claim(id)
        if not reason.strip():
            raise HookbookError(f"{id}: say in a few words why it is {verdict}.")
        return Row(claim, verdict, reason)

    def _settle(self, row: Row) -> Row:
        id = row.claim.id
        row = replace(row, gate=self._closed.get(id))
        if self._settled.setdefault(id, row) != row:
            raise self._second_look(id)
        return row

    def _second_look(self, id: str) -> HookbookError:
        return HookbookError(
            f"{id} is settled already ({self._settled[id].verdict}), and a second look would be a hidden selection: "
            "to start over, run the notebook from its setup cell."
        )

    def _write(self, id: str, frame: pd.DataFrame) -> None:
        if not (folder := os.environ.get("HOOKBOOK_ROWS")):
            return
        path = Path(folder) / "rows" / f"{self.paper.slug}-{id}.parquet"
        beside = path.with_suffix(f".{os.getpid()}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            frame.to_parquet(beside, index=False)
            beside.replace(path)
        except OSError as error:
            with suppress(OSError):
                beside.unlink()
            raise HookbookError(
                f"The rows of {id} could not be written to {folder} ({error.strerror or error}): free space there, or "
                "choose another folder in HOOKBOOK_ROWS."
            ) from None


class _Prose(Formatter):
    """Format strings whose names are claims of a ledger."""

    def __init__(self, ledger: Ledger):
        self._ledger = ledger

    def get_value(self, key: int | str, args: tuple, kwargs: Mapping[str, object]) -> object:
        if key in kwargs:
            return kwargs[key]
        row = self._ledger._row(self._ledger._claim(str(key)))
        if row.reason == "never reached":
            raise HookbookError(f"{key} has not been checked yet: move the sentence below its check.")
        return row

    def format_field(self, value: object, spec: str) -> str:
        return NONE if value is None else super().format_field(value, spec)


def _start(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
