"""The skeleton of a notebook: its sections in order, its cells in shape, and that nothing is overwritten."""

import ast
import contextlib
import io
import re
import subprocess
import sys

import nbformat
import pytest
from catalogue_entries import PLANNED, STANDS

from helpers import exercises, notebooks, skeleton
from helpers.errors import HookbookError
from helpers.papers import ROOT, Paper, catalogue, paper

SECTIONS = ["title", "parameters", "setup", "data", "controls", "explore", "ledger", "exercises", "paper-size"]
SLUGS = ["sentiment-direction", "space-and-time", "al-rnn", "generation-vs-understanding-talk"]


def entry(of, **fields):
    return Paper.model_validate({"slug": "some-paper", **of, **fields})


def sections(nb):
    """The sections in the order in which their cells come."""
    return list(dict.fromkeys(re.fullmatch(r"(.+)-(text|code)-\d+", cell.id)[1] for cell in nb.cells))


@pytest.mark.parametrize("slug", SLUGS)
def test_new_writes_a_valid_notebook_at_its_place(tmp_path, slug):
    path = skeleton.new(slug, tmp_path)
    assert path == tmp_path / "notebooks" / paper(slug).theme / f"{slug}.ipynb"
    nb = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(nb)
    assert (nb.nbformat, nb.nbformat_minor) == (4, 5)
    assert nb.metadata.kernelspec.name == "python3"
    for cell in nb.cells:
        assert cell.source.strip() and len(cell.source.splitlines()) <= 30
        assert cell.cell_type == "markdown" or (cell.outputs == [] and cell.execution_count is None)


def test_every_paper_has_a_skeleton():
    for one in catalogue().values():
        nb = skeleton.skeleton(one)
        first = f"# {one.title}\n"
        assert nb.cells[0].source.startswith(first)


def test_sections_come_in_the_order_of_every_notebook():
    planned = sections(skeleton.skeleton(entry(PLANNED)))
    assert planned == [*SECTIONS[:4], "c1", *SECTIONS[4:]]
    stated = sections(skeleton.skeleton(entry(STANDS)))
    assert stated == [*SECTIONS[:4], "c1", "c2", *SECTIONS[4:]]


def test_ids_derive_from_section_kind_and_order():
    nb = skeleton.skeleton(entry(STANDS))
    ids = [cell.id for cell in nb.cells]
    assert ids == [cell.id for cell in skeleton.skeleton(entry(STANDS)).cells]
    assert [name for name in ids if name.startswith("c2-")] == [
        "c2-text-1",
        "c2-code-1",
        "c2-text-2",
        "c2-code-2",
        "c2-text-3",
        "c2-code-3",
    ]


def test_existing_notebook_is_never_overwritten(tmp_path):
    path = skeleton.new("al-rnn", tmp_path)
    path.write_text("my work")
    with pytest.raises(HookbookError, match="exists already"):
        skeleton.new("al-rnn", tmp_path)
    assert path.read_text() == "my work"


def test_unknown_paper(tmp_path):
    with pytest.raises(HookbookError, match="did you mean al-rnn"):
        skeleton.new("al-rn", tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("slug", SLUGS)
def test_parameters_can_be_read_and_are_all_read_later(tmp_path, slug):
    path = skeleton.new(slug, tmp_path)
    names = [parameter.name for parameter in notebooks.parameters(path)]
    always = ["model_name", "revision", "dtype", "device", "seed"]
    text = ["prepend_bos", "chat_template"] if paper(slug).tier == "A" else []
    assert names == always + text
    assert all(parameter.annotation and parameter.paper for parameter in notebooks.parameters(path))
    assert notebooks.unread_parameters(path) == []


def test_the_model_is_loaded_as_the_parameters_say():
    cells = {cell.id: cell.source for cell in skeleton.skeleton(entry(PLANNED)).cells}
    calls = [node for node in ast.walk(ast.parse(cells["setup-code-1"])) if isinstance(node, ast.Call)]
    load = next(call for call in calls if getattr(call.func, "id", "") == "load_model")
    assert load.args[0].id == "model_name"
    assert {word.arg: word.value.id for word in load.keywords} == {
        name: name for name in ("device", "dtype", "revision", "seed")
    }


def test_title_says_what_the_catalogue_says():
    text = skeleton.skeleton(entry(STANDS)).cells[0].source
    for part in (
        "# A: B",
        "Özgür Şimşek. *ICLR 2024*",
        "https://arxiv.org/abs/2310.00001",
        "https://github.com/owner/repo",
        "One idea.",
        "- a\n- b\n- c",
        "`20` to read, `0.5` to run, `30` for",
        "introductory",
        "probes",
        "- **C1** It can be read.",
        "- **C2** ",
    ):
        assert part in text
    assert "TODO" not in text


def test_title_of_a_paper_that_nobody_could_confirm():
    text = skeleton.title_markdown(entry(PLANNED, authors=[], arxiv=None, code=None, unsure=["authors"]))
    assert "authors not known. *ICLR 2024* (not confirmed: authors)\n" in text
    assert "http" not in text


def test_each_claim_has_its_heading_its_rows_and_its_check():
    claims = [
        STANDS["claims"][0],
        {**STANDS["claims"][1], "id": "C2a", "unit": ["word pair", "template"], "statement": "It moves the answer."},
    ]
    cells = {cell.id: cell.source for cell in skeleton.skeleton(entry(STANDS, claims=claims)).cells}
    assert cells["c2a-text-1"].startswith("## C2a. It moves the answer\n")
    assert cells["c2a-code-3"] == 'ledger.check("C2a", rows_c2a)'
    frame = ast.parse(cells["c2a-code-1"]).body[0]
    assert frame.targets[0].id == "rows_c2a"
    columns = [key.value for key in frame.value.args[0].keys]
    assert columns == ["word_pair", "template", "value", "shuffled_labels"]
    assert "accuracy on held-out words" in cells["c2a-code-1"]
    assert "shuffled_labels" in cells["controls-text-1"]


def test_the_rest_of_the_catalogue_finds_its_place():
    cells = {cell.id: cell for cell in skeleton.skeleton(entry(STANDS, silent=["Which seed."])).cells}
    assert "- That it is used." in cells["ledger-text-2"].source
    assert "- Which seed." in cells["ledger-text-2"].source
    assert "[probed is used](#c1-text-1)" in cells["exercises-text-6"].source
    assert "hookbook run some-paper --preset paper" in cells["paper-size-text-1"].source
    assert cells["parameters-code-1"].metadata.tags == ["parameters"]
    tagged = {cell.id: cell.metadata.tags[0] for cell in cells.values() if "tags" in cell.metadata}
    assert tagged == {
        "parameters-code-1": "parameters",
        "exercises-code-1": "exercise",
        "exercises-code-2": "check",
        "exercises-text-2": "solution",
        "exercises-code-3": "exercise",
        "exercises-code-4": "check",
        "exercises-text-4": "solution",
    }


def test_exercises_are_those_that_the_rules_ask_for():
    nb = skeleton.skeleton(entry(STANDS))
    found = exercises.of(nb)
    assert [(one.name, one.solved_name, one.folded, one.has_time_limit) for one in found] == [
        ("compute", "compute", True, True),
        ("fair_control", "fair_control", True, True),
    ]
    for one in found:
        space = {}
        exec(one.stub.source, space)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(one.check.source, space)
        assert said.getvalue().startswith("not yet")


def test_what_a_person_must_write_is_marked():
    cells = {cell.id: cell.source for cell in skeleton.skeleton(entry(PLANNED)).cells}
    finished = {"parameters-text-1", "setup-text-1", "setup-code-1", "ledger-text-1", "ledger-code-1"}
    assert {name for name, source in cells.items() if "TODO" not in source} == finished
    assert "data/papers.yaml" in cells["c1-text-1"]


@pytest.mark.parametrize("of", [PLANNED, STANDS, PLANNED | {"tier": "B"}], ids=["planned", "stands", "own network"])
def test_code_passes_the_projects_own_linter(of):
    nb = skeleton.skeleton(entry(of))
    for command in (["check"], ["format", "--check"]):
        where = ["--stdin-filename", str(ROOT / "notebooks" / "circuits" / "some-paper.ipynb"), "-"]
        ruff = [sys.executable, "-m", "ruff", *command, *where]
        done = subprocess.run(ruff, input=nbformat.writes(nb), capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stdout + done.stderr
