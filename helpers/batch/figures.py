"""Figures of a sweep: a claim's value with its interval over a parameter, the region where the claim holds shaded."""

import re
import textwrap
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers import plots
from helpers.errors import HookbookError
from helpers.tables import number

_COLOURS = len(plots.COLOURS)
_TICKS = 12  # places of an axis that each get their own number
_LINE = 70  # characters that fit below an axis
_SIDE = 34  # beside it
_PLOT = re.compile(r"(C\w+):(value)~(\w+)")


@dataclass(frozen=True)
class Asked:
    """A figure: the claim, the parameter on the axis, the one that colours."""

    claim: str
    x: str | None
    colour: str | None


def asked(texts: list[str], rows: pd.DataFrame, parameters: list[str]) -> list[Asked]:
    """The figures to draw: those asked for (`C1a:value~layer`), else one per claim.

    Args:
        texts: as given.
        rows: of runs that are done and not stale, with a claim each.
        parameters: the columns that are parameters.

    Raises:
        HookbookError: it cannot be read, or names no claim or parameter.
    """
    claims = list(dict.fromkeys(rows["claim"]))
    varied = _varied(rows, parameters)
    if not texts:
        return [Asked(claim, *_choice(rows[rows["claim"] == claim], varied)) for claim in claims]
    found = []
    for text in texts:
        match = _PLOT.fullmatch(text.replace(" ", ""))
        if not match:
            raise HookbookError(f"--plot {text} cannot be read: write a claim and a parameter, as in C1:value~layer.")
        if match[1] not in claims:
            raise HookbookError(
                f"--plot {text}: no finished run has {match[1]}; there are {', '.join(claims) or 'none'}."
            )
        if match[3] not in parameters:
            raise HookbookError(f"--plot {text}: {match[3]} is no parameter; there are {', '.join(parameters)}.")
        others = [name for name in varied if name != match[3]]
        found.append(Asked(match[1], match[3], _colour(rows, others)))
    return found


def draw(figure: Asked, rows: pd.DataFrame, claim: dict[str, Any]) -> tuple[Figure, str]:
    """A figure with its alternative text.

    Args:
        figure: what is asked for.
        rows: the rows of the claim.
        claim: its entry in some run's ledger, for its test and region.
    """
    fig, (ax,) = plots.figure(height=3.6)
    rows = rows[rows["value"].notna()]
    numeric = figure.x is not None and pd.api.types.is_numeric_dtype(rows[figure.x]) and rows[figure.x].notna().all()
    categories = [] if numeric or figure.x is None else sorted(map(_word, rows[figure.x].unique()))
    colours = [None] if figure.colour is None else sorted(rows[figure.colour].unique(), key=_order)
    for index, value in enumerate(colours):
        some = rows if figure.colour is None else rows[rows[figure.colour].map(_word) == _word(value)]
        x = some[figure.x].astype(float) if numeric else _places(some, figure.x, categories)
        places = rows[figure.x] if numeric else pd.Series(range(max(1, len(categories))))
        _points(
            ax,
            _apart(x, index, len(colours), places, 0.4 if numeric else 0.7),
            some,
            index,
            _label(figure.colour, value),
        )
    if claim.get("region"):
        plots.region_over_y(ax, claim["region"])
    ax.set_ylabel(_beside(f"{figure.claim}: {claim.get('statistic') or 'value'}"))
    ax.set_xlabel(figure.x or "run")
    if numeric and rows[figure.x].nunique() <= _TICKS:
        ax.set_xticks(sorted(rows[figure.x].astype(float).unique()))
    elif numeric and (rows[figure.x] == rows[figure.x].round()).all():
        ax.xaxis.get_major_locator().set_params(integer=True)
    if not numeric:
        labels = categories if figure.x else [""] * len(rows)
        long = sum(map(len, labels)) > _LINE
        ax.set_xticks(range(len(labels)), labels, rotation=30 if long else 0, ha="right" if long else "center")
        ax.set_xlim(-0.5, max(1, len(labels)) - 0.5)
    if figure.colour is not None:
        with mpl.rc_context(plots.STYLE):
            fig.legend(*ax.get_legend_handles_labels(), loc="outside upper left", ncols=_COLOURS)
    return fig, _words(figure, rows, claim)


def _points(ax: Axes, x: pd.Series, rows: pd.DataFrame, index: int, label: str) -> None:
    colour, marker = plots.COLOURS[index % _COLOURS], plots.MARKERS[index % _COLOURS]
    size = 30 if len(x) <= 60 else 12
    ax.scatter(x, rows["value"], s=size, color=colour, marker=marker, lw=0, label=label, zorder=3)
    ax.vlines(x, rows["low"], rows["high"], color=colour, lw=1.5 if len(x) <= 60 else 0.8, alpha=0.7)


def _words(figure: Asked, rows: pd.DataFrame, claim: dict[str, Any]) -> str:
    if rows.empty:
        return f"{figure.claim}: no finished run has a value for this claim, so the figure is empty."
    over = f" over {figure.x}" if figure.x else ""
    colour = f", coloured by {figure.colour}" if figure.colour else ""
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in rows["verdict"].value_counts().items())
    many = f"{len(rows)} run{'s' * (len(rows) != 1)}"
    lowest, highest = number(rows["value"].min()), number(rows["value"].max())
    return (
        f"{figure.claim}: value with its 95 % interval{over}{colour}, {many}, values from {lowest} to "
        f"{highest}; the test {claim.get('test', '')} is shaded. Verdicts: {verdicts}."
    )


def _varied(rows: pd.DataFrame, parameters: list[str]) -> list[str]:
    return [name for name in parameters if rows[name].map(_word).nunique() > 1]


def _choice(rows: pd.DataFrame, varied: list[str]) -> tuple[str | None, str | None]:
    """Axis and colour: the number with most values, a seed only if nothing else varies; then what has few values."""
    varied = [name for name in varied if rows[name].map(_word).nunique() > 1]
    numeric = [name for name in varied if pd.api.types.is_numeric_dtype(rows[name]) and rows[name].notna().all()]
    candidates = [name for name in numeric if name != "seed"] or [n for n in varied if n != "seed"] or varied
    x = max(candidates, key=lambda name: rows[name].map(_word).nunique(), default=None)
    return x, _colour(rows, [name for name in varied if name not in (x, "seed")])


def _colour(rows: pd.DataFrame, names: list[str]) -> str | None:
    few = [name for name in names if name != "seed" and 1 < rows[name].map(_word).nunique() <= _COLOURS]
    return max(few, key=lambda name: rows[name].map(_word).nunique(), default=None)


def _places(rows: pd.DataFrame, name: str | None, categories: list[str]) -> pd.Series:
    if name is None:
        return pd.Series(np.arange(len(rows), dtype=float), rows.index)
    return rows[name].map(lambda value: float(categories.index(_word(value))))


def _apart(x: pd.Series, index: int, of: int, places: pd.Series, share: float) -> pd.Series:
    """Places moved a little, so that intervals do not cover each other: each colour and each run beside the next.

    Args:
        x: where the runs of this colour belong.
        index: of the colour.
        of: how many colours there are.
        places: all places of the axis.
        share: of the least distance between two places, how much may be used.
    """
    distinct = np.unique(places.astype(float))
    width = share * (float(np.diff(distinct).min()) if len(distinct) > 1 else 1.0)
    rank, count = x.groupby(x).cumcount(), x.groupby(x).transform("size")
    return x + width * ((index + (rank + 1) / (count + 1)) / of - 0.5)


def _label(name: str | None, value: Any) -> str:
    return "" if name is None else f"{name} {_word(value)}"


def _word(value: Any) -> str:
    return "None" if value is None or value is pd.NA or value != value else str(value)


def _order(value: Any) -> tuple[bool, Any, str]:
    number_ = isinstance(value, int | float | np.number) and value == value
    return (not number_, value if number_ else 0, _word(value))


def _beside(text: str) -> str:
    """As much of a text as two lines along the axis hold."""
    return "\n".join(textwrap.wrap(text, _SIDE, max_lines=2, placeholder=" …"))
