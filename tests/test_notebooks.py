"""Parameters, what reads them, headings, the ledger in outputs, the committed copy, fingerprints."""

import json
import os
import stat

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from helpers import cells, fingerprint, notebooks, papers
from helpers.errors import HookbookError
from helpers.parameters import parse, validate

CELL = """
model_name: str = "smollm2-135m"  # a name that load_model knows; paper gpt2-small
revision: None | str = None  # commit = hub revision
dtype: Literal["float32", "bfloat16"] = "float32"  # number format
processing: str = "folded"  # folded | raw
seed: int = 0  # 0..
templates: int = 8  # templates; 1..64; paper 128
strength: float = 1  # in units of the norm; 0..1.5
layers: list[int] = [
    1,  # the first
    2,
]  # layers; 0..29
marked: str = "a=#b"  # a text with = and #
# whether the words are shuffled
shuffled: bool = False
limit: int | None = None  # at most; None is all
names: Optional[list[str]] = None  # names
plain = 3  # anything whole
"""


@pytest.fixture
def known():
    return parse(CELL)


def by_name(parameters):
    return {parameter.name: parameter for parameter in parameters}


def notebook(*sources, parameters="seed: int = 0  # 0.."):
    first = new_code_cell(parameters, metadata={"tags": ["parameters"]})
    return new_notebook(cells=[new_markdown_cell("# Title\n\n## Parameters"), first, *map(new_code_cell, sources)])


def test_parameters_that_papermill_cannot_read(known):
    parameters = by_name(known)
    assert list(parameters)[:4] == ["model_name", "revision", "dtype", "processing"]
    assert parameters["revision"].annotation == "None | str" and parameters["revision"].default is None
    assert parameters["marked"].default == "a=#b" and parameters["marked"].comment == "a text with = and #"
    assert parameters["layers"].default == [1, 2] and parameters["layers"].high == 29
    assert parameters["dtype"].annotation == "Literal['float32', 'bfloat16']"


def test_comments_state_what_is_allowed(known):
    parameters = by_name(known)
    assert (parameters["templates"].low, parameters["templates"].high, parameters["templates"].paper) == (1, 64, 128)
    assert (parameters["seed"].low, parameters["seed"].high) == (0, None)
    assert parameters["processing"].choices == ("folded", "raw")
    assert parameters["model_name"].paper == "gpt2-small"
    assert parameters["shuffled"].comment == "whether the words are shuffled"  # on the line above
    assert parameters["strength"].allowed == "0..1.5"


@pytest.mark.parametrize(
    ("name", "value", "typed"),
    [
        ("seed", "1", 1),
        ("layers", "[1, 2]", [1, 2]),
        ("revision", "None", None),
        ("revision", "3", "3"),
        ("strength", "1", 1.0),
        ("strength", "1e-3", 0.001),
        ("strength", 1, 1.0),
        ("shuffled", "true", True),
        ("limit", "None", None),
        ("limit", "4", 4),
        ("names", "['a', 'b']", ["a", "b"]),
        ("plain", "4", 4),
        ("templates", 128, 128),  # the paper's value, outside the range for this machine
        ("marked", "None", "None"),
        ("processing", "raw", "raw"),
    ],
)
def test_values_are_converted_by_type(known, name, value, typed):
    result = validate(known, {name: value})[name]
    assert result == typed and type(result) is type(typed)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"sede": 1}, "toy has no parameter sede; did you mean seed?"),
        ({"zzz": 1}, "toy has no parameter zzz; it has model_name,"),
        ({"seed": "abc"}, "seed: expected int, got 'abc' (str)."),
        ({"seed": True}, "seed: expected int, got True (bool)."),
        ({"seed": "1.0"}, "seed: expected int, got 1.0 (float)."),
        ({"shuffled": 1}, "shuffled: expected bool, got 1 (int)."),
        ({"marked": 3}, "marked: expected str, got 3 (int)."),
        ({"layers": ["a"]}, "layers: expected list[int], got ['a'] (list)."),
        ({"templates": 65}, "templates: 65 is outside 1..64."),
        ({"seed": -1}, "seed: -1 is outside 0..."),
        ({"layers": [30]}, "layers: [30] is outside 0..29."),
        ({"strength": float("nan")}, "strength: nan is outside 0..1.5."),
        ({"processing": "x"}, "processing: 'x' is not one of folded | raw."),
        ({"dtype": "float64"}, "dtype: expected 'float32' | 'bfloat16', got 'float64' (str)."),
    ],
)
def test_wrong_values_are_refused_with_a_sentence(known, values, sentence):
    with pytest.raises(HookbookError) as error:
        validate(known, values, "toy")
    assert str(error.value).startswith(sentence)


def test_all_wrong_values_are_told_at_once(known):
    with pytest.raises(HookbookError, match="seed: .*; templates: "):
        validate(known, {"seed": "x", "templates": 0})


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        ("x: int = 'a'  # b", "the default of x: expected int"),
        ("x = f()", r"must be a plain literal, not `f\(\)`"),
        ("import os", "only lines like"),
        ("x = 1\nx = 2", "sets x twice"),
        ("x: int = 5  # 1..3", "5 is outside 1..3"),
        ("x: str = 'c'  # a | b", "'c' is not one of a | b"),
        ("x = [", "not valid Python"),
    ],
)
def test_cells_that_cannot_be_read_are_refused(cell, sentence):
    with pytest.raises(HookbookError, match=sentence):
        parse(cell)


@given(
    st.one_of(
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
        st.text(),
        st.lists(st.integers()),
    )
)
def test_any_default_survives_writing_and_reading(value):
    parameter = parse(f"x: {type(value).__name__} = {value!r}  # a value\n")[0]
    assert parameter.default == value and validate([parameter], {"x": value}) == {"x": value}


def test_exactly_one_cell_is_tagged(tmp_path):
    with pytest.raises(HookbookError, match="exactly one code cell tagged `parameters`, it has 0"):
        notebooks.parameters(new_notebook(cells=[new_code_cell("x = 1")]))


@pytest.mark.parametrize(
    ("code", "read"),
    [
        ("x = seed", True),
        ("print(f'{seed}')", True),
        ("seed += 1", True),
        ("seed = seed + 1", True),
        ("def f():\n    return seed", True),
        ("def f(a=seed): pass", True),
        ("[x for x in seed]", True),
        ("if a:\n    seed = 1\nprint(seed)", True),  # may not run
        ("seed: int\nprint(seed)", True),  # stores nothing
        ("%timeit f(seed)", True),
        ("%%time\nprint(seed)", True),
        ("seed = 3\nprint(seed)", False),
        ("seed: int = 3\nprint(seed)", False),
        ("for seed in range(3):\n    print(seed)", False),
        ("def f(seed):\n    return seed", False),
        ("def f():\n    seed = 1\n    return seed", False),
        ("[seed for seed in range(3)]", False),
        ("(seed := 3)\nprint(seed)", False),
        ("import seed\nprint(seed)", False),
        ("f(seed=1)", False),
        ("a.seed", False),
        ("'{seed}'", False),
        ("# seed", False),
    ],
)
def test_which_code_reads_a_parameter(code, read):
    assert cells.unread(["seed"], [code]) == ([] if read else ["seed"])


def test_unread_parameters_looks_at_later_cells_only():
    nb = notebook("print(1)")
    nb.cells.insert(1, new_code_cell("seed = 1\nprint(seed)"))
    assert notebooks.unread_parameters(nb) == ["seed"]
    assert notebooks.unread_parameters(notebook("seed = 1", "print(seed)")) == ["seed"]
    assert notebooks.unread_parameters(notebook("print(seed)", "seed = 1")) == []


def test_headings_inside_code_are_none():
    first = new_markdown_cell("## C1 One\n\n```python\n# no heading\n```")
    nb = new_notebook(cells=[first, new_code_cell("1"), new_markdown_cell("x")])
    assert notebooks.heading(nb, 2) == "C1 One"
    assert notebooks.heading(new_notebook(cells=[new_code_cell("1")]), 0) == "the beginning"


def test_the_last_ledger_counts():
    nb = notebook("1", "2")
    for cell, claims in zip(nb.cells[2:], ([], [{"id": "C1"}]), strict=True):
        cell.outputs = [new_output("display_data", {notebooks.LEDGER_MIME: {"claims": claims}})]
    assert notebooks.ledger(nb) == {"claims": [{"id": "C1"}]}
    assert notebooks.ledger(notebook("1")) is None


def test_read_says_what_is_wrong(tmp_path):
    with pytest.raises(HookbookError, match="No such file"):
        notebooks.read(tmp_path / "none.ipynb")
    (tmp_path / "half.ipynb").write_text('{"cells": [')
    with pytest.raises(HookbookError, match="not a valid notebook"):
        notebooks.read(tmp_path / "half.ipynb")


def test_writing_is_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    notebooks.write_text(path, "old")
    assert stat.S_IMODE(path.stat().st_mode) & stat.S_IRUSR
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError):
        notebooks.write_text(path, "new")
    assert path.read_text() == "old" and [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_clean_leaves_nothing_volatile():
    view = {notebooks.WIDGET_VIEW: {"model_id": "1"}, "text/plain": "interactive(children=())"}
    nb = notebook("seed", "x")
    nb.metadata |= {"papermill": {"a": 1}, "widgets": {"b": 2}, "hookbook": {"fingerprint": {"id": "x"}}}
    nb.cells[2].metadata |= {"papermill": {"status": "completed"}, "tags": ["solution"], "execution": {"t": 1}}
    nb.cells[2].id = "setup-code-1"
    nb.cells[2].execution_count = 7
    nb.cells[2].outputs = [
        new_output("display_data", view),
        new_output("display_data", view | {"text/html": "<p>twin</p>"}),
        new_output("execute_result", {"text/plain": f"<f at 0x7f00aa11bb22> {papers.ROOT}/data/x"}, execution_count=7),
        new_output("stream", name="stderr", text="  \n"),
        new_output("stream", name="stderr", text="/" + "tmp/ipykernel_77/123.py:3: UserWarning: x"),
        new_output("stream", text=f"{os.path.expanduser('~')}/a and src{os.path.expanduser('~')}/b {os.__file__}"),
    ]
    cleaned = notebooks.clean(nb)
    assert set(cleaned.metadata) == {"kernelspec", "language_info", "hookbook"}
    assert cleaned.cells[1].metadata == {"tags": ["parameters"]}
    assert cleaned.cells[2].metadata == {"tags": ["solution"]} and cleaned.cells[2].id == "setup-code-1"
    assert [cell.execution_count for cell in cleaned.cells[1:]] == [1, 2, 3]
    twin, result, warning, paths = cleaned.cells[2].outputs
    assert warning.text == "this cell:3: UserWarning: x"
    assert paths.text == f"~/a and src{os.path.expanduser('~')}/b os.py"
    assert dict(twin.data) == {"text/html": "<p>twin</p>"}
    assert result.data["text/plain"] == "<f at 0x…> data/x" and result.execution_count == 2
    nbformat.validate(cleaned)


def test_clean_refuses_another_runs_parameters():
    nb = notebook("seed")
    nb.cells.insert(2, new_code_cell("seed = 5", metadata={"tags": ["injected-parameters"]}))
    with pytest.raises(HookbookError, match="other parameters than its own"):
        notebooks.clean(nb)


# fingerprints


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A repository of its own: three helpers and no catalogue; returns a function from code to fingerprint."""
    modules = {
        "__init__": "",
        "metrics": '"""Doc."""\nfrom helpers.base import one\n\n\ndef two():\n    return one() + 1\n',
        "base": "def one():\n    return 1\n",
        "plots": "import helpers.style\n",
        "style": "a = 1\n",
    }
    (tmp_path / "helpers").mkdir()
    for name, source in modules.items():
        (tmp_path / "helpers" / f"{name}.py").write_text(source)
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(papers, "ROOT", tmp_path)
    monkeypatch.setattr(papers, "catalogue", lambda: {})

    def of(*sources, parameters=None, **given):
        path = tmp_path / "toy.ipynb"
        nb = notebook(*sources)
        nb.cells.append(new_markdown_cell("prose " + str(given.pop("prose", ""))))
        notebooks.write(nb, path)
        return fingerprint.fingerprint(path, {"seed": 0, **given})

    of.root = tmp_path
    return of


CODE = "from helpers.metrics import two\nfrom helpers import plots\nprint(two(), f'{seed!r:>4}')"


def test_fingerprint_ignores_layout_comments_and_prose(house):
    first = house(CODE)
    laid_out = CODE.replace("two\n", "(\n    two,\n)\n\n\n").replace("plots", "plots  # why").replace("two()", "two( )")
    assert house(laid_out, prose="new") == first
    metrics = house.root / "helpers" / "metrics.py"
    metrics.write_text(metrics.read_text().replace("Doc.", "Other words.").replace("def two():", "def two():  # why"))
    assert house(CODE) == first and len(first.id) == 12


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda house: house(CODE + "\nprint(3)"), "code"),
        (lambda house: house(CODE, seed=1), "parameters"),
        (lambda house: (house.root / "helpers" / "metrics.py").write_text("two = 3"), "helpers.metrics"),
        (lambda house: (house.root / "helpers" / "base.py").write_text("def one():\n    return 2"), "helpers.base"),
    ],
)
def test_fingerprint_covers_what_measures(house, change, part):
    first = house(CODE)
    changed = change(house)
    changed = changed if isinstance(changed, fingerprint.Fingerprint) else house(CODE)
    assert part in fingerprint.differences(first.hard, changed.hard) and changed.id != first.id


def test_what_draws_is_soft(house):
    first = house(CODE)
    (house.root / "helpers" / "plots.py").write_text("colour = 2")
    changed = house(CODE)
    assert changed.hard == first.hard and changed.id == first.id
    assert fingerprint.differences(first.soft, changed.soft) == ["helpers.plots"]
    (house.root / "helpers" / "style.py").write_text("a = 2")
    assert "helpers.style" not in changed.hard | changed.soft
    assert set(fingerprint.LIBRARIES) <= set(first.soft)


def test_one_and_true_are_other_code(house):
    assert house("x = 1").id != house("x = True").id != house("x = '1'").id


def test_an_injected_cell_and_the_parameters_cell_are_not_code(house):
    path = house.root / "toy.ipynb"
    first = house(CODE)
    nb = notebooks.read(path)
    nb.cells.insert(2, new_code_cell("seed = 0", metadata={"tags": ["injected-parameters"]}))
    nb.cells[1].source = "seed: int = 5  # another default"
    notebooks.write(nb, path)
    assert fingerprint.fingerprint(path, {"seed": 0}) == first


def test_catalogue_entry_and_data_are_covered():
    """On the real catalogue: the first paper that stands."""
    paper = next(paper for paper in papers.catalogue().values() if paper.status == "stands")
    if not paper.notebook.exists():
        pytest.skip("its notebook is not written yet")
    values = {parameter.name: parameter.default for parameter in notebooks.parameters(paper.notebook)}
    hard = fingerprint.fingerprint(paper.notebook, values).hard
    assert {"code", "parameters", "model", "catalogue entry", "helpers.claims", "helpers.stats"} <= set(hard)
    assert all(f"data/{name}" in hard for name in paper.data)
    assert not any(name.startswith(("helpers.plots", "helpers.cli", "helpers.batch")) for name in hard)


def test_stamp_says_what_a_kernel_cannot_know(house):
    print_ = house(CODE)
    nb = notebook(CODE)
    fingerprint.stamp(nb, print_, parameters={"seed": 3}, seconds=1.5, peak_private_mb=80.0, preset="quick")
    stored = json.loads(nbformat.writes(nb))["metadata"]["hookbook"]
    assert stored["fingerprint"] == {"id": print_.id, "hard": print_.hard, "soft": print_.soft}
    facts = stored["provenance"]
    assert (facts["seed"], facts["seconds"], facts["peak_private_mb"], facts["preset"]) == (3, 1.5, 80.0, "quick")
    assert {"date", "python", "platform", "versions", "parent_commit", "dirty"} <= set(facts)
    assert facts["parent_commit"] is None  # this house is no git repository
