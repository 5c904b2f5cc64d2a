"""The page about a sweep: one HTML file that needs nothing else, readable on a light and on a dark screen."""

import base64
import os
from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.batch import collect
from helpers.batch.record import EXIT_CODES
from helpers.tables import number

_ROWS = 500  # of the table: beyond it a browser is the wrong tool
_ORDER = [*EXIT_CODES, "running", "waiting"]
_STYLE = """
:root { --ground: #fff; --ink: #1b1b1b; --faint: #5c5c5c; --line: #d8d8d8; --link: #0b5cad; --bad: #b3261e }
@media (prefers-color-scheme: dark) {
  :root { --ground: #16181c; --ink: #e4e4e4; --faint: #a0a0a0; --line: #3a3d44; --link: #7db7ff; --bad: #ff8a80 }
}
:root { color-scheme: light dark }
body { background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0 }
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem 1rem 5rem }
a { color: var(--link) }
small, figcaption, .faint { color: var(--faint) }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .88em; margin: .6rem 0 }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .6rem; text-align: left; vertical-align: top }
td.number { text-align: right; font-variant-numeric: tabular-nums }
pre { white-space: pre-wrap; margin: 0; color: var(--bad); font-size: .9em }
figure { margin: 1.5rem 0 }
img { max-width: 100%; background: #fff; border-radius: 4px }
"""


def page(
    name: str,
    runs: list[collect.Run],
    table: pd.DataFrame,
    pictures: list[tuple[bytes, str]],
    folder: Path,
    live: bool,
) -> str:
    """The whole page.

    Args:
        name: the sweep's.
        runs: all its runs.
        table: a row per run and claim.
        pictures: PNG and alternative text of each figure.
        folder: where the page will lie; its links are relative to it.
        live: whether the sweep still runs.
    """
    state = "It is still running: this page shows what there is so far." if live else ""
    stale = sum(run.stale for run in runs)
    if stale:
        verb = "s are" if stale > 1 else " is"
        state += f" {stale} run{verb} stale: what their notebook depends on has changed since; no figure shows them."
    body = [
        f"<h1>{escape(name)}</h1>",
        f"<p>{escape(state.strip())}</p>" if state else "",
        "<h2>Runs</h2>",
        _counts(runs),
        _failures(runs, folder),
        "<h2>Figures</h2>" if pictures else "",
        *(_figure(*picture) for picture in pictures),
        "<h2>Results</h2>",
        _table(runs, table, folder),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<title>{escape(name)}</title>\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        f"style-src 'unsafe-inline'\">\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def _counts(runs: list[collect.Run]) -> str:
    counts = Counter((run.slug, run.status) for run in runs if not run.stale)
    rows = [
        f'<tr><td>{escape(slug)}</td><td>{escape(status)}</td><td class="number">{count}</td></tr>'
        for (slug, status), count in sorted(counts.items(), key=lambda item: (item[0][0], _ORDER.index(item[0][1])))
    ]
    return _tabled(("notebook", "status", "runs"), rows)


def _failures(runs: list[collect.Run], folder: Path) -> str:
    bad = [run for run in runs if not run.stale and run.folder and run.status not in ("done", "running")]
    if not bad:
        return ""
    rows = []
    for run in bad:
        links = [
            f'<a href="{escape(_relative(run.folder / file, folder), quote=True)}">{word}</a>'
            for word, file in (
                ("page", f"{run.slug}.html"),
                ("notebook", f"{run.slug}.ipynb"),
                ("trace", "traceback.txt"),
            )
            if (run.folder / file).is_file()
        ]
        why = f"<pre>{escape(str(run.record.get('failure') or ''))}</pre>"
        cells = (escape(run.status), _point(run, runs), why, ", ".join(links))
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return "<h2>Not done</h2>" + _tabled(("status", "run", "where and why", "files"), rows)


def _figure(picture: bytes, words: str) -> str:
    data = base64.b64encode(picture).decode()
    return (
        f'<figure><img alt="{escape(words, quote=True)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(words)}</figcaption></figure>"
    )


def _table(runs: list[collect.Run], table: pd.DataFrame, folder: Path) -> str:
    varied = _varied(runs)
    names = [name for parameter, name in collect.parameter_columns(runs).items() if parameter in varied]
    some = table[table["claim"].notna()]
    rows = []
    for row in some.head(_ROWS).to_dict("records"):
        interval = f"[{number(row['low'])}, {number(row['high'])}]" if pd.notna(row["low"]) else ""
        link = f'<a href="{escape(_relative(Path(row["folder"]), folder), quote=True)}/">{row["run"]}</a>'
        cells = [
            link + (" (stale)" if row["stale"] else ""),
            *(escape(_word(row[name])) for name in names),
            escape(row["claim"]),
            _number(row["value"]),
            interval,
            "" if pd.isna(row["n"]) else str(row["n"]),
            escape(row["verdict"]),
            _number(row["control_value"]),
            _number(row["seconds"]),
        ]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    header = ("run", *names, "claim", "value", "95 % interval", "n", "verdict", "hardest control", "seconds")
    more = "" if len(some) <= _ROWS else f"<p>The first {_ROWS} of {len(some)} rows; results.csv has them all.</p>"
    return (_tabled(header, rows) if rows else "<p>No run is done yet.</p>") + more


def _tabled(header: tuple[str, ...], rows: list[str]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _varied(runs: list[collect.Run]) -> list[str]:
    names = dict.fromkeys(name for run in runs for name in run.parameters)
    return [name for name in names if len({repr(run.parameters.get(name)) for run in runs}) > 1]


def _point(run: collect.Run, runs: list[collect.Run]) -> str:
    values = ", ".join(f"{name}={run.parameters.get(name)!r}" for name in _varied(runs))
    return escape(f"{run.slug}({values})")


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _number(value: Any) -> str:
    return "" if pd.isna(value) else number(value)


def _word(value: Any) -> str:
    return "None" if pd.isna(value) else str(value)
