import base64
import io
import re
from types import SimpleNamespace

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from helpers import plots

ALT = "Logit difference against layer for two heads; both rise after the middle."


@pytest.fixture
def shown(monkeypatch):
    outputs = []
    monkeypatch.setattr(plots, "display", lambda thing: outputs.append(thing.data))
    return outputs


def picture(html):
    data = re.search(r"base64,([^\"]+)", html)[1]
    return matplotlib.image.imread(io.BytesIO(base64.b64decode(data)), format="png")


def test_show_emits_one_image_with_its_alternative_text_escaped(shown):
    fig, (ax,) = plots.figure()
    ax.plot([0, 1], [0, 1])
    plots.show(fig, ALT + ' "<quoted>" & more')
    (html,) = shown
    assert html.startswith("<img alt=") and html.count("<img") == 1
    assert "&quot;&lt;quoted&gt;&quot; &amp; more" in html
    assert picture(html).std() > 0


def test_the_ground_is_opaque_white_so_that_dark_pages_do_not_swallow_the_axes(shown):
    fig, _ = plots.figure()
    plots.show(fig, ALT)
    assert np.allclose(picture(shown[0])[0, 0], 1)


def test_the_same_figure_is_the_same_bytes(shown):
    for _ in range(2):
        fig, (ax,) = plots.figure()
        plots.curves(ax, [0, 1], {"a": np.array([0.0, 1.0])})
        plots.show(fig, ALT)
    assert shown[0] == shown[1]


def test_a_short_alternative_text_is_refused(shown):
    fig, _ = plots.figure()
    with pytest.raises(ValueError, match="9 characters"):
        plots.show(fig, "a picture")
    assert not shown


def row(low, high, region):
    test = SimpleNamespace(region=region)
    return SimpleNamespace(claim=SimpleNamespace(test=test), low=low, high=high)


def test_claim_shows_the_edge_of_its_region_even_far_from_the_dots():
    rows = pd.DataFrame({"template": range(8), "value": np.linspace(0.1, 0.2, 8), "shuffled": np.zeros(8)})
    fig, (ax,) = plots.figure()
    plots.claim(
        ax, rows, row(0.12, 0.18, (0.7, np.inf)), by="template", names={"value": "true", "shuffled": "shuffled"}
    )
    assert ax.get_ylim()[1] > 0.7
    assert [label.get_text() for label in ax.get_xticklabels()] == ["true", "shuffled"]


def test_claim_draws_the_ratio_of_sums_and_one_dot_per_unit():
    rows = pd.DataFrame({"t": [0, 0, 1, 1], "value": [1.0, 3.0, 2.0, 2.0], "denominator": [2.0, 2.0, 8.0, 8.0]})
    fig, (ax,) = plots.figure()
    plots.claim(ax, rows, row(None, None, (0.5, np.inf)), by="t", names={"value": "v"})
    dots, mean = ax.collections[0].get_offsets(), ax.collections[1].get_segments()[0]
    assert sorted(dots[:, 1]) == pytest.approx([0.25, 1.0])
    assert mean[0][1] == pytest.approx(8 / 20)


def test_token_strip_escapes_and_keeps_contrast():
    html = plots.token_strip([" <b>", "\n", ""], np.array([-2.0, 0.0, 2.0]), scale=2, labels=("harsh", "kind"))
    assert "&lt;b&gt;" in html and "<b>" not in html
    assert "⏎" in html and "&nbsp;" in html
    assert "-2.0" in html and "+2.0" in html
    grounds = re.findall(r"background:(#\w+);color:(#\w+)", html)
    for ground, ink in grounds:
        assert contrast(ground, ink) >= 4.5, (ground, ink)


def contrast(one, other):
    """WCAG 2.1 contrast ratio of two colours."""

    def luminance(colour):
        rgb = np.array(plots.mpl.colors.to_rgb(colour))
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_extremes_are_labelled_without_overlap():
    x, y = np.linspace(0, 0.01, 20), np.r_[np.linspace(0, 0.1, 10), np.linspace(0.9, 1.0, 10)]
    fig, (ax,) = plots.figure()
    plots.label_extremes(ax, x, y, [f"w{i}" for i in range(20)], each=2)
    shown = {text.get_text(): text.xy[1] for text in ax.texts}
    assert {"w0", "w19"} <= set(shown) and len(shown) == 4
    heights = sorted(shown.values())
    assert min(np.diff(heights)) > 0.05
