"""Sweeps before any kernel starts: grids, files, what is refused, names that stay, and what `--dry-run` says."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console
from toy_sweeps import toy

from helpers import cli, notebooks
from helpers.batch import grids, plan, spec, store
from helpers.batch.endings import Ending
from helpers.batch.plan import planned
from helpers.batch.progress import summary
from helpers.batch.spec import Spec
from helpers.batch.sweep import sweep
from helpers.batch.unchanged import Unchanged
from helpers.errors import HookbookError

QUIET = Console(quiet=True)


@pytest.fixture
def path(tmp_path):
    parameters = (
        "seed: int = 0  # 0..99\nlabel: str = 'a'  # a name\nlayer: None | int = None  # 1..\n"
        "share: float = 0.5  # 0..1\nlayers: list[int] = [1]  # some\nidle: int = 0  # nobody reads it"
    )
    return toy(tmp_path / "toy.ipynb", "print(label, layer, share, layers)", parameters=parameters)


@pytest.fixture
def hookbook(monkeypatch, capsys, tmp_path):
    """Calls the command in this process; returns its exit code, output and errors."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["hookbook", *map(str, arguments), "--runs", str(tmp_path / "runs")])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return call


def points(path, **grid):
    found = planned(Spec(notebook=str(path), grid=grid), path.parent / "runs")
    return [tuple(run.parameters[name] for name in grid) for run in found.runs]


# grids


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0:3", [0, 1, 2]),
        ("0:10:4", [0, 4, 8]),
        ("3:0:-1", [3, 2, 1]),
        ("-2:1", [-2, -1, 0]),
        ("a,b", ["a", "b"]),
        ("None, 0:2 ,7", ["None", 0, 1, "7"]),
        ("'a,b',c", ["a,b", "c"]),
        ('"0:3"', ["0:3"]),
        ("don't,stop", ["don't", "stop"]),
        ("''", [""]),
        ("[1,2],[3]", ["[1,2]", "[3]"]),
        ("['a,]b'],c", ["['a,]b']", "c"]),
        ("a:b", ["a:b"]),
    ],
)
def test_values(text, values):
    assert grids.values(text, "x") == values


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        ("seed", "--grid needs a name and values"),
        ("seed=", "has an empty value"),
        ("seed=1,,2", "has an empty value"),
        ("seed=5:5", "The range 5:5 of seed is empty"),
        ("seed=0:5:0", "The range 0:5:0 of seed is empty"),
        ("label='a,b", "has a ' that is not closed"),
        ("layers=[1,2", "has a bracket that is not closed"),
    ],
)
def test_wrong_grids(grid, sentence):
    with pytest.raises(HookbookError, match=sentence.replace("[", r"\[")):
        grids.pairs([grid])
    with pytest.raises(HookbookError, match="--grid seed is given twice"):
        grids.pairs(["seed=1", "seed=2"])


def test_values_have_the_parameters_type_and_grids_are_combined(path):
    assert points(path, seed="0:2", label="x,'y,z'") == [(0, "x"), (0, "y,z"), (1, "x"), (1, "y,z")]
    assert points(path, layer="None,1:3") == [(None,), (1,), (2,)]
    assert points(path, share="0,.25") == [(0.0,), (0.25,)] and points(path, layers="[1,2],[3]") == [([1, 2],), ([3],)]
    assert points(path, label=["0:3", "a,b"]) == [("0:3",), ("a,b",)]  # a list's values are what they are


def test_each_run_is_planned_once(path):
    assert points(path, seed="0,0:2,1") == [(0,), (1,)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--grid", "sed=0:3"), "toy has no parameter sed; did you mean seed?"),
        (("--grid", "seed=a,b"), "seed: expected int, got 'a' (str)."),
        (("--grid", "seed=98:101"), "seed: 100 is outside 0..99."),
        (("--grid", "label=0:3"), "label: expected str, got 0 (int)."),
        (("--grid", "idle=1:3"), "No cell of toy reads idle: another value would change nothing."),
        (("--grid", "seed=0:3", "-p", "seed", "1"), "seed is both fixed and varied: take it out of one of the two."),
        (("--preset", "large"), "toy has no preset large; it has quick."),
        (("--shard", "0/2"), "--shard counts from 1: 0/2 is none of 2 parts."),
        (("--shard", "2"), "--shard needs a part and a number of parts, as in 1/4; got '2'."),
        (("--name", "../x"), "The name '../x' cannot name a folder"),
    ],
)
def test_mistakes_are_one_sentence_before_anything_is_written(hookbook, path, tmp_path, arguments, sentence):
    code, output, errors = hookbook("sweep", path, *arguments)
    assert (code, output) == (2, "") and errors.startswith(sentence) and errors.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_an_unknown_paper_is_one_sentence(hookbook):
    code, _, errors = hookbook("sweep", "sentimet-direction")
    assert code == 2 and "did you mean sentiment-direction" in errors


# names and ids


def test_the_name_stays_while_the_points_do(path, tmp_path):
    def name(**fields):
        return planned(Spec(notebook=str(path), **fields), tmp_path).name

    first = name(grid={"seed": "0:3"})
    assert first.startswith("toy-") and first == name(grid={"seed": [0, 1, 2]}) == name(grid={"seed": "2,1,0"})
    assert first != name(grid={"seed": "0:4"}) and name(grid={"seed": "0:3"}, name="mine") == "mine"
    nb = notebooks.read(path)
    nb.cells[-1].source += "\nprint('more')"
    notebooks.write(nb, path)
    assert first == name(grid={"seed": "0:3"})


def test_a_plan_has_the_ids_of_single_runs_and_is_hashed_once(path, tmp_path, monkeypatch):
    from helpers.batch import planned as single

    expected = single.planned(path, {"seed": 7}, "quick").fingerprint
    calls = []
    shared = single.shared
    monkeypatch.setattr(single, "shared", lambda *arguments: (calls.append(1), shared(*arguments))[1])
    found = planned(Spec(notebook=str(path), grid={"seed": "0:100", "share": "0:2", "layer": "1:11"}), tmp_path)
    assert len(found.runs) == 2000 and len({run.fingerprint.id for run in found.runs}) == 2000 and len(calls) == 1
    (one,) = planned(Spec(notebook=str(path), grid={"seed": "7"}), tmp_path).runs
    assert one.fingerprint == expected and one.preset == "custom"


def test_shards_are_the_plan(path, tmp_path):
    found = planned(Spec(notebook=str(path), grid={"seed": "0:7"}), tmp_path)
    parts = [found.shard(number, 3) for number in (1, 2, 3)]
    assert [len(part) for part in parts] == [3, 2, 2]
    assert {run.fingerprint.id for part in parts for run in part} == {run.fingerprint.id for run in found.runs}


def test_several_notebooks_have_the_same_points(path, tmp_path):
    other = toy(tmp_path / "other.ipynb", "print(label)")
    found = planned(Spec(notebook=[str(path), str(other)], grid={"seed": "0:2"}), tmp_path)
    assert [(run.slug, run.parameters["seed"]) for run in found.runs] == [
        (s, n) for s in ("toy", "other") for n in (0, 1)
    ]
    twin = tmp_path / "twin" / "toy.ipynb"
    twin.parent.mkdir()
    toy(twin, "print(label)")
    with pytest.raises(HookbookError, match="Two notebooks are called toy"):
        planned(Spec(notebook=[str(path), str(twin)]), tmp_path)


# files

GOOD = """
notebook: toy.ipynb
parameters: {share: 1e-1}
grid:
  seed: 1:3
  label: [x, 'a,b']
points:
  - {seed: 5, layer: 2}
timeout: 600
memory: 500.5
retries: 0
"""


def test_a_file_says_the_same(path, tmp_path):
    (tmp_path / "my-sweep.yaml").write_text(GOOD)
    asked = spec.read(tmp_path / "my-sweep.yaml")
    assert (asked.name, asked.timeout, asked.memory, asked.retries) == ("my-sweep", 600.0, 500.5, 0)
    found = planned(asked, tmp_path / "runs")
    values = [tuple(run.parameters[name] for name in ("seed", "label", "layer", "share")) for run in found.runs]
    assert values == [
        (1, "x", None, 0.1),
        (1, "a,b", None, 0.1),
        (2, "x", None, 0.1),
        (2, "a,b", None, 0.1),
        (5, "a", 2, 0.1),
    ]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("notebook: toy.ipynb", "", "line 3: notebook is missing"),
        ("timeout: 600", "timeut: 600", "line 9: there is no field timeut; did you mean timeout?"),
        ("timeout: 600", "timeout: soon", "line 9: timeout: input should be a valid number, got 'soon'"),
        ("retries: 0", "retries: -1", "line 11: retries: input should be greater than or equal to 0, got -1"),
        ("{share: 1e-1}", "{seed: 1}", "line 3: seed is both fixed and varied"),
        ("1:3", "3:3", "line 5: The range 3:3 of seed is empty"),
        ("[x, 'a,b']", "[1:30]", "line 6: YAML reads 1:30 as a number to the base sixty"),
        ("[x, 'a,b']", "[]", "line 6: The grid of label is an empty list"),
        ("notebook: toy.ipynb", "notebook: toy.ipynb\nnotebook: x", "line 3: 'notebook' is given twice"),
        ("notebook: toy.ipynb", "name: a/b\nnotebook: toy.ipynb", "line 2: The name 'a/b' cannot name a folder"),
        ("notebook: toy.ipynb", "notebook: tory.ipynb", "line 2: Cannot read the notebook"),
        ("notebook: toy.ipynb", "notebook: toy.ipynb\npreset: big", "line 3: toy has no preset big"),
        ("seed: 1:3", "sed: 1:3", "line 5: toy has no parameter sed; did you mean seed?"),
        ("label: [x,", "label: [4,", "line 6: label: expected str, got 4 (int)."),
        ("{seed: 5, layer: 2}", "{seed: 500}", "line 8: seed: 500 is outside 0..99."),
        ("{seed: 5, layer: 2}", "{idle: 5}", "line 8: No cell of toy reads idle"),
    ],
)
def test_mistakes_in_a_file_have_its_line(path, tmp_path, hookbook, old, new, sentence):
    file = tmp_path / "bad.yaml"
    file.write_text(GOOD.replace(old, new))
    code, output, errors = hookbook("sweep", file)
    assert (code, output) == (2, "") and errors.startswith(f"{file}, {sentence}"), errors
    assert errors.count("\n") == 1


def test_a_file_and_a_grid_are_too_much(hookbook, tmp_path, path):
    (tmp_path / "x.yaml").write_text(GOOD)
    code, _, errors = hookbook("sweep", tmp_path / "x.yaml", "--grid", "seed=1")
    assert code == 2 and "leave out --grid and -p" in errors


# what a look at the plan says


def test_a_dry_run_writes_nothing_and_knows_what_it_does_not_know(hookbook, path, tmp_path):
    code, output, _ = hookbook("sweep", path, "--grid", "seed=0:6", "--name", "mine", "--dry-run")
    assert code == 0 and not (tmp_path / "runs").exists()
    assert output.splitlines() == [
        "mine: 6 runs of toy",
        "0 done already, 6 not begun",
        "time left: unknown, as no finished run of toy is recorded",
    ]


def test_a_dry_run_tells_what_is_done_and_how_long_the_rest_may_take(hookbook, tmp_path):
    path = toy(tmp_path / "toy.ipynb", "1 / (seed - 1)")
    code, output, _ = hookbook("sweep", path, "--grid", "seed=0:2")
    assert code == 1 and "1 failed" in output
    code, output, _ = hookbook("sweep", path, "--grid", "seed=0:6", "--workers", 2, "--dry-run")
    lines = output.splitlines()
    assert code == 0 and lines[1] == "1 done already, 4 not begun, 1 failed"
    assert lines[2].startswith("time left: about ") and lines[2].endswith(" with 2 workers")


def test_the_committed_notebook_is_asked_for_its_seconds(hookbook, path):
    nb = notebooks.read(path)
    nb.metadata["hookbook"] = {"provenance": {"seconds": 100}}
    notebooks.write(nb, path)
    _, output, _ = hookbook("sweep", path, "--grid", "seed=0:6", "--workers", 2, "--dry-run")
    assert "time left: about 5 min with 2 workers" in output


@pytest.mark.parametrize(("seconds", "words"), [(5, "5 s"), (100, "2 min"), (5000, "83 min"), (9000, "2.5 h")])
def test_spans(seconds, words):
    assert plan.span(seconds) == words


def test_a_shard_runs_its_part_alone(path, tmp_path):
    asked = Spec(notebook=str(path), grid={"seed": "0:3"}, name="parts")
    found = sweep(asked, tmp_path / "runs", shard=(2, 2), out=QUIET, err=QUIET)
    assert [ending.plan.parameters["seed"] for ending in found.endings] == [1] and found.exit_code == 0
    assert len(store.read(found.folder)["runs"]) == 3


def test_a_sweep_is_found_by_name_or_folder_or_the_nearest_is_named(tmp_path):
    folder = tmp_path / "sweeps" / "seeds"
    folder.mkdir(parents=True)
    (folder / "sweep.json").write_text("{}")
    assert store.find("seeds", tmp_path) == store.find(folder, tmp_path) == folder
    with pytest.raises(HookbookError, match="There is no sweep 'seds': did you mean seeds?"):
        store.find("seds", tmp_path)


def test_the_summary_is_bounded(path, tmp_path):
    runs = planned(Spec(notebook=str(path), grid={"seed": "0:40"}), tmp_path).runs
    endings = [Ending(run, "failed", None, "C1, code cell 3\nValueError: no") for run in runs[:30]]
    endings += [Ending(run, "never ran") for run in runs[30:]]
    lines = summary("mine", endings, "The disk is full.", str).splitlines()
    assert lines[1:5] == ["mine: 40 runs", "      30 failed", "      10 never ran", "The disk is full."]
    assert lines[5:7] == ["failed: toy() in C1, code cell 3", "    ValueError: no"]
    assert lines[-1] == "and 24 more: hookbook report mine" and len(lines) <= 21


def test_a_sweep_notices_that_what_its_ids_stand_for_has_changed(path, monkeypatch, tmp_path):
    swept = planned(Spec(notebook=str(path), grid={"seed": "0:2"}), tmp_path / "runs")
    store.write(swept)
    store.snapshot(swept)
    helper, hard = tmp_path / "helper.py", {**swept.notebooks["toy"].shared.hard, "helpers.one": "as planned"}
    helper.write_text("planned")
    notebook = replace(
        swept.notebooks["toy"], shared=replace(swept.notebooks["toy"].shared, hard=hard, files=(helper,))
    )
    now = {"helpers.one": "as planned"}
    monkeypatch.setattr("helpers.batch.unchanged.shared", lambda _: SimpleNamespace(hard=hard | now))
    monkeypatch.setattr("helpers.batch.unchanged.base", lambda _: plan.base(swept.notebooks["toy"]))
    unchanged = Unchanged(replace(swept, notebooks={"toy": notebook}))
    assert unchanged.problem() is None
    helper.write_text("written again, the same to a fingerprint")
    assert unchanged.problem() is None
    now["helpers.one"] = "mended"
    helper.write_text("mended")
    assert "toy depends on helpers.one, which changed while the sweep ran" in unchanged.problem()
