"""The students' copy: not a line of a solution, stubs untouched, every check `not yet`, and no work overwritten."""

import contextlib
import io
import json
import re

import bad_notebooks
import numpy as np
import pytest
import torch
from nbformat.v4 import new_code_cell, new_output

from helpers import notebooks, papers, student
from helpers.errors import HookbookError

NOTEBOOKS = sorted(papers.ROOT.glob("notebooks/*/*.ipynb"))


@pytest.fixture
def good():
    return notebooks.read(bad_notebooks.FOLDER / "good.ipynb")


@pytest.fixture
def written(good, tmp_path):
    """Path of the original and of its copy."""
    path = tmp_path / "tiny-paper.ipynb"
    notebooks.write(good, path)
    return path, student.write(path, tmp_path / "copy.ipynb")


def solution_lines(nb):
    """What must not be left: the lines of code in solutions that are neither short nor stand in a stub."""
    stubs = {line.strip() for cell in tagged(nb, "exercise") for line in cell.source.splitlines()}
    sources = [cell.source for cell in tagged(nb, "solution")]
    blocks = [block for source in sources for block in re.findall(r"```python\n(.*?)```", source, re.DOTALL)]
    lines = {line.strip() for block in blocks for line in block.splitlines()}
    return {line for line in lines if len(line) > 10 and line not in stubs}


def tagged(nb, tag):
    return [cell for cell in nb.cells if notebooks.has_tag(cell, tag)]


def answers_to_untouched_stubs(nb):
    """What the check cells print when everything is run as the students get it."""
    said = []
    for stub, check in zip(tagged(nb, "exercise"), tagged(nb, "check"), strict=True):
        space = {"torch": torch, "np": np}
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(stub.source, space)
            exec(check.source, space)
        said.append(printed.getvalue())
    return said


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_has_a_copy_without_solutions(path, tmp_path):
    original, copy = notebooks.read(path), notebooks.read(student.write(path, tmp_path))
    lines = solution_lines(original)
    left = {line.strip() for text in notebooks.strings(list(copy.cells)) for line in text.splitlines()}
    assert lines and not lines & left
    assert not any(json.dumps(line)[1:-1] in json.dumps(copy) for line in lines)
    assert [cell.source for cell in tagged(copy, "exercise")] == [cell.source for cell in tagged(original, "exercise")]
    said = answers_to_untouched_stubs(copy)
    assert len(said) == len(tagged(original, "solution")) and all(text.startswith("not yet") for text in said)


def test_what_is_left_and_what_is_gone(written):
    original, copy = map(notebooks.read, written)
    gone = {cell.id for cell in original.cells} - {cell.id for cell in copy.cells}
    assert gone == {"exercise-2-solution"}
    next_task = bad_notebooks.cell(copy, "exercise-1-solution")
    assert next_task.source.startswith("**Exercise 2: how could this be fake?**") and "details" not in next_task.source
    assert tagged(copy, "solution") == []
    for cell in tagged(copy, "exercise") + tagged(copy, "check"):
        assert cell.outputs == [] and cell.execution_count is None
    assert notebooks.ledger(copy) == notebooks.ledger(original)
    assert "fingerprint" not in copy.metadata.hookbook and copy.metadata.hookbook.provenance
    assert answers_to_untouched_stubs(copy) == ["not yet: nothing came back\n"] * 2


def test_a_hidden_solution_cell_and_outputs_that_show_a_solution_are_gone(good):
    hidden = new_code_cell("def distance(one, other):\n    return abs(sum(one) / len(one) - sum(other) / len(other))")
    hidden.metadata = {"tags": ["solution"], "jupyter": {"source_hidden": True}}
    good.cells[[cell.id for cell in good.cells].index("exercise-2-solution")] = hidden
    shown = new_output("stream", text="source:\n    return abs(sum(one)/len(one) - sum(other)/len(other))\n")
    page = "<pre>return abs(sum(one) / len(one) - sum(other) /\n len(other))</pre>"
    kept = new_output("stream", text="0.3\n")
    bad_notebooks.cell(good, "c2-2").outputs = [shown, kept, new_output("display_data", {"text/html": page})]
    copy = student.copy_of(good, "tiny-paper")
    assert bad_notebooks.cell(copy, "c2-2").outputs == [kept]
    assert "len(other)" not in json.dumps(copy)


def test_a_solution_that_stands_elsewhere_is_refused(good, tmp_path):
    bad_notebooks.edit(good, "c2-2", "moved = sum(rows)", "moved = sum(rows)\nmean = sum(values) / len(values)")
    sentence = "A line of solution 1, `sum(values) / len(values)`, also stands at C2 Moving it .*, cell c2-2"
    with pytest.raises(HookbookError, match=re.escape(sentence).replace(r"\.\*", ".*")):
        student.copy_of(good, "tiny-paper")


def test_a_notebook_without_exercises_is_refused(good):
    good.cells = good.cells[:5]
    with pytest.raises(HookbookError, match="tiny-paper has no exercises"):
        student.copy_of(good, "tiny-paper")


def test_a_fresh_copy_is_replaced(written, tmp_path):
    path, copy = written
    nb = notebooks.read(copy)
    for cell in nb.cells:  # run, as Jupyter leaves it: with outputs and an empty cell at the end
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [new_output("stream", text="1\n")], 7
    nb.cells.append(new_code_cell(""))
    notebooks.write(nb, copy)
    edited = notebooks.read(path)
    bad_notebooks.edit(edited, "c2-1", "## C2", "A newer edition.\n\n## C2")
    notebooks.write(edited, path)
    student.write(path, copy)
    assert "A newer edition." in bad_notebooks.cell(notebooks.read(copy), "c2-1").source


def answered(nb):
    bad_notebooks.edit(nb, "exercise-1-stub", "...  # your code", "return 3.0")


def annotated(nb):
    nb.cells.append(new_code_cell("# my notes"))


def cut(nb):
    del nb.cells[3]


@pytest.mark.parametrize("edit", [answered, annotated, cut])
def test_an_edited_copy_stays(written, edit):
    path, copy = written
    nb = notebooks.read(copy)
    edit(nb)
    notebooks.write(nb, copy)
    before = copy.read_bytes()
    with pytest.raises(HookbookError, match="copy.ipynb holds somebody's work and stays: name another file with --out"):
        student.write(path, copy)
    assert copy.read_bytes() == before


@pytest.mark.parametrize("content", ["my work", "{}", ""])
def test_any_other_file_stays(written, content):
    path, copy = written
    copy.write_text(content)
    with pytest.raises(HookbookError, match="stays"):
        student.write(path, copy)
    assert copy.read_text() == content


def test_the_notebook_itself_is_never_replaced(written):
    path, _ = written
    before = path.read_bytes()
    with pytest.raises(HookbookError, match="stays"):
        student.write(path, path)
    assert path.read_bytes() == before


def test_where_it_goes(written, tmp_path, monkeypatch):
    path, _ = written
    (tmp_path / "class").mkdir()
    monkeypatch.chdir(tmp_path)
    assert student.write(path) == tmp_path / "tiny-paper-student.ipynb"
    assert student.write(path, tmp_path / "class") == tmp_path / "class" / "tiny-paper-student.ipynb"
    with pytest.raises(HookbookError, match="no name for a notebook"):
        student.write(path, tmp_path / "class" / "copy.txt")
    with pytest.raises(HookbookError, match="cannot be written"):
        student.write(path, tmp_path / "nowhere" / "copy.ipynb")
