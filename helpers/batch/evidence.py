"""The evidence that the gallery reads: the ledger of a finished evidence run, kept under data/claims/."""

import json
from datetime import date
from pathlib import Path

from helpers import notebooks
from helpers.batch.record import RunRecord
from helpers.errors import HookbookError
from helpers.stored import FOLDER, path_of


def keep(record: RunRecord, folder: Path = FOLDER) -> Path:
    """File the ledger of a finished evidence run, with its date, minutes and fingerprint.

    Raises:
        HookbookError: the run is not done, or was not the evidence preset and nothing else.
    """
    if record.status != "done" or record.preset != "evidence" or record.ledger is None:
        raise HookbookError(
            f"Only a finished run of the evidence preset, without -p, can be kept as evidence; this one is "
            f"{record.preset}, {record.status}."
        )
    run = {
        "date": date.today().isoformat(),
        "minutes": round(record.seconds / 60, 1),
        "parameters": record.parameters,
        "fingerprint": notebooks.read(record.notebook).metadata["hookbook"]["fingerprint"]["id"],
    }
    path = path_of(record.ledger["model"], record.slug, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    notebooks.write_text(path, json.dumps({**record.ledger, "run": run}, indent=1, ensure_ascii=False) + "\n")
    return path
