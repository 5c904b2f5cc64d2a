"""A figure of an audit: the specification curve, the values of a claim in order above the choices that gave them."""

from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers import plots
from helpers.audit.shapes import edges, measured
from helpers.tables import number

_CURVE, _CHOICE, _FRAME = 1.5, 0.17, 0.55  # inches, of the values, of a choice below them, and of the rest of a claim


def drawable(record: dict[str, Any]) -> bool:
    """Whether any claim was measured under several specifications."""
    return any(_claims(record))


def draw(record: dict[str, Any]) -> Figure:
    """Draw the claims below each other, each in two panels that share an axis."""
    claims = list(_claims(record))
    rows = [_choices(_sorted(claim)) for claim in claims]
    ratios = [height for one in rows for height in (_CURVE, _FRAME + _CHOICE * len(one))]
    with mpl.rc_context({**plots.STYLE, "axes.titlesize": 9.5, "font.size": 8}):
        fig = Figure(figsize=(7.2, sum(ratios)), layout="constrained")
        axes = fig.subplots(2 * len(claims), 1, squeeze=False, gridspec_kw={"height_ratios": ratios})[:, 0]
        for index, claim in enumerate(claims):
            _values(axes[2 * index], claim)
            _dots(axes[2 * index + 1], claim, rows[index])
    return fig


def told(record: dict[str, Any]) -> str:
    """What the figure shows, for those who cannot see it."""
    found = []
    for claim in _claims(record):
        values = [one["value"] for one in _sorted(claim)]
        holding = sum(one["verdict"] == "holds" for one in _sorted(claim))
        found.append(
            f"{claim['id']} (test {claim['test']}) from {number(values[0])} to {number(values[-1])}, it holds under "
            f"{holding} of {len(values)}"
        )
    return (
        f"Value with its interval per specification in rising order, for the claims of {record['paper']} on "
        f"{record['model']}; the line is the default's value, the tested region is shaded, dots below are choices. "
        f"{'. '.join(found)}."
    )


def _claims(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (claim for claim in record["claims"] if len(_sorted(claim)) > 1)


def _sorted(claim: dict[str, Any]) -> list[dict[str, Any]]:
    found = [one for one in claim["specifications"] if one["value"] is not None]
    return sorted(found, key=lambda one: one["value"])


def _choices(specifications: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Every choice that was made in any of them, by parameter."""
    pairs = [(name, str(value)) for one in specifications for name, value in one["choices"].items()]
    names = list(dict.fromkeys(name for name, _ in pairs))
    return sorted(set(pairs), key=lambda pair: (names.index(pair[0]), len(pair[1]), pair[1]))


def _values(ax: Axes, claim: dict[str, Any]) -> None:
    found = _sorted(claim)
    shown = [*edges(claim), *measured(claim), *(value for one in found for value in measured(one))]
    margin = 0.08 * (max(shown) - min(shown) or 1)
    bottom, top = min(shown) - margin, max(shown) + margin
    plots.shade_region(ax.axhspan, ax.axhline, claim["region"], bottom, top)
    if claim["value"] is not None:
        ax.axhline(claim["value"], color=plots.ORANGE, lw=1)
    for place, one in enumerate(found):
        colour = plots.BLUE if one["verdict"] == "holds" else plots.GREY
        if one["interval"]:
            ax.vlines(place, *one["interval"], color=colour, lw=1.5)
        ax.plot(place, one["value"], "o", color=colour, ms=4)
    ax.set(xlim=(-0.7, len(found) - 0.3), ylim=(bottom, top), xticks=[], ylabel="value")
    ax.grid(axis="x", visible=False)
    ax.set_title(f"{claim['id']} {claim['kind']}, test {claim['test']}; blue holds, line: default")


def _dots(ax: Axes, claim: dict[str, Any], choices: list[tuple[str, Any]]) -> None:
    found = _sorted(claim)
    for place, one in enumerate(found):
        chosen = [choices.index((name, str(value))) for name, value in one["choices"].items()]
        ax.plot([place] * len(chosen), [-row for row in chosen], "o", color=plots.GREY, ms=3)
    ax.set(xlim=(-0.7, len(found) - 0.3), ylim=(0.6 - len(choices), 0.6), xticks=[], xlabel="specifications")
    ax.set_yticks([-row for row in range(len(choices))], [f"{name} {value}" for name, value in choices])
    ax.tick_params(axis="y", length=0, labelsize=7)
    ax.spines[:].set_visible(False)
    ax.grid(visible=False)
