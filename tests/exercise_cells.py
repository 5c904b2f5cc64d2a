"""Exercises put to the test: the solution passes, stub and wrong answers do not, and no answer stops the notebook."""

import ast
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from helpers.checks import within_seconds
from helpers.exercises import Exercise

WRONG = Path(__file__).parent / "exercises"
LONGEST_S = 30  # the limit of a check on small tensors


def endless(*_):
    while True:
        pass


def raising(*_):
    raise KeyError("inside")


def leaving(*_):
    exit()


def lost(*_):
    raise KeyboardInterrupt


def zeroing(*tensors):
    for tensor in tensors:
        tensor.zero_()


def returning(value):
    return lambda *_: value


# what a student's function may be, or return, by mistake
ODD = (
    *(None, "text", 3, lambda: None, raising, leaving, lost, zeroing),
    *(lambda *tensors: tensors, lambda *tensors: tensors[0].long(), lambda *tensors: tensors[0].numpy()),
    *map(returning, (None, "text", -12345.6, float("nan"), [], {}, np.zeros(3), torch.tensor(True))),
    *map(returning, (torch.zeros(0), torch.zeros(7, 7, 7), torch.full((3,), float("nan")))),
    *map(returning, (torch.zeros(3, dtype=torch.complex64), torch.zeros(3, requires_grad=True))),
)


def check_of(exercise: Exercise) -> Callable[..., str]:
    """The check alone: its cell's imports and functions in an empty namespace, without the line that calls it."""
    tree = ast.parse(exercise.check.source)
    tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef)]
    space = {}
    exec(compile(tree, f"the check of exercise {exercise.number}", "exec"), space)
    return space[exercise.check_name]


def answer(source: str, name: str) -> Callable:
    """The function that a stub or a solution defines, with torch and np as a notebook's setup imports them."""
    space = {"torch": torch, "np": np}
    exec(source, space)
    return space[name]


def wrong_answers(slug: str, number: int) -> list[Callable]:
    """The wrong but plausible answers that are kept for an exercise; none where nobody wrote any."""
    path = WRONG / f"{slug.replace('-', '_')}.py"
    if not path.exists():
        return []
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, f"exercise_{number}", list)()


def complaints(exercise: Exercise, wrong: list[Callable]) -> list[str]:
    """Everything that is wrong with an exercise, in words; nothing where a student can rely on it."""
    try:
        check = check_of(exercise)
    except Exception as error:  # a check that needs the notebook
        return [f"the check cannot be defined by itself: {type(error).__name__}: {error}"]
    found = []
    if not 0 < getattr(check, "seconds", 0) <= LONGEST_S:
        found.append(f"the check has no time limit of at most {LONGEST_S} seconds")
        check = within_seconds(LONGEST_S)(inspect.unwrap(check))
    solved = answer(exercise.solved, exercise.name)
    if (said := check(solved)) != "ok":
        return [*found, f"the solution does not pass: {said}"]
    if check(answer(exercise.stub.source, exercise.name)) == "ok":
        found.append("the untouched stub passes")
    if len(wrong) < 2:
        found.append(f"at least two wrong answers are needed, there are {len(wrong)}")
    found += [f"the wrong answer {one.__name__} passes" for one in wrong if check(one) == "ok"]
    for odd in ODD:
        if not str(said := check(odd)).startswith("not yet"):
            found.append(f"an answer that makes no sense gets {said!r}")
    if not within_seconds(0.3)(inspect.unwrap(check))(endless).startswith("not yet: no answer"):
        found.append("an endless loop is not told as one")
    if check(solved) != "ok":
        found.append("after wrong answers the solution does not pass any more: the check keeps state")
    return found
