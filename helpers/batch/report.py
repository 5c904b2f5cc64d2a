"""`hookbook report`: the tables, figures and the page of a sweep, written anew each time, also while it runs."""

import io
from pathlib import Path

import matplotlib as mpl
import pandas as pd

from helpers import plots
from helpers.batch import collect, figures, page, store
from helpers.batch.folders import RUNS
from helpers.notebooks import write_text


def report(name: str | Path, out: Path | None = None, asked: list[str] | None = None, runs_dir: Path = RUNS) -> dict:
    """Write results.parquet, results.csv, units.parquet, a PNG per figure and report.html.

    Args:
        name: the sweep's name, or its folder.
        out: the folder to write into; `report` in the sweep's own folder if none is given.
        asked: figures, as `C1a:value~layer`; one per claim if none is given.
        runs_dir: the folder of all runs.

    Returns:
        What was written: a word for each file, with its path.

    Raises:
        HookbookError: there is no such sweep, or a figure that cannot be drawn.
    """
    sweep = store.find(name, runs_dir)
    folder = Path(out) if out else sweep / "report"
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    runs = collect.gather(sweep, runs_dir)
    table = collect.table(runs)
    units = collect.unit_table(runs)
    written = {"results": folder / "results.parquet", "CSV": folder / "results.csv", "units": folder / "units.parquet"}
    _parquet(table, written["results"])
    _parquet(units, written["units"])
    write_text(written["CSV"], table.to_csv(index=False))
    drawn = _draw(runs, table, asked or [])
    pictures = []
    for number, (claim, picture, words) in enumerate(drawn, start=1):
        file = folder / f"figure-{number}-{claim}.png"
        _bytes(file, picture)
        written[f"figure {number}"] = file
        pictures.append((picture, words))
    written["page"] = folder / "report.html"
    write_text(written["page"], page.page(store.read(sweep)["name"], runs, table, pictures, folder, store.live(sweep)))
    return written


def _draw(runs: list[collect.Run], table: pd.DataFrame, asked: list[str]) -> list[tuple[str, bytes, str]]:
    """Claim, PNG and alternative text of each figure; only runs that are done and not stale are in them."""
    rows = table[(table["status"] == "done") & ~table["stale"] & table["claim"].notna()]
    ledgers = {claim["id"]: claim for run in reversed(runs) if not run.stale for claim in run.claims}
    parameters = list(collect.parameter_columns(runs).values())
    drawn = []
    for figure in figures.asked(asked, rows, parameters):
        some = rows[rows["claim"] == figure.claim]
        fig, words = figures.draw(figure, some, ledgers[figure.claim])
        picture = io.BytesIO()
        with mpl.rc_context(plots.STYLE):
            fig.savefig(picture, format="png", dpi=110)
        drawn.append((figure.claim, picture.getvalue(), words))
    return drawn


def _parquet(frame: pd.DataFrame, path: Path) -> None:
    beside = path.with_suffix(".part")
    frame.to_parquet(beside, index=False)
    beside.replace(path)


def _bytes(path: Path, content: bytes) -> None:
    beside = path.with_suffix(".part")
    beside.write_bytes(content)
    beside.replace(path)
