"""A course of some weeks from what stands: easy notebooks first, every theme before a second one of the same."""

from collections import Counter
from dataclasses import dataclass

from book.shown import Shown
from book.teaching import LEVELS, ordered

_STEPS = (  # what a class can do with one notebook, when there are more weeks than notebooks
    ("Read", "Read the notebook before class; in class, say of each claim what one would see if it were false."),
    ("Rerun", "Run it with the defaults, then change one parameter each, and compare whose verdicts move."),
    ("Exercises", "Do the exercises; the last one asks how the result could be fake. Discuss the questions below it."),
    ("Doubt", "Sweep over seeds and layers, and audit: which claims does a network pass that has learned nothing?"),
    ("Extend", "Run the evidence preset on a second model and compare verdicts; state one new claim, its test first."),
    ("Write", "Each group writes half a page: what was shown, on what units, and what was not claimed."),
)  # fmt: skip


@dataclass(frozen=True)
class Week:
    """A week: its number, what to read, what to do."""

    number: int
    title: str
    papers: list[Shown]
    task: str

    @property
    def minutes(self) -> int:
        """Minutes of reading and exercises."""
        return sum(one.paper.teaching.minutes.read + one.paper.teaching.minutes.exercise for one in self.papers)


def weeks(papers: list[Shown], count: int) -> list[Week]:
    """A plan of `count` weeks; where fewer notebooks stand, each is worked on for several weeks.

    Where more stand, the plan chooses: from every level its share of the weeks, and within a level the themes in turn.
    """
    chosen = _chosen(ordered(papers), count)
    if not chosen:
        return []
    found = []
    for index, one in enumerate(chosen):
        first, last = index * count // len(chosen), (index + 1) * count // len(chosen)
        for step in range(last - first):
            name, task = _STEPS[step % len(_STEPS)]
            title = one.paper.title if last - first == 1 else f"{name}: {one.paper.title}"
            whole = "Read it before class, rerun it in class, do the exercises after."
            found.append(Week(len(found) + 1, title, [one], whole if last - first == 1 else task))
    return found


def _chosen(rows: list[Shown], count: int) -> list[Shown]:
    if len(rows) <= count:
        return rows
    levels = [[one for one in rows if one.paper.teaching.difficulty == level] for level in LEVELS]
    shares = [round(count * len(level) / len(rows)) for level in levels]
    shares[max(range(3), key=lambda i: shares[i])] += count - sum(shares)
    used: Counter[str] = Counter()
    return [one for level, share in zip(levels, shares, strict=True) for one in _in_turn(level, share, used)]


def _in_turn(rows: list[Shown], share: int, used: Counter[str]) -> list[Shown]:
    """So many of a level, each of the theme that was used least so far."""
    left, chosen = list(rows), []
    while left and len(chosen) < share:
        one = min(left, key=lambda one: used[one.paper.theme])
        used[one.paper.theme] += 1
        left.remove(one)
        chosen.append(one)
    return chosen
