"""The ledgers that were kept: data/claims/<model>/<slug>.json, one for each model and paper."""

import json
from pathlib import Path
from typing import Any

from helpers import papers
from helpers.errors import HookbookError
from helpers.tables import SYMBOLS

FOLDER = papers.ROOT / "data" / "claims"


def path_of(model: str, slug: str, folder: Path = FOLDER) -> Path:
    """Where the evidence of a paper's notebook on a model is kept; a hub name's slash becomes two dashes."""
    return folder / model.replace("/", "--") / f"{slug}.json"


def read(path: Path) -> dict[str, Any]:
    """The ledger in a file.

    Raises:
        HookbookError: the file cannot be read, or holds none.
    """
    try:
        ledger = json.loads(path.read_text(encoding="utf-8"))
        verdicts = {claim["verdict"] for claim in ledger["claims"] if claim["id"]}
        if isinstance(ledger["model"], str) and verdicts <= set(SYMBOLS):
            return ledger
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise HookbookError(f"{path} is not a ledger: delete it and run the notebook's evidence preset again.")


def of_paper(slug: str, folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The ledgers of a paper's notebook, by model.

    Raises:
        HookbookError: a file is no ledger.
    """
    return [read(path) for path in sorted(folder.glob(f"*/{slug}.json"))]


def of_model(model: str, folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """The ledgers of a model by slug.

    Raises:
        HookbookError: there is none for that model, or a file is no ledger.
    """
    found = {path.stem: read(path) for path in sorted(path_of(model, "any", folder).parent.glob("*.json"))}
    if not found:
        known = sorted({path.parent.name.replace("--", "/") for path in folder.glob("*/*.json")})
        has = f"there are some of {', '.join(known)}" if known else "nor of any other"
        raise HookbookError(f"No evidence run of {model} is kept under data/claims/ ({has}): name another model.")
    return found
