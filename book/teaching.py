"""What the notebooks ask for and give, as a graph: prerequisites on the left, notebooks on the right."""

from collections.abc import Iterable
from html import escape

from book.shown import Shown
from helpers.papers import THEMES

LEVELS = ("introductory", "intermediate", "advanced")
_LETTER, _LONGEST = 7.6, 44  # of a concept: the width of a letter, and the letters that are shown
_BETWEEN, _RIGHT = 180, 430  # from the concepts to the notebooks, and what these take
_MANY = 12  # notebooks, beyond which nobody follows the lines of one graph
_CONCEPT, _NOTEBOOK = 30, 54  # heights


def ordered(papers: Iterable[Shown]) -> list[Shown]:
    """The papers that stand in the order in which one would read them: easy ones first, then by theme."""
    standing = [one for one in papers if one.stands]
    return sorted(standing, key=lambda one: (*_rank(one), one.slug))


def _rank(one: Shown) -> tuple[int, int]:
    return LEVELS.index(one.paper.teaching.difficulty), THEMES.index(one.paper.theme)


def graphs(papers: list[Shown]) -> dict[str, str]:
    """Name -> graph: one without a name, or one for each theme where many notebooks stand."""
    rows = ordered(papers)
    if len(rows) <= _MANY:
        return {"": graph(rows)}
    themes = {theme: [one for one in rows if one.paper.theme == theme] for theme in THEMES}
    return {f"{theme}, {len(group)}": graph(group) for theme, group in themes.items() if group}


def graph(papers: list[Shown]) -> str:
    """The graph as SVG that takes its colours from the page; empty where nothing stands."""
    rows = ordered(papers)
    if not rows:
        return ""
    needs = [need for one in rows for need in one.paper.teaching.prerequisites]
    concepts = list(dict.fromkeys(needs))
    shown = {concept: _short(concept, _LONGEST) for concept in concepts}
    start = round(max([*(len(text) * _LETTER for text in shown.values()), 0.0])) + 20
    end = start + _BETWEEN
    height = max(_CONCEPT * len(concepts), _NOTEBOOK * len(rows)) + 20
    left = _places(len(concepts), height)
    right = _places(len(rows), height)
    edges, nodes = [], []
    for one, y in zip(rows, right, strict=True):
        for need in one.paper.teaching.prerequisites:
            edges.append(_edge(start, left[concepts.index(need)], end, y))
    for concept, y in zip(concepts, left, strict=True):
        nodes.append(
            f'<text class="concept" x="{start - 12}" y="{y + 4:g}" text-anchor="end">{escape(shown[concept])}</text>'
        )
        nodes.append(f'<circle class="need" cx="{start}" cy="{y:g}" r="4"/>')
    nodes += [_notebook(one, end, y) for one, y in zip(rows, right, strict=True)]
    said = (
        f"{len(concepts)} prerequisites on the left lead to {len(rows)} notebooks on the right, listed below as well."
    )
    return (
        f'<svg class="graph" viewBox="0 0 {end + _RIGHT} {height}" role="group" aria-label="{said}">'
        f"{''.join(edges)}{''.join(nodes)}</svg>"
    )


def _places(count: int, height: float) -> list[float]:
    step = height / max(count, 1)
    return [round(step * (index + 0.5), 1) for index in range(count)]


def _short(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 2].rstrip()} …"


def _edge(start: float, y: float, end: float, there: float) -> str:
    middle = (start + end) / 2
    return f'<path class="edge" d="M{start:g} {y:g} C{middle:g} {y:g} {middle:g} {there:g} {end:g} {there:g}"/>'


def _notebook(one: Shown, x: float, y: float) -> str:
    teaching = one.paper.teaching
    minutes = teaching.minutes
    facts = f"{teaching.difficulty} · {minutes.read} + {minutes.exercise} min · {one.paper.theme}"
    return (
        f'<circle class="{teaching.difficulty}" cx="{x}" cy="{y:g}" r="6"/>'
        f'<a href="../papers/{one.slug}.html"><text x="{x + 16}" y="{y - 3:g}">{escape(_short(one.paper.title, 52))}'
        f'</text></a><text class="aside" x="{x + 16}" y="{y + 15:g}">{escape(facts)}</text>'
    )
