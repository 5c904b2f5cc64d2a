"""Each rule about notebooks refuses the notebook that breaks just that rule, and the good one passes them all."""

import shutil
from pathlib import Path

import bad_notebooks
import pytest
from bad_notebooks import AT_TEST_TIME, BREAKS, FOLDER, SLUG

from helpers import alt_text, notebooks, papers, prose
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


@pytest.mark.parametrize("place", ["root", "own folder", "a copy elsewhere"])
def test_the_rules_hold_from_everywhere(place, tmp_path, monkeypatch):
    name = f"{SLUG}.ipynb"
    for folder in ("own", "elsewhere"):
        (tmp_path / folder).mkdir()
        shutil.copy(FOLDER / "good.ipynb", tmp_path / folder / name)
    monkeypatch.chdir({"root": papers.ROOT, "own folder": tmp_path / "own"}.get(place, tmp_path / "elsewhere"))
    problems = check(tmp_path / "own" / name if place == "root" else Path(name))
    assert [str(problem) for problem in problems if not problem.advice] == []


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


REASONS = {
    "alternative-text": "needs 40 characters",
    "alternative-text/axes": "no axis is named",
    "alternative-text/finding": "no finding is told",
    "alternative-text/markdown": "figure.png",
    "declared-imports": "flask is no dependency",
    "declared-imports/install": "`!pip install x` installs",
    "metadata": "`execution`",
    "metadata/output": "an output's metadata",
    "no-absolute-paths/ledger": "cell ledger-2: an absolute path: '/home",
    "no-absolute-paths/metadata": "metadata: an absolute path: '/scratch",
    "no-absolute-paths/windows": "'C:/Users",
    "no-errors/printed": "a traceback",
    "teaching": "**Difficulty**",
    "teaching/goals": "2 things to learn",
    "teaching/questions": "2 questions",
    "teaching/refuted": "lists nothing",
    "teaching/misconception": "leads to the cell c2-2",
    "exercises": "exercise 1: the check has no time limit",
    "exercises/untagged": "tagged `solution` where `check` is due",
    "exercises/unfinished": "no cell tagged `solution`",
    "exercises/few": "1 exercises",
    "exercises/fake": "be fake",
    "exercises/names": "the stub defines mean, the solution average",
    "exercises/unfolded": "exercise 2: the solution is not folded",
    "exercises/state": "needs rows of the notebook",
    "exercises/solved": "the stub must stay untouched",
    "exercises/shown": "`abs(first - second)`, also stands at C2 Moving it moves the answer, cell c2-2",
    "exercises/printed": "`sum(values) / len(values)`, also stands at C2",
}


@pytest.mark.parametrize("name", REASONS)
def test_it_is_caught_for_just_that_reason(name, tmp_path):
    found = [str(problem) for problem in check(bad_notebooks.broken(name, tmp_path)) if not problem.advice]
    assert len(found) == 1 and REASONS[name] in found[0]


@pytest.mark.parametrize(
    "text",
    [
        "Recovery of the logit difference for the direction and three controls, one dot a template; 0.79 on average.",
        "Left: map by layer and token of one review; it moves from the adjective to the last token.",
        "Projection against the valence given by raters; the kind words lie higher than the harsh ones.",
    ],
)
def test_a_text_that_tells_a_figure(text):
    assert list(alt_text.lacks(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "Figure with two panels about the sentiment direction of SmolLM2-135M",
        "The left panel shows the projection, and the right panel shows what moves",
        "Share of held-out words on the right side against the layer. Layer 0 is the embedding.",
    ],
)
def test_a_text_that_tells_no_figure(text):
    assert list(alt_text.lacks(text)) != []


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
