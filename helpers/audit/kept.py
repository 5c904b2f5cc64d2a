"""The files of an audit: data/audit/<model>/<slug>.json, its figures, and the summary over all of them."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

from helpers import notebooks, plots
from helpers.audit import curve, strip
from helpers.audit.summary import FOLDER, NAME, folder_of, records, summary
from helpers.errors import HookbookError

_FIGURES = {"nulls": strip, "specifications": curve}


def keep(record: dict[str, Any], folder: Path = FOLDER) -> Path:
    """Write a record with its figures, whose alternative texts stand in it, and bring the summary up to date.

    Args:
        record: as `findings` made it.
        folder: of all audits.

    Returns:
        The record's file; figures lie beside it.

    Raises:
        HookbookError: the folder cannot be written, or an older record in it cannot be read.
    """
    path = folder_of(record["model"], folder) / f"{record['paper']}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        notebooks.write_text(path, _json({**record, "figures": _figures(record, path)}))
        notebooks.write_text(folder / NAME, _json(summary(records(folder))))
    except OSError as error:
        raise HookbookError(f"{folder} cannot be written ({error.strerror}): free space there, or mend it.") from None
    return path


def _figures(record: dict[str, Any], beside: Path) -> dict[str, dict[str, str]]:
    """Draw what can be drawn -> name -> file and alternative text; an older figure that has no successor goes."""
    found = {}
    for name, figure in _FIGURES.items():
        file = beside.with_name(f"{beside.stem}-{name}.png")
        if not figure.drawable(record):
            file.unlink(missing_ok=True)
            continue
        alt = figure.told(record)
        with mpl.rc_context(plots.STYLE):
            # no version of matplotlib and no date: the same audit gives the same file
            figure.draw(record).savefig(file, dpi=110, metadata={"Description": alt, "Software": None})
        found[name] = {"file": file.name, "alt": alt}
    return found


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
