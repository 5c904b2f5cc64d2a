"""The figure and sentence that a notebook shows of itself in the README, taken from its committed outputs."""

import base64
import html
import re
from dataclasses import dataclass
from pathlib import Path

from helpers import notebooks
from helpers.errors import HookbookError
from helpers.papers import ROOT, Paper

COVERS = Path("docs") / "covers"
START, END = "<!-- cover:start -->", "<!-- cover:end -->"
_IMAGE = re.compile(r'<img alt="([^"]*)"[^>]*src="data:image/png;base64,([^"]+)"')


@dataclass(frozen=True)
class Cover:
    """A picture (PNG), its alternative text, the notebook's sentence about it, and the verdict of its claim."""

    picture: bytes
    alt: str
    sentence: str
    verdict: str


def cover(path: Path) -> Cover:
    """The first picture and the first sentence in the outputs of the notebook's cell tagged `cover`.

    The cell stands in a claim's section and its id begins with the claim's, as in `c2-8`.

    Raises:
        HookbookError: there is no such cell, or it has no picture or sentence.
    """
    nb = notebooks.read(path)
    cells = [cell for cell in nb.cells if notebooks.has_tag(cell, "cover")]
    data = [output.get("data", {}) for cell in cells for output in cell.get("outputs", [])]
    found = [m for d in data if (m := _IMAGE.search(notebooks.text_of(d.get("text/html", ""))))]
    said = [notebooks.text_of(d["text/markdown"]) for d in data if "text/markdown" in d]
    if not found or not said:
        raise HookbookError(
            f"{path.name} needs one cell tagged `cover` with a figure and a sentence in its outputs; refresh it."
        )
    claims = (notebooks.ledger(nb) or {"claims": []})["claims"]
    section = cells[0].id.split("-")[0]
    verdict = next((f"{claim['id']} {claim['verdict']}" for claim in claims if claim["id"].lower() == section), "")
    return Cover(base64.b64decode(found[0][2]), html.unescape(found[0][1]), " ".join(said[0].split()), verdict)


def figure(path: Path) -> Cover | None:
    """The cover for a card: that of the tagged cell, else the notebook's first picture; None while it has no picture.

    Sentence and verdict are empty where the notebook has no whole cover.
    """
    try:
        return cover(path)
    except HookbookError:
        pass
    cells = sorted(notebooks.read(path).cells, key=lambda cell: not notebooks.has_tag(cell, "cover"))  # tagged first
    for cell in cells:
        for output in cell.get("outputs", []):
            if found := _IMAGE.search(notebooks.text_of(output.get("data", {}).get("text/html", ""))):
                return Cover(base64.b64decode(found[2]), html.unescape(found[1]), "", "")
    return None


def picture_path(paper: Paper) -> Path:
    """Where the cover of a paper's notebook is kept, relative to the root."""
    return COVERS / f"{paper.slug}.png"


def markdown(paper: Paper) -> str:
    """The cover as README text: the picture, and the notebook's own sentence with a link to it."""
    shown = cover(paper.notebook)
    alt = shown.alt.replace("[", "(").replace("]", ")")
    place = paper.notebook.relative_to(ROOT).as_posix()
    caption = f"*{shown.sentence}* Verdict of this quick run: {shown.verdict}. From [{paper.slug}]({place})."
    return f"![{alt}]({picture_path(paper).as_posix()})\n\n{caption}\n"
