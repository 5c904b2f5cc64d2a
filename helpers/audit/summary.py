"""The audits of all notebooks in a few numbers."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from helpers import papers
from helpers.errors import HookbookError

FOLDER = papers.ROOT / "data" / "audit"
NAME = "summary.json"


def records(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The records of all audits that are kept.

    Raises:
        HookbookError: one cannot be read.
    """
    found = []
    for path in sorted(folder.glob("*/*.json")):
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise HookbookError(f"{path} is no audit ({error}): delete it and audit {path.stem} again.") from None
    return found


def folder_of(model: str, folder: Path = FOLDER) -> Path:
    """Where the audits on a model are kept; in the folder's name slashes and colons are two dashes."""
    return folder / model.replace("/", "--").replace(":", "--")


def passing(claim: dict[str, Any]) -> list[str]:
    """The nulls that a claim of a record holds on too."""
    return [null["null"] for null in claim["nulls"] if null["outcome"] == "passed"]


def summary(audits: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Counts over claims and two rates.

    Below `positive`, the claims that hold on the default run, only these count. `null_pass_rate` is the share that a
    null passes, of those on which a null said anything; `null_coverage` the share on which one did, of all that are
    positive; `seed_stability` the mean share of seeds that give the default run's verdict. A rate over no claim is
    None. Claims whose nulls were all stopped by a gate that cannot be switched off, or never ran, are counted apart.
    """
    claims = [claim for audit in audits for claim in audit["claims"]]
    positive = [claim for claim in claims if claim["positive"]]
    counts = Counter(claim["null"]["outcome"] if claim["null"] else "not run" for claim in positive)
    failed, passed = counts["failed"], counts["passed"]
    stable = [claim["seed_stability"] for claim in positive if claim["seed_stability"] is not None]
    return {
        "claims": len(claims),
        "positive": len(positive),
        "null_ran_and_failed": failed,
        "null_passed": passed,
        "null_undefined": counts["undefined"],
        "null_gate_stopped": counts["gate-stopped"],
        "null_not_run": counts["not run"],
        "null_pass_rate": _share(passed, passed + failed),
        "null_coverage": _share(passed + failed, len(positive)),
        "seed_stability": _share(sum(stable), len(stable)),
    }


def _share(part: float, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
