"""What holds for every committed notebook; nothing is executed."""

from pathlib import Path

# the two modules fill the list of rules
from helpers import notebooks, papers, rules_outputs, rules_source, rules_teaching  # noqa: F401
from helpers.errors import HookbookError
from helpers.rulebook import RULES, Book, Problem

__all__ = ["RULES", "Problem", "check"]

_ADVICE = ("long-cell", "stale-libraries")


def check(path: Path) -> list[Problem]:
    """All problems of a notebook, in the order of the rules; an unreadable parameters cell hides the others.

    Raises:
        HookbookError: there is no such notebook, or it cannot be parsed.
    """
    nb = notebooks.read(path)
    try:
        book = Book(path, nb, papers.catalogue().get(path.stem), notebooks.parameters(nb))
    except HookbookError as error:
        return [Problem("parameters", "Parameters", str(error))]
    found = []
    for name, rule in RULES.items():
        for place, message in rule(book):
            where = book.place(place) if isinstance(place, int) else place
            found.append(Problem(name, where, message, advice=name in _ADVICE))
    return found
