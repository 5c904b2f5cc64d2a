"""The values of a grid as people type them: `0:20`, `0:20:5`, `a,b`, and text in quotes where it holds a comma."""

import re
from itertools import product
from typing import Any

from helpers.errors import HookbookError

_RANGE = re.compile(r"([-+]?\d+):([-+]?\d+)(?::([-+]?\d+))?")
_OPEN, _CLOSE = "([{", ")]}"


def pairs(grids: list[str]) -> dict[str, list[Any]]:
    """`["seed=0:3", "label=a,b"]` as names with their values.

    Raises:
        HookbookError: a grid without a name or values, or a name given twice.
    """
    found: dict[str, list[Any]] = {}
    for grid in grids:
        name, equals, text = grid.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise HookbookError(f'--grid needs a name and values, as in `--grid "seed=0:20"`; {grid!r} has not both.')
        if name in found:
            raise HookbookError(f"--grid {name} is given twice: put all its values into one list.")
        found[name] = values(text, name)
    return found


def values(text: str, name: str) -> list[Any]:
    """The values of one parameter: pieces between commas, each a range of whole numbers or one value as text.

    A range ends before its end, as in Python. Quotes and brackets protect commas; what stands in quotes is text as it
    is, and never a range.

    Raises:
        HookbookError: an empty piece, an empty range, a quote or bracket that is not closed.
    """
    found: list[Any] = []
    for piece in _pieces(text, name):
        match = _RANGE.fullmatch(piece)
        if match:
            found += _range(match, name)
        elif piece[:1] in ("'", '"') and len(piece) > 1 and piece[-1] == piece[0]:
            found.append(piece[1:-1])
        elif piece:
            found.append(piece)
        else:
            raise HookbookError(f"The grid of {name} has an empty value in {text!r}: take out the comma, or write ''.")
    return found


def points(grid: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination, the last name varying fastest."""
    return [dict(zip(grid, chosen, strict=True)) for chosen in product(*grid.values())]


def _range(match: re.Match, name: str) -> range:
    start, end, step = int(match[1]), int(match[2]), int(match[3] or 1)
    numbers = range(start, end, step) if step else range(0)
    if not numbers:
        raise HookbookError(
            f"The range {match[0]} of {name} is empty: write start:end or start:end:step; it ends before its end."
        )
    return numbers


def _pieces(text: str, name: str) -> list[str]:
    pieces, current, quote, depth = [], "", "", 0
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"" and (not current.strip() or depth):
            quote = character  # a quote within a word, as in don't, is only a letter
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        if character == "," and not quote and depth <= 0:
            pieces.append(current.strip())
            current = ""
        else:
            current += character
    if quote or depth > 0:
        missing = quote or "bracket"
        raise HookbookError(f"The grid of {name} has a {missing} that is not closed: {text!r}.")
    return [*pieces, current.strip()]
