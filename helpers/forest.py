"""A paired forest plot: each claim on its own axis, its value and interval on two models, the tested region shaded."""

import textwrap
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from helpers import plots
from helpers.compare import Comparison, Pair
from helpers.errors import HookbookError

_COLOURS, _MARKERS = (plots.BLUE, plots.ORANGE), ("o", "s")
_HEIGHT, _FRAME = 1.15, 0.7  # inches, of a claim and of the rest
_STATEMENT, _STATISTIC = 96, 110  # characters that fit a line


def figure(comparison: Comparison, models: tuple[str, str]) -> Figure:
    """Draw the claims of a paper below each other; scales differ, since each claim has its own statistic."""
    n = len(comparison.pairs)
    with mpl.rc_context({**plots.STYLE, "axes.titlesize": 9.5, "axes.labelsize": 8.5, "font.size": 9}):
        fig = Figure(figsize=(7.2, _HEIGHT * n + _FRAME), layout="constrained")
        for ax, pair in zip(fig.subplots(n, 1, squeeze=False)[:, 0], comparison.pairs, strict=True):
            _claim(ax, pair)
        fig.get_layout_engine().set(h_pad=0.08)  # inches; each axis has a title of its own
        fig.legend(handles=_legend(comparison, models), loc="outside upper left", ncols=4)
    return fig


def save(comparison: Comparison, models: tuple[str, str], folder: Path) -> Path:
    """Write the figure as a PNG with its alternative text and return where it is.

    Raises:
        HookbookError: the folder cannot be made or written.
    """
    name = "-".join((*models, comparison.slug)).replace("/", "--")
    path = folder / f"compare-{name}.png"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context(plots.STYLE):
            figure(comparison, models).savefig(path, dpi=150, metadata={"Description": told(comparison, models)})
    except OSError as error:
        raise HookbookError(f"{path} cannot be written ({error.strerror}): name another folder with --out.") from None
    return path


def told(comparison: Comparison, models: tuple[str, str]) -> str:
    """What the figure shows, for those who cannot see it."""
    found = [f"{pair.id} {pair.first['verdict']} and {pair.second['verdict']}" for pair in comparison.pairs]
    return f"Value and interval by claim on {models[0]} and on {models[1]}, for {comparison.slug}: {'; '.join(found)}."


def _claim(ax: Axes, pair: Pair) -> None:
    rows = (pair.first, pair.second)
    edges = [edge for edge in pair.first["region"] if edge is not None]
    paper = pair.first.get("paper_value")
    shown = [*edges, *(_numbers(pair.first)), *(_numbers(pair.second)), *([] if paper is None else [paper])]
    margin = 0.08 * (max(shown) - min(shown) or 1)
    left, right = min(shown) - margin, max(shown) + margin
    plots.shade_region(ax.axvspan, ax.axvline, pair.first["region"], left, right)
    if paper is not None:
        ax.axvline(paper, color=plots.GREY, lw=1.5, ls="--")
    for height, row, colour, marker in zip((1, 0), rows, _COLOURS, _MARKERS, strict=True):
        if row["interval"]:
            ax.hlines(height, *row["interval"], color=colour, lw=2)
        if row["value"] is not None:
            ax.plot(row["value"], height, marker=marker, color=colour, ms=6, ls="none")
        ax.text(1.01, height, row["verdict"], transform=ax.get_yaxis_transform(), va="center", color=colour)
    ax.set(xlim=(left, right), ylim=(-0.6, 1.6), yticks=[])
    ax.spines["left"].set_visible(False)
    ax.grid(axis="y", visible=False)
    ax.set_title(_short(f"{pair.id} {pair.first['statement']}", _STATEMENT))
    ax.set_xlabel(_short(pair.first["statistic"], _STATISTIC), loc="left", color=plots.GREY)


def _short(text: str, width: int) -> str:
    return textwrap.shorten(text, width, placeholder=" …")


def _numbers(row: dict[str, Any]) -> list[float]:
    return [number for number in (row["value"], *(row["interval"] or ())) if number is not None]


def _legend(comparison: Comparison, models: tuple[str, str]) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=colour, marker=marker, label=model)
        for colour, marker, model in zip(_COLOURS, _MARKERS, models, strict=True)
    ]
    handles.append(Patch(color=plots.BLUE, alpha=0.15, label="the tested region"))
    if any(pair.first.get("paper_value") is not None for pair in comparison.pairs):
        handles.append(Line2D([], [], color=plots.GREY, ls="--", lw=1.5, label="the paper"))
    return handles
