"""Each rule about notebooks refuses the notebook that breaks just that rule, and the good one passes them all."""

import shutil

import bad_notebooks
import pytest
from bad_notebooks import AT_TEST_TIME, BREAKS, FOLDER, SLUG

from helpers import notebooks, prose
from helpers.errors import HookbookError
from helpers.rules import RULES, check


@pytest.fixture(autouse=True)
def tiny_catalogue():
    with bad_notebooks.tiny_catalogue() as paper:
        yield paper


def checked(name, tmp_path):
    """What the rules say about a file of tests/bad, under the name that its paper's notebook has."""
    path = tmp_path / f"{SLUG}.ipynb"
    shutil.copy(FOLDER / f"{name}.ipynb", path)
    return check(path)


def test_the_good_notebook_breaks_no_rule(tmp_path):
    problems = [problem for problem in checked("good", tmp_path) if problem.rule != "stale-libraries"]
    assert problems == []


def test_the_good_notebook_is_the_one_described():
    good = notebooks.read(FOLDER / "good.ipynb")
    assert [(cell.id, cell.source) for cell in good.cells] == [
        (cell.id, cell.source) for cell in bad_notebooks.source().cells
    ], "run `python tests/bad_notebooks.py`"


def test_every_rule_has_its_notebook():
    files = {path.stem for path in FOLDER.glob("*.ipynb")} - {"good"}
    assert files | set(AT_TEST_TIME) == {*RULES, "parameters"}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_bad_notebook_breaks_its_rule_and_no_other(path, tmp_path):
    rules = {problem.rule for problem in checked(path.stem, tmp_path)} - {"stale-libraries"}
    assert rules == {path.stem} - {"good", "stale-libraries"} or path.stem == "stale-libraries" and not rules


def test_stale_libraries_are_advice(tmp_path):
    problem = next(problem for problem in checked("stale-libraries", tmp_path) if problem.rule == "stale-libraries")
    assert problem.advice and "torch" in problem.message


@pytest.mark.parametrize("name", [name for name in BREAKS if "/" in name or name in AT_TEST_TIME])
def test_other_ways_to_break_a_rule(name, tmp_path):
    rules = {problem.rule for problem in check(bad_notebooks.broken(name, tmp_path))} - {"stale-libraries"}
    assert rules == {name.split("/")[0]}


def test_a_problem_names_section_and_cell(tmp_path):
    problem = checked("no-errors", tmp_path)[0]
    assert str(problem) == "C2 Moving it moves the answer, cell c2-2: the output is an error (ValueError) [no-errors]"


def test_what_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(HookbookError):
        check(tmp_path / "none.ipynb")


@pytest.mark.parametrize(
    "text",
    [
        "## C1 has 3 heads",
        "GPT-2 small, SmolLM2-135M, Pythia-2.8B, L23H3, Fig. 2, Figure 3b, Table 1, C3 to C5, Apache-2.0, float32",
        "(Tigges et al., 2023) and NeurIPS 2023",
        "`16 GB` and ``a `3` b``",
        "$x_1 = 3$ and\n\n$$\ny = 2\n$$",
        "\\begin{align} a &= 3 \\end{align}",
        "[a 3 link](https://x/1) https://a.b/3 ![7 figures](x.png)",
        "1. first\n2. second",
        "layer 0 and layer 1, 2-means, Exercise 1",
        "[paper: 53.5 %] here",
        "```\n3\n```",
        "<img width=300>",
        "It holds in\nat least 8 templates.",
    ],
)
def test_prose_that_may_hold_digits(text):
    assert list(prose.numbers(text, ["It holds in at least 8 templates."])) == []


@pytest.mark.parametrize(
    "text",
    [
        "accuracy is 71 %",
        "**0.43** of the heads",
        "at layer 12",
        "about 3 heads",
        "it costs \\$5 or $6",
        "- 5 seeds",
        "| a | 3 |",
        "see head 9.6",
        "In 12 of 24",
        "It holds in at least 9 templates.",
        "### Heading\n\n44",
    ],
)
def test_prose_with_a_number_that_goes_stale(text):
    assert list(prose.numbers(text, ["It holds in at least 8 templates."])) != []
