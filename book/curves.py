"""Numbers by layer as lines: SVG that takes its colours from the page."""

from collections.abc import Mapping, Sequence
from html import escape

from helpers.tables import number

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 220, 46, 34, 12
_LOOKS = ("solid", "dashed")


def curves(series: Mapping[str, Sequence[float]], x_label: str, alt: str, low: float = 0.0) -> str:
    """One or two lines over 0, 1, 2 ..., with a legend in words.

    Args:
        series: name -> values.
        x_label: of the horizontal axis.
        alt: what the drawing shows, for those who cannot see it.
        low: where the vertical axis begins.
    """
    count = max(map(len, series.values()))
    high = max(max(values) for values in series.values()) or 1.0
    width, height = _WIDTH - _LEFT - 10, _HEIGHT - _BOTTOM - _TOP

    def x(index: float) -> float:
        return round(_LEFT + width * index / max(count - 1, 1), 1)

    def y(value: float) -> float:
        return round(_TOP + height * (1 - (value - low) / (high - low)), 1)

    parts = []
    for tick in (low, (low + high) / 2, high):
        parts.append(f'<path class="grid" d="M{_LEFT} {y(tick)}H{_LEFT + width}"/>')
        parts.append(f'<text class="aside" x="{_LEFT - 6}" y="{y(tick) + 4}" text-anchor="end">{number(tick)}</text>')
    for index in range(0, count, 5):
        parts.append(f'<text class="aside" x="{x(index)}" y="{_HEIGHT - 16}" text-anchor="middle">{index}</text>')
    parts.append(
        f'<text class="aside" x="{_LEFT + width}" y="{_HEIGHT - 5}" text-anchor="end">{escape(x_label)}</text>'
    )
    for look, values in zip(_LOOKS, series.values(), strict=False):
        points = " ".join(f"{x(index)},{y(value)}" for index, value in enumerate(values))
        parts.append(f'<polyline class="{look}" points="{points}"/>')
    key = "".join(f'<span class="{look}">{escape(name)}</span>' for look, name in zip(_LOOKS, series, strict=False))
    said = escape(alt, quote=True)
    return (
        f'<div class="curves"><p class="aside legend">{key}</p>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{said}">{"".join(parts)}</svg></div>'
    )
