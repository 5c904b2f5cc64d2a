import numpy as np

from helpers import plots, widgets


def test_the_explorer_redraws_for_a_new_layer_and_reads_a_new_text(monkeypatch):
    shown, texts = [], []
    monkeypatch.setattr(widgets, "display", shown.append)

    def project(text):
        texts.append(text)
        words = text.split()
        return words, np.arange(3)[:, None] * np.ones(len(words))

    widgets.sentence_explorer(project, text="so good", layer=1, labels=("harsh", "kind"))
    box, slider, strip = shown[0].children
    assert "+1.0" in strip.value and slider.max == 2
    slider.value = 2
    assert "+2.0" in strip.value and texts == ["so good"]
    box.value = "quite bad indeed"
    assert strip.value.count("+2.0") == 3 and texts == ["so good", "quite bad indeed"]
    box.value = "  "
    assert len(texts) == 2, "an empty box must not reach the model"


def test_the_slider_draws_each_figure_once_and_shows_the_one_it_stands_at(monkeypatch):
    shown, drawn = [], []
    monkeypatch.setattr(widgets, "display", shown.append)

    def draw(angle):
        drawn.append(angle)
        fig, (ax,) = plots.figure()
        ax.axvline(angle)
        return fig, f"A vertical line over an axis of angles, at {angle} degrees."

    widgets.figure_slider(draw, values=(0, 45, 90), start=45, label="angle")
    slider, picture = shown[0].children
    assert drawn == [45] and "at 45 degrees" in picture.value and slider.description == "angle"
    slider.value = 90
    assert drawn == [45, 90] and "at 90 degrees" in picture.value
    slider.value = 45
    assert drawn == [45, 90] and "at 45 degrees" in picture.value
