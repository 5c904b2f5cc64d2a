"""The heads and neurons that the notebooks' own sentences name: where each was met."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from book.shown import Shown
from helpers import notebooks

_HEAD = re.compile(r"\bL(\d+)(?:H|N)(\d+)\b")


Place = tuple[Shown, str, str]  # paper, anchor of the cell, sentence


@dataclass(frozen=True)
class Met:
    """Heads or neurons that the same sentences name, and those sentences."""

    names: list[str]
    places: list[Place]


def met(papers: list[Shown], model: str) -> list[Met]:
    """What was met on a model, by layer, from what the committed notebooks say in their outputs."""
    found: dict[str, list[Place]] = defaultdict(list)
    for one in papers:
        if one.model == model:
            for cell, sentence in _sentences(one):
                for name in dict.fromkeys(match[0] for match in _HEAD.finditer(sentence)):
                    found[name].append((one, cell, sentence))
    together: dict[tuple[tuple[str, ...], ...], list[str]] = defaultdict(list)
    for name in sorted(found, key=lambda name: [int(part) for part in re.findall(r"\d+", name)]):
        together[tuple((one.slug, *rest) for one, *rest in found[name])].append(name)
    return [Met(names, found[names[0]]) for names in together.values()]


def _sentences(one: Shown) -> Iterator[tuple[str, str]]:
    for cell in notebooks.read(one.root / one.place).cells:
        for output in cell.get("outputs", []):
            text = notebooks.text_of(output.get("data", {}).get("text/markdown", ""))
            for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z])", " ".join(text.split())):
                yield cell.id, sentence
