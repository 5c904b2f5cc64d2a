"""One look for the whole collection: colours that survive colour blindness, axes with units, alternative text."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import HTML, display
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

if TYPE_CHECKING:
    import pandas as pd

    from helpers.claims import Row

# Okabe and Ito's palette; the first colour is the measurement, grey is always a control.
BLUE, ORANGE, GREEN, PURPLE, SKY, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#6E6E6E"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY)
MARKERS = ("o", "s", "^", "D", "v")
DIVERGING = mpl.colors.LinearSegmentedColormap.from_list("hookbook", [ORANGE, "#F7F7F7", BLUE])
MIN_ALT = 40

STYLE = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 2,
}


def figure(n_axes: int = 1, *, height: float = 3.4, width: float = 7.2) -> tuple[Figure, list[Axes]]:
    """A figure of the collection's width with `n_axes` panels side by side (inches)."""
    with mpl.rc_context(STYLE):
        fig, axes = plt.subplots(1, n_axes, figsize=(width, height), layout="constrained", squeeze=False)
    plt.close(fig)  # shown by `show` alone, not a second time by the inline backend
    return fig, list(axes[0])


def picture(fig: Figure, alt: str) -> str:
    """A figure as HTML: an image with alternative text, for readers who cannot see it.

    The picture keeps its own white ground, so that it reads the same on a dark page.

    Args:
        fig: The figure.
        alt: What the axes are and what the figure shows, at least 40 characters.

    Raises:
        ValueError: If the text is too short to say that.
    """
    if len(alt) < MIN_ALT:
        raise ValueError(
            f"The alternative text has {len(alt)} characters: name the axes and the finding (40 at least)."
        )
    drawn, small = io.BytesIO(), io.BytesIO()
    with mpl.rc_context(STYLE):
        fig.savefig(drawn, format="png", dpi=110)
    # 128 colours are plenty for a plot and a third of the size: notebooks stay small enough to open everywhere
    Image.open(drawn).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(small, format="png", optimize=True)
    source = base64.b64encode(small.getvalue()).decode()
    escaped = html.escape(alt, quote=True)
    return f'<img alt="{escaped}" style="max-width:100%" src="data:image/png;base64,{source}">'


def show(fig: Figure, alt: str) -> None:
    """Display a figure as `picture` makes it.

    Args:
        fig: The figure.
        alt: What the axes are and what the figure shows, at least 40 characters.

    Raises:
        ValueError: If the text is too short to say that.
    """
    display(HTML(picture(fig, alt)))


def curves(
    ax: Axes,
    x: Sequence[float],
    series: Mapping[str, Float[np.ndarray, "x"]],
    *,
    controls: Sequence[str] = (),
    bands: Mapping[str, tuple[Float[np.ndarray, "x"], Float[np.ndarray, "x"]]] | None = None,
    joined: bool = True,
) -> None:
    """Lines over x, told apart by colour and marker; those named in `controls` are grey and dashed.

    Where only a few x were measured, `joined=False` leaves the markers alone and claims nothing between them.
    """
    colours = iter(COLOURS)
    for i, (name, values) in enumerate(series.items()):
        control = name in controls
        colour = GREY if control else next(colours)
        line = ("--" if control else "-") if joined else "none"
        ax.plot(x, values, color=colour, marker=MARKERS[i % 5], ms=5 if joined else 8, ls=line, label=name)
        if bands and name in bands:
            ax.fill_between(x, *bands[name], color=colour, alpha=0.15, lw=0)
    ax.xaxis.get_major_locator().set_params(integer=True)  # layers, epochs: whole numbers
    with mpl.rc_context(STYLE):
        ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside upper left", ncols=3)


def claim(ax: Axes, rows: pd.DataFrame, result: Row, *, by: str, names: Mapping[str, str], seed: int = 0) -> None:
    """Every unit of a claim as a dot, for the measurement and each control; the region where the claim holds is shaded.

    Args:
        ax: Where to draw.
        rows: The rows given to `Ledger.check`.
        result: What `Ledger.check` returned; its interval is drawn through the measurement.
        by: The unit's column; cells of crossed units are averaged over the other one.
        names: Column -> label, the measurement first, then its controls.
        seed: For the horizontal jitter.
    """
    rng = np.random.default_rng(seed)
    ratio = "denominator" in rows
    means = rows.groupby(by, sort=False)[[*names, *["denominator"] * ratio]].mean()
    for i, column in enumerate(names):
        values = means[column] / means["denominator"] if ratio else means[column]
        overall = rows[column].sum() / rows["denominator"].sum() if ratio else rows[column].mean()
        x = i + rng.uniform(-0.14, 0.14, len(values))
        ax.scatter(x, values, s=26, color=BLUE if i == 0 else GREY, marker=MARKERS[i % 5], alpha=0.65, lw=0)
        ax.hlines(overall, i - 0.26, i + 0.26, color="black", lw=2)
    if result.low is not None:
        ax.vlines(0, result.low, result.high, color="black", lw=2)
    region_over_y(ax, result.claim.test.region)
    ax.set_xticks(range(len(names)), names.values())
    ax.set_xlim(-0.5, len(names) - 0.5)
    ax.grid(axis="x", visible=False)


def shade_region(
    span: Callable[..., object],
    line: Callable[..., object],
    region: tuple[float | None, float | None],
    start: float,
    end: float,
) -> None:
    """Shade a tested region between the ends of an axis, and dot its edges.

    Args:
        span: the axes' axvspan or axhspan.
        line: its axvline or axhline.
        region: both ends; an open one is infinite, or None as a stored ledger has it.
        start: where the axis begins.
        end: where it ends.
    """
    low, high = (-np.inf if region[0] is None else region[0]), (np.inf if region[1] is None else region[1])
    span(max(low, start), min(high, end), color=BLUE, alpha=0.08, lw=0)
    for edge in (low, high):
        if np.isfinite(edge):
            line(edge, color=BLUE, lw=1, ls=":")


def region_over_y(ax: Axes, region: tuple[float | None, float | None]) -> None:
    """Shade a tested region along y, after making room for its edges."""
    edges = [edge for edge in region if edge is not None and np.isfinite(edge)]
    bottom, top = ax.get_ylim()
    margin = 0.06 * (max(top, *edges) - min(bottom, *edges))
    bottom, top = min(bottom, *(e - margin for e in edges)), max(top, *(e + margin for e in edges))
    shade_region(ax.axhspan, ax.axhline, region, bottom, top)
    ax.set_ylim(bottom, top)


def matrix(ax: Axes, values: Float[np.ndarray, "row column"], rows: Sequence[str], columns: Sequence[str]) -> None:
    """Numbers from -1 to 1 as a coloured table with each value written in its cell."""
    ax.imshow(values, cmap=DIVERGING, vmin=-1, vmax=1, aspect="auto")
    for i, j in np.ndindex(values.shape):
        ax.text(
            j, i, f"{values[i, j]:.2f}", ha="center", va="center", color="white" if abs(values[i, j]) > 0.8 else "black"
        )
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def label_extremes(
    ax: Axes, x: Float[np.ndarray, "point"], y: Float[np.ndarray, "point"], labels: Sequence[str], *, each: int = 4
) -> None:
    """Write the labels of the `each` lowest and highest points of y beside them, leaving out what would overlap."""
    order = np.argsort(y)
    placed: list[tuple[float, float]] = []
    for end in (order, order[::-1]):
        left = each
        for i in end[: 5 * each]:
            here = x[i] / np.ptp(x), y[i] / np.ptp(y)
            if left and all(abs(here[0] - a) > 0.25 or abs(here[1] - b) > 0.05 for a, b in placed):
                ax.annotate(labels[i], (x[i], y[i]), xytext=(5, 0), textcoords="offset points", fontsize=9, va="center")
                placed.append(here)
                left -= 1


def token_strip(
    tokens: Sequence[str], values: Float[np.ndarray, "pos"], *, scale: float, labels: tuple[str, str]
) -> str:
    """A sentence as HTML, each token on a ground coloured by its value, the number below it.

    Args:
        tokens: The tokens as strings.
        values: One number per token.
        scale: The absolute value that takes the full colour.
        labels: What the negative and the positive end mean.
    """
    cells = []
    for token, value in zip(tokens, values, strict=True):
        shade = DIVERGING(float(np.clip(0.5 + value / (2 * scale), 0, 1)))
        text = html.escape(token.replace("\n", "⏎")) or "&nbsp;"
        linear = (
            np.array(shade[:3]) ** 2.2
        )  # approximate relative luminance: 0.18 reads equally well in black and white
        ink = "#000" if linear @ [0.2126, 0.7152, 0.0722] > 0.18 else "#fff"
        cells.append(
            f'<span style="display:inline-block;text-align:center;margin:1px;padding:2px 4px;border-radius:3px;'
            f'background:{mpl.colors.to_hex(shade)};color:{ink};white-space:pre;font-family:monospace">{text}'
            f"<br><small>{value:+.1f}</small></span>"
        )
    key = "".join(
        f'<span style="background:{colour};color:{ink};padding:1px 6px;margin-right:8px">{name}</span>'
        for name, colour, ink in ((labels[0], ORANGE, "#000"), (labels[1], BLUE, "#fff"))
    )
    return f'<div style="line-height:1.4">{"".join(cells)}</div><div style="margin-top:4px"><small>{key}</small></div>'
