"""The heads and neurons that the notebooks' own sentences name: where each was met."""

import re
from collections import defaultdict
from dataclasses import dataclass

from book.shown import Shown
from helpers import notebooks

_HEAD = re.compile(r"\bL(\d+)(?:H|N)(\d+)\b")


@dataclass(frozen=True)
class Met:
    """A head or neuron, and the sentences that name it: (paper, anchor, sentence)."""

    name: str
    places: list[tuple[Shown, str, str]]


def met(papers: list[Shown], model: str) -> list[Met]:
    """What was met on a model, by layer, from what the committed notebooks say in their outputs."""
    found: dict[str, list[tuple[Shown, str, str]]] = defaultdict(list)
    for one in papers:
        if not one.quick or one.quick["model"] != model:
            continue
        nb = notebooks.read(one.root / one.place)
        for cell in nb.cells:
            for output in cell.get("outputs", []):
                text = notebooks.text_of(output.get("data", {}).get("text/markdown", ""))
                for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z])", " ".join(text.split())):
                    for name in dict.fromkeys(match[0] for match in _HEAD.finditer(sentence)):
                        found[name].append((one, cell.id, sentence))
    order = sorted(found, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])
    return [Met(name, found[name]) for name in order]
