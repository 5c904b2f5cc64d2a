"""Every exercise: the solution passes its check, the untouched stub and plausible wrong answers do not."""

import importlib.util
import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch

HERE = Path(__file__).parent
NOTEBOOKS = sorted((HERE.parent / "notebooks").glob("*/*.ipynb"))  # not Jupyter's checkpoints


def exercises():
    found = []
    for path in NOTEBOOKS:
        cells = nbformat.read(path, as_version=4).cells
        tagged = {
            tag: [c.source for c in cells if tag in c.metadata.get("tags", [])]
            for tag in ("exercise", "check", "solution")
        }
        for number, parts in enumerate(zip(*tagged.values(), strict=True), start=1):
            found.append(pytest.param(path.stem, number, *parts, id=f"{path.stem}-{number}"))
    return found


def wrong_answers(slug, number):
    path = HERE / "exercises" / f"{slug.replace('-', '_')}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, f"exercise_{number}")()


def defined(source):
    """The first function that a cell defines, by name and object."""
    space = {"torch": torch, "np": np}  # as the notebook's setup imports them
    exec(source, space)
    name = re.search(r"^def (\w+)", source, re.MULTILINE)[1]
    return name, space[name]


def check_of(source):
    return defined(re.sub(r"^print\(.*$", "", source, flags=re.MULTILINE))[1]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("slug", "number", "stub", "check", "solution"), exercises())
def test_exercise(slug, number, stub, check, solution):
    check = check_of(check)
    name, empty = defined(stub)
    assert check(empty) != "ok", "the untouched stub passes"
    blocks = re.findall(r"```python\n(.*?)```", solution, re.DOTALL)
    assert blocks, "no solution is given"
    solved_name, solved = defined(blocks[0])
    assert solved_name == name
    assert check(solved) == "ok"
    wrong = wrong_answers(slug, number)
    assert len(wrong) >= 2, "at least two wrong answers are needed"
    passing = [answer.__name__ for answer in wrong if check(answer) == "ok"]
    assert not passing, f"these wrong answers pass: {passing}"


def test_a_check_reports_instead_of_raising():
    """A function with the wrong signature, or one that fails, must give a message."""

    def broken(*_):
        raise KeyError("inside")

    for parameter in exercises():
        check = check_of(parameter.values[3])
        for answer in (broken, lambda: None, None):
            assert check(answer).startswith("not yet")
