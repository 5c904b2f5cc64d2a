"""What the notebooks ask for and give, as a graph: prerequisites on the left, notebooks on the right."""

from collections.abc import Iterable
from html import escape

from book.shown import Shown
from helpers.papers import THEMES

LEVELS = ("introductory", "intermediate", "advanced")
_WIDTH, _LEFT, _RIGHT = 860, 250, 430  # where the concepts end and the notebooks begin
_CONCEPT, _NOTEBOOK = 30, 54  # heights


def ordered(papers: Iterable[Shown]) -> list[Shown]:
    """The papers that stand in the order in which one would read them: easy ones first, then by theme."""
    standing = [one for one in papers if one.stands]
    return sorted(standing, key=lambda one: (*_rank(one), one.slug))


def _rank(one: Shown) -> tuple[int, int]:
    return LEVELS.index(one.paper.teaching.difficulty), THEMES.index(one.paper.theme)


def graph(papers: list[Shown]) -> str:
    """The graph as SVG that takes its colours from the page; empty where nothing stands."""
    rows = ordered(papers)
    if not rows:
        return ""
    needs = [need for one in rows for need in one.paper.teaching.prerequisites]
    concepts = list(dict.fromkeys(needs))
    height = max(_CONCEPT * len(concepts), _NOTEBOOK * len(rows)) + 20
    left = _places(len(concepts), height)
    right = _places(len(rows), height)
    edges, nodes = [], []
    for one, y in zip(rows, right, strict=True):
        for need in one.paper.teaching.prerequisites:
            edges.append(_edge(left[concepts.index(need)], y))
    for concept, y in zip(concepts, left, strict=True):
        nodes.append(f'<text class="concept" x="{_LEFT - 12}" y="{y + 4:g}" text-anchor="end">{escape(concept)}</text>')
        nodes.append(f'<circle class="need" cx="{_LEFT}" cy="{y:g}" r="4"/>')
    nodes += [_notebook(one, y) for one, y in zip(rows, right, strict=True)]
    said = (
        f"{len(concepts)} prerequisites on the left lead to {len(rows)} notebooks on the right, listed below as well."
    )
    return (
        f'<svg class="graph" viewBox="0 0 {_WIDTH} {height}" role="group" aria-label="{said}">'
        f"{''.join(edges)}{''.join(nodes)}</svg>"
    )


def _places(count: int, height: float) -> list[float]:
    step = height / max(count, 1)
    return [round(step * (index + 0.5), 1) for index in range(count)]


def _edge(start: float, end: float) -> str:
    middle = (_LEFT + _RIGHT) / 2
    return f'<path class="edge" d="M{_LEFT} {start:g} C{middle:g} {start:g} {middle:g} {end:g} {_RIGHT} {end:g}"/>'


def _notebook(one: Shown, y: float) -> str:
    teaching = one.paper.teaching
    minutes = teaching.minutes
    title = one.paper.title if len(one.paper.title) <= 52 else f"{one.paper.title[:50].rstrip()} …"
    facts = f"{teaching.difficulty} · {minutes.read} + {minutes.exercise} min · {one.paper.theme}"
    return (
        f'<circle class="{teaching.difficulty}" cx="{_RIGHT}" cy="{y:g}" r="6"/>'
        f'<a href="../papers/{one.slug}.html"><text x="{_RIGHT + 16}" y="{y - 3:g}">{escape(title)}</text></a>'
        f'<text class="aside" x="{_RIGHT + 16}" y="{y + 15:g}">{escape(facts)}</text>'
    )
