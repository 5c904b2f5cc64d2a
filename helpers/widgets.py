"""The collection's figures under sliders; each notebook shows a static twin beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import ipywidgets
import numpy as np
from IPython.display import display

from helpers import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sentence_explorer(
    project: Callable[[str], tuple[list[str], np.ndarray]],
    *,
    text: str,
    layer: int,
    labels: tuple[str, str],
    scale: float = 2.0,
) -> None:
    """A text box and a layer slider over a sentence whose tokens are coloured by a number.

    Args:
        project: Text -> its tokens and an array [layer, pos] of their colours' numbers; called for each new text.
        text: The text to begin with.
        layer: The layer to begin with.
        labels: What the negative and the positive end of the scale mean.
        scale: The absolute value that takes the full colour.
    """
    tokens, values = project(text)
    box = ipywidgets.Text(value=text, description="text", continuous_update=False, layout={"width": "100%"})
    slider = ipywidgets.IntSlider(value=layer, min=0, max=len(values) - 1, description="layer", continuous_update=False)
    strip = ipywidgets.HTML()

    def draw(_change: object = None) -> None:
        strip.value = plots.token_strip(tokens, values[slider.value], scale=scale, labels=labels)

    def read(_change: object) -> None:
        nonlocal tokens, values
        if box.value.strip():
            tokens, values = project(box.value)
            draw()

    box.observe(read, "value")
    slider.observe(draw, "value")
    draw()
    display(ipywidgets.VBox([box, slider, strip]))


def figure_slider(
    draw: Callable[[float], tuple[Figure, str]], *, values: Sequence[float], start: float, label: str
) -> None:
    """A slider under which a figure is drawn anew; each picture is drawn once and then kept.

    Args:
        draw: One of the values -> a figure and its alternative text; called when the slider first stops there.
        values: Where the slider can stop.
        start: Where it stands at first.
        label: What it turns.
    """
    slider = ipywidgets.SelectionSlider(
        options=list(values), value=start, description=label, continuous_update=True, layout={"width": "60%"}
    )
    pictures: dict[float, str] = {}
    shown = ipywidgets.HTML()

    def redraw(_change: object = None) -> None:
        if slider.value not in pictures:
            pictures[slider.value] = plots.picture(*draw(slider.value))
        shown.value = pictures[slider.value]

    slider.observe(redraw, "value")
    redraw()
    display(ipywidgets.VBox([slider, shown]))
