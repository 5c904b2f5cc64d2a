"""One run as somebody at a notebook or prompt wants it: its ledger to look at, and its numbers to go on with."""

from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.batch import collect
from helpers.batch.folders import RUNS
from helpers.batch.record import RunRecord
from helpers.batch.single import run as run_notebook
from helpers.errors import HookbookError
from helpers.tables import html_table, plain_table


class Ran:
    """A run that is done. Shows its ledger; `record` says everything else about it.

    Args:
        record: the run's.
    """

    def __init__(self, record: RunRecord):
        self.record = record

    @property
    def claims(self) -> pd.DataFrame:
        """A row per claim, as in the table of a sweep."""
        run = collect.Run(
            self.record.folder.name[:12],
            self.record.slug,
            self.record.status,
            False,
            self.record.preset,
            self.record.parameters,
            self.record.folder,
            {"ledger": self.record.ledger, "seconds": self.record.seconds},
        )
        return collect.table([run])[collect.CLAIM].set_index("claim")

    def row(self, claim: str) -> dict[str, Any]:
        """What the ledger says of a claim.

        Raises:
            HookbookError: it says nothing of one with that id.
        """
        rows = {row["id"]: row for row in self.record.ledger["claims"]} if self.record.ledger else {}
        if claim not in rows:
            near = get_close_matches(claim, rows, n=3, cutoff=0.3) or list(rows)
            raise HookbookError(f"{self.record.slug} has no claim {claim!r}; it has {', '.join(near) or 'none'}.")
        return rows[claim]

    def verdict(self, claim: str) -> str:
        """The verdict on a claim.

        Raises:
            HookbookError: there is no such claim.
        """
        return self.row(claim)["verdict"]

    def units(self, claim: str) -> pd.DataFrame:
        """The claim's rows, one per unit, as they went into its interval.

        Raises:
            HookbookError: there is no such claim, or it was settled without rows.
        """
        row = self.row(claim)
        file = self.record.folder / "rows" / f"{self.record.slug}-{claim}.parquet"
        if not file.is_file():
            raise HookbookError(f"{claim} was settled without rows ({row['verdict']}): {row['reason']}")
        return pd.read_parquet(file)

    def __repr__(self) -> str:
        if self.record.ledger is None:
            return f"{self.record.slug}: {self.record.status}, without a ledger; {self.record.notebook}"
        return plain_table(self.record.ledger)

    def _repr_html_(self) -> str | None:
        return None if self.record.ledger is None else html_table(self.record.ledger)


def run(slug: str | Path, parameters: dict[str, Any], preset: str, runs_dir: Path = RUNS) -> Ran:
    """Run a notebook; see `helpers.batch.run`.

    Raises:
        HookbookError: a mistake in the arguments, or a run that is not done; says where its notebook is.
    """
    record = run_notebook(slug, parameters, preset, runs_dir)
    if record.status != "done":
        where = str(record.failure).replace("\n", ": ")
        raise HookbookError(f"{record.slug}: {record.status} in {where}; look at what ran in {record.notebook}.")
    return Ran(record)
