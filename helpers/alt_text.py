"""What a picture's alternative text must say: what is drawn against what, and what one sees there."""

import re
from collections.abc import Iterator

from helpers.prose import numbers

SHORTEST = 40  # characters
_AXES = re.compile(
    r"\b(?:against|over|per|by|across|versus|axis|axes|horizontal\w*|vertical\w*|rows?|columns?|histogram|table"
    r"|one \w+ (?:a|an|for each))\b",
    re.IGNORECASE,
)
_COMPARED = re.compile(
    r"\b(?:more|less|fewer|higher|lower|larger|smaller|above|below|beyond|clear of|rises?|falls?|grows?|shrinks?|peaks?"
    r"|drops?|flat|moves? from)\b|\b\w+er than\b",
    re.IGNORECASE,
)
_LAYER = re.compile(r"\blayers? \d+\b", re.IGNORECASE)  # a place and no finding


def lacks(text: str) -> Iterator[str]:
    """What the alternative text of a figure still lacks, as an author reads it."""
    if len(text) < SHORTEST:
        yield f"a picture needs {SHORTEST} characters of alternative text, it has {text!r}"
        return
    if not _AXES.search(text):
        yield f"no axis is named in {_start(text)}: say what is drawn against what, or what one dot is"
    if not _COMPARED.search(text) and not any(numbers(_LAYER.sub("", text), [])):
        yield f"no finding is told in {_start(text)}: add the number that the figure shows, or what is higher"


def _start(text: str) -> str:
    return repr(text if len(text) <= 50 else f"{text[:47]}...")
