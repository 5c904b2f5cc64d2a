"""Every exercise: the solution passes its check, stub and wrong answers do not, and no answer hangs or raises."""

import pytest
from bad_notebooks import BREAKS, CHECKS, SOLUTIONS, STUBS, source
from exercise_cells import complaints, wrong_answers
from nbformat.v4 import new_code_cell, new_markdown_cell

from helpers import exercises, notebooks, papers
from helpers.errors import HookbookError
from helpers.exercises import Exercise

EACH = [
    pytest.param(path.stem, exercise, id=f"{path.stem}-{exercise.number}")
    for path in sorted(papers.ROOT.glob("notebooks/*/*.ipynb"))  # not Jupyter's checkpoints
    for exercise in exercises.of(notebooks.read(path))
]


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize(("slug", "exercise"), EACH)
def test_exercise(slug, exercise):
    found = complaints(exercise, wrong_answers(slug, exercise.number))
    assert not found, f"{slug}, exercise {exercise.number}:\n" + "\n".join(found)


# the same, on small exercises that must be caught


def total(values):
    return sum(values)


def first(values):
    return values[0]


WRONG = [total, first]


def exercise(stub=STUBS[0], check=CHECKS[0], solution=SOLUTIONS[0]):
    return Exercise(1, new_code_cell(stub), new_code_cell(check), new_markdown_cell(solution))


def test_a_good_exercise_has_nothing_wrong():
    assert complaints(exercise(), WRONG) == []


def test_a_solution_in_a_code_cell_counts_too():
    code = "def mean(values):\n    return sum(values) / len(values)"
    good = exercise()
    assert complaints(Exercise(1, good.stub, good.check, new_code_cell(code)), WRONG) == []


NOTHING = 'return "not yet: nothing came back"'
CALL = "    found = mean("


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("edits", "complaint"),
    [
        ({"@within_seconds(5)\n": ""}, "the check has no time limit of at most 30 seconds"),
        ({"within_seconds(5)": "within_seconds(500)"}, "the check has no time limit of at most 30 seconds"),
        ({"(mean):": "(mean, limit=seed):"}, "the check cannot be defined by itself: NameError: name 'seed'"),
        ({"- 3.0)": "- 2.0)"}, "the solution does not pass: not yet: 3.0 is not 3.0"),
        ({NOTHING: 'return "ok"'}, "the untouched stub passes"),
        ({"1e-6": "7"}, "the wrong answer total passes"),
        ({"not yet: {found}": "no: {found}"}, "an answer that makes no sense gets 'no: "),
        ({"(mean):": "(mean, seen=[]):", CALL: f"    seen.append(1)\n    assert len(seen) < 5\n{CALL}"}, "keeps state"),
    ],
)
def test_what_is_wrong_with_an_exercise_is_told(edits, complaint):
    check = CHECKS[0]
    for old, new in edits.items():
        assert old in check
        check = check.replace(old, new)
    found = complaints(exercise(check=check), WRONG)
    assert any(complaint in one for one in found), found


def test_one_wrong_answer_is_too_few():
    assert complaints(exercise(), WRONG[:1]) == ["at least two wrong answers are needed, there are 1"]
    assert wrong_answers("no-such-paper", 1) == [] and wrong_answers("sentiment-direction", 99) == []


def test_a_filled_in_stub_is_told():
    stub = STUBS[0].replace("...  # your code", "return sum(values) / len(values)")
    assert complaints(exercise(stub=stub), WRONG) == ["the untouched stub passes"]


# what belongs to an exercise


def test_exercises_are_found_in_order():
    one, two = exercises.of(source())
    assert (one.number, one.name, one.check_name, one.solved_name) == (1, "mean", "check_mean", "mean")
    assert (two.number, two.name) == (2, "distance")
    assert two.revealing == [
        "first, second = sum(one) / len(one), sum(other) / len(other)",
        "abs(first - second)",
    ]


def test_what_is_trivial_gives_nothing_away():
    solution = "```python\nimport torch\n\ndef mean(values):\n    n = 1\n    # the mean of a list\n    return n\n```"
    assert exercise(solution=solution).revealing == ["# the mean of a list"]


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\nabs(first-second)",
        "print('abs(first - second)')",
        "<pre>\n    return abs(first\n - second)</pre>",
        "'def f():\\n    return abs(first - second)\\n'",
    ],
)
def test_a_line_is_found_however_it_is_written(text):
    two = exercises.of(source())[1]
    assert exercises.given_away(two, ["nothing", text]) == "abs(first - second)"
    assert exercises.given_away(two, ["nothing", "first - second"]) is None


@pytest.mark.parametrize("name", ["exercises/untagged", "exercises/unfinished"])
def test_cells_that_do_not_come_in_threes_are_refused(name):
    nb = source()
    BREAKS[name](nb)
    with pytest.raises(HookbookError, match="`check` is due|no cell tagged `solution`|`solution` where"):
        exercises.of(nb)


def test_what_is_left_of_a_solution_is_the_next_task():
    one, two = exercises.of(source())
    left = "**Exercise 2: how could this be fake?** The distance between two means."
    assert exercises.without_solution(one.solution.source) == left
    assert exercises.without_solution(two.solution.source) == ""
    assert exercises.without_solution("```python\nx = 1\n```\n\nNext.") == "Next."
