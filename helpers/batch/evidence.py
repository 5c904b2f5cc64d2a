"""The evidence that the gallery and `hookbook compare` read: ledgers of evidence runs, kept under data/claims/."""

import json
from datetime import date
from pathlib import Path

from helpers import notebooks, nulls, stored
from helpers.batch.planned import OF_THE_MODEL, label, planned
from helpers.batch.record import RunRecord
from helpers.errors import HookbookError
from helpers.stored import FOLDER, path_of


def refuse_others(given: dict[str, str], preset: str) -> None:
    """Refuse, before hours of computing, a run that could not be kept.

    Raises:
        HookbookError: another preset, a parameter that is not the model's, or a model that is a null.
    """
    if preset != "evidence" or label(given, preset) != "evidence":
        raise HookbookError(
            f"--keep files the evidence preset as it is, on any model: use it with --preset evidence and with no other "
            f"-p than {' and '.join(OF_THE_MODEL)}."
        )
    if nulls.split(str(given.get("model_name", "")))[0]:
        raise HookbookError(
            f"{given['model_name']} learned nothing that evidence could be about: leave out --keep, or let `hookbook "
            "audit` compare it with the trained model."
        )


def keep(record: RunRecord, folder: Path = FOLDER) -> Path:
    """File the ledger of a finished evidence run under its model, with its date, minutes and fingerprint.

    Raises:
        HookbookError: the run is not done, or was not the evidence preset and nothing else, on a model or another.
    """
    if record.status != "done" or record.preset != "evidence" or record.ledger is None:
        raise HookbookError(
            f"Only a finished run of the evidence preset, with no other -p than {' and '.join(OF_THE_MODEL)}, can be "
            f"kept as evidence; this one is {record.preset}, {record.status}."
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


def is_current(slug_or_path: str | Path, folder: Path = FOLDER) -> bool:
    """Whether the evidence run of a paper, as it would be now, is among the ledgers that are kept.

    Raises:
        HookbookError: the notebook, its model or a kept ledger cannot be read.
    """
    plan = planned(slug_or_path, {}, "evidence")
    kept = {ledger.get("run", {}).get("fingerprint") for ledger in stored.of_paper(plan.slug, folder)}
    return plan.fingerprint.id in kept
