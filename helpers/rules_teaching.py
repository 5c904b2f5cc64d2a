"""Rules about what a student meets: what is learned, what it takes, exercises that check themselves, discussion."""

import re

from helpers import cells, notebooks
from helpers.errors import HookbookError
from helpers.exercises import LIMIT, Exercise, given_away, of
from helpers.rulebook import Book, Found, rule

FIELDS = ("Prerequisites", "Minutes", "Difficulty", "Techniques")
N_GOALS, N_EXERCISES, N_QUESTIONS = 3, 2, 3
_ITEM = re.compile(r"^(?:\d+[.)]|[-*])[ \t]+\S", re.MULTILINE)


@rule
def teaching(book: Book) -> Found:
    """What a teacher asks of a notebook: goals, what it takes, what is refuted and where, what to talk about."""
    first = book.nb.cells[0].source if book.nb.cells else ""
    for field in FIELDS:
        if not re.search(rf"\*\*{field}\*\*[ \t]+[^\s·]", first):
            yield "the first cell", f"`**{field}** ...` is missing"
    goals = _items(first, "You will learn")
    if goals not in (None, N_GOALS):  # without the title it is another rule's
        yield "the first cell", f"{goals} things to learn are listed, {N_GOALS} are expected"
    section = _section(book, "Exercises")
    if (questions := _items(section, "To discuss") or 0) < N_QUESTIONS:
        yield "Exercises", f"{questions} questions `To discuss`, at least {N_QUESTIONS} are expected"
    if not _items(section, "What this notebook refutes"):
        yield "Exercises", "`What this notebook refutes` lists nothing"
    refuted = book.paper.teaching.misconceptions if book.paper and book.paper.teaching else []
    if book.paper and not refuted:
        yield "data/papers.yaml", "no misconceptions that this notebook refutes are named"
    ids = {cell.get("id") for cell in book.nb.cells}
    for belief in refuted:
        if belief.cell not in ids:
            yield "data/papers.yaml", f"{belief.name!r} leads to the cell {belief.cell}, which does not exist"


@rule
def exercises(book: Book) -> Found:
    """Stub, check and folded solution; the check needs nothing but the answer, and the stub is not filled in."""
    try:
        found = of(book.nb)
    except HookbookError as error:
        yield "Exercises", str(error)
        return
    if len(found) < N_EXERCISES:
        yield "Exercises", f"{len(found)} exercises with stub, check and solution, at least {N_EXERCISES} are expected"
    if not re.search(r"\bbe fake\b", _section(book, "Exercises"), re.IGNORECASE):
        yield "Exercises", "no exercise asks how this could be fake"
    for exercise in found:
        for problem in (*_shape(exercise), *_leaks(book, exercise)):
            yield "Exercises", f"exercise {exercise.number}: {problem}"


def _shape(exercise: Exercise) -> list[str]:
    found = []
    if exercise.name is None or exercise.solved_name != exercise.name:
        found.append(f"the stub defines {exercise.name or 'nothing'}, the solution {exercise.solved_name or 'nothing'}")
    if not exercise.folded:
        found.append("the solution is not folded: put it between <details> and </details>")
    if not exercise.has_time_limit:
        found.append(f"the check has no time limit: decorate it with helpers.checks.{LIMIT}")
    if state := cells.taken_from_outside(exercise.check.source):
        found.append(f"the check needs {', '.join(state)} of the notebook: import or define it in its own cell")
    said = "".join(notebooks.strings([output.get("text", "") for output in exercise.check.outputs]))
    if not said.startswith("not yet"):
        found.append("the check's output does not begin with `not yet`: the stub must stay untouched")
    return found


def _leaks(book: Book, exercise: Exercise) -> list[str]:
    for index, cell in enumerate(book.nb.cells):
        if cell is not exercise.solution:
            texts = [cell.source, *notebooks.strings(cell.get("outputs", []))]
            if line := given_away(exercise, texts):
                return [f"a line of the solution, `{line}`, also stands at {book.place(index)}"]
    return []


def _section(book: Book, name: str) -> str:
    """The markdown of a section, down to the next one."""
    inside, found = False, []
    for cell in book.nb.cells:
        if cell.cell_type == "markdown":
            for part in re.split(r"^(?=##[ \t])", cell.source, flags=re.MULTILINE):
                if part.startswith("## "):
                    inside = part.splitlines()[0].removeprefix("##").strip(" #\t") == name
                found += [part] if inside else []
    return "\n\n".join(found)


def _items(markdown: str, title: str) -> int | None:
    """The number of items in the list under a bold or headed title; None where there is no such title."""
    found = re.search(rf"^(?:#+[ \t]+|\*\*){title}(.*?)(?=^#|^\*\*|\Z)", markdown, re.MULTILINE | re.DOTALL)
    return len(_ITEM.findall(found[1])) if found else None
