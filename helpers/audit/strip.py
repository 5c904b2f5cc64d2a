"""A figure of an audit: each claim on the trained model, its seeds and redraws, and on each null."""

from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers import plots
from helpers.audit.findings import null_name
from helpers.audit.shapes import Point, edges, measured
from helpers.tables import number

_ROW, _FRAME = 0.24, 0.75  # inches, of a model and of the rest of a claim


def drawable(record: dict[str, Any]) -> bool:
    """Whether any claim has a value and a null."""
    return any(_claims(record))


def draw(record: dict[str, Any]) -> Figure:
    """Draw the claims below each other; each axis has its own scale, as each claim has its own statistic."""
    claims = list(_claims(record))
    heights = [_FRAME + _ROW * (1 + len(claim["nulls"])) for claim in claims]
    with mpl.rc_context({**plots.STYLE, "axes.titlesize": 9.5, "font.size": 9}):
        fig = Figure(figsize=(7.2, sum(heights)), layout="constrained")
        axes = fig.subplots(len(claims), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
        for ax, claim in zip(axes, claims, strict=True):
            _claim(ax, claim)
    return fig


def told(record: dict[str, Any]) -> str:
    """What the figure shows, for those who cannot see it."""
    found = []
    for claim in _claims(record):
        nulls = ", ".join(f"{null_name(null)} {number(null['value'])} {null['outcome']}" for null in claim["nulls"])
        found.append(f"{claim['id']} (test {claim['test']}) trained {number(claim['value'])}; {nulls}")
    return (
        f"Value with its interval per claim of {record['paper']}, on {record['model']} in the top row and on a null in "
        f"each row below; small dots are other seeds and units, the tested region is shaded. {'. '.join(found)}."
    )


def _claims(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (claim for claim in record["claims"] if claim["value"] is not None and claim["nulls"])


def _claim(ax: Axes, claim: dict[str, Any]) -> None:
    rows = [Point("trained", claim, claim["verdict"], plots.BLUE, "o")]
    rows += [Point(null_name(null), null, null["outcome"], _colour(null), "s") for null in claim["nulls"]]
    others = [one["value"] for one in (*claim["seeds"], *claim["redraws"]) if one["value"] is not None]
    shown = [*edges(claim), *others, *(value for row in rows for value in measured(row.found))]
    margin = 0.08 * (max(shown) - min(shown) or 1)
    left, right = min(shown) - margin, max(shown) + margin
    plots.shade_region(ax.axvspan, ax.axvline, claim["region"], left, right)
    ax.plot(others, [0] * len(others), "o", color=plots.BLUE, ms=3.5, alpha=0.4, mew=0)
    for place, row in enumerate(rows):
        row.draw(ax, -place)
        ax.text(1.01, -place, row.aside, transform=ax.get_yaxis_transform(), va="center", color=row.colour)
    ax.set(xlim=(left, right), ylim=(-len(rows) + 0.4, 0.6))
    ax.set_yticks([-place for place in range(len(rows))], [row.name for row in rows])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="y", visible=False)
    ax.set_title(f"{claim['id']} {claim['kind']}, test {claim['test']}")


def _colour(null: dict[str, Any]) -> str:
    return plots.ORANGE if null["outcome"] == "passed" else plots.GREY
