"""Numbers in a notebook's prose: which are names or quotations, and which are results that will go stale."""

import re
from collections.abc import Iterator
from typing import Any

from helpers.notebooks import without_code

# Digits that are part of a name, in the order in which they are taken out.
ALLOWED = (
    r"\b[A-Za-z]+\d[\w-]*(?:\.\d\w*)*",  # SmolLM2-135M, L23H3, C1a, float32
    r"\b[A-Z][A-Za-z]*-\d+(?:\.\d+)*[A-Za-z]?\b(?:-[A-Za-z]\w*)*",  # GPT-2, Pythia-2.8B, Apache-2.0
    r"\b(?:Fig(?:ure|s|\.)?|Tables?|Sections?|Sec\.|Eq(?:uation|\.)?|Appendix|Chapter|Exercises?) ?\d+(?:\.\d+)*[a-z]?",
    r"\b[A-Z]\w* (?:19|20)\d\d\b",  # NeurIPS 2023
    r"\((?:[^()\d]*,? )?(?:19|20)\d\d[a-z]?\)",  # (Tigges et al., 2023)
    r"\blayers? [01]\b",  # the embeddings and the first block: places, not findings
    r"\b\d-(?:means|grams?)\b",
    r"^[ \t]*\d+[.)][ \t]",  # the numbers of a list
)
_NOT_PROSE = (
    r"^[ \t]{0,3}#{1,6}[ \t].*$",  # headings
    r"(`+)(?:(?!\1).)+?\1",  # code spans
    r"\$\$.+?\$\$",
    r"(?<![\\$])\$(?!\s)(?:\\.|[^$])+?(?<!\s)\$",
    r"\\begin\{(\w+\*?)\}.*?\\end\{\1\}",
    r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\([^)]*\)",  # links and pictures
    r"https?://\S+",
    r"<[^<>]+>",  # the inside of HTML tags
)
_QUOTE = re.compile(r"\[paper: ([^\]]+)\]")


def numbers(markdown: str, known: list[str]) -> Iterator[str]:
    """Every number left in the prose after what is allowed, with a few words around it.

    Args:
        markdown: the source of one cell.
        known: texts that may be repeated word for word, such as a claim's statement.
    """
    text = _QUOTE.sub(" ", without_code(markdown))
    for pattern in _NOT_PROSE:
        text = re.sub(pattern, " ", text, flags=re.MULTILINE | re.DOTALL if "^" not in pattern else re.MULTILINE)
    text = _without(text, known)
    for pattern in ALLOWED:
        text = re.sub(pattern, " ", text, flags=re.MULTILINE)
    for found in re.finditer(r"\d(?:[\d.,]*\d)?", text):
        yield " ".join(text[max(0, found.start() - 25) : found.end() + 15].split())


def quotes(markdown: str) -> list[str]:
    """What stands in `[paper: ...]`."""
    return [quote.strip() for quote in _QUOTE.findall(without_code(markdown))]


def texts(entry: Any) -> list[str]:
    """All texts and numbers of an entry of the catalogue, at whatever depth."""
    if isinstance(entry, dict):
        return [text for value in entry.values() for text in texts(value)]
    if isinstance(entry, list):
        return [text for value in entry for text in texts(value)]
    return [] if entry is None or isinstance(entry, bool) else [" ".join(str(entry).split())]


def _without(text: str, known: list[str]) -> str:
    """Without sentences taken word for word from the catalogue (line breaks may differ); a bare number is none."""
    for sentence in known:
        if re.search(r"\d", sentence) and len(sentence.split()) > 2:
            words = r"\s+".join(re.escape(word) for word in sentence.rstrip(".").split())
            text = re.sub(words, " ", text)
    return text
