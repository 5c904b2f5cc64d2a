"""What comes of a sweep: one tidy table, rows per unit, figures, and a page; also half-way, and after an edit."""

import json
import re
import sys
import textwrap

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from PIL import Image
from rich.console import Console
from toy_sweeps import toy

import helpers.batch
from helpers import cli, notebooks
from helpers.batch import collect, figures, store
from helpers.batch.folders import new_folder
from helpers.batch.report import report
from helpers.batch.shown import run
from helpers.batch.spec import Spec
from helpers.batch.sweep import sweep
from helpers.errors import HookbookError

QUIET = Console(quiet=True)
PARAMETERS = (
    "seed: int = 0  # 0..\nlayer: int = 0  # 0..\nwords: str = 'explore'  # a set\nkind: None | str = None  # any"
)
LEDGER = f"""
from pathlib import Path

import pandas as pd

value = layer / 10 + seed / 100 + (words == 'confirm') / 5
claims = [
    dict(id=id, kind="causal", statement="It moves.", statistic="share moved", unit=unit, test="≥ 0.20",
         region=[0.2, None], paper_value=0.5, paper_says=dict(text="half", model="toy", place="Table 1"), value=value,
         interval=[value - 0.05, value + 0.05], control="shuffled", control_value=0.01, n=8, units=dict(template=8),
         controls=dict(shuffled=dict(value=0.01, contrast=value, interval=None, beaten=True)),
         verdict="holds" if value > 0.25 else "open", reason="", gate=None, tolerance=0.02)
    for id, unit in (("C1a", "template"), ("C2", ["template", "word pair"]))
]
ledger = dict(paper="toy", model="toy", preset=None, claims=claims, not_claimed=[])
rows = Path(os.environ["HOOKBOOK_ROWS"]) / "rows"
rows.mkdir()
frame = pd.DataFrame(dict(template=range(3), value=[value] * 3, shuffled=[0.0] * 3))
frame.to_parquet(rows / "toy-C1a.parquet", index=False)
frame.assign(template=["x", "y", "z"]).to_parquet(rows / "toy-C2.parquet", index=False)
display({{"text/plain": "ledger", "{notebooks.LEDGER_MIME}": ledger}}, raw=True)
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep of a toy with a ledger, of which one run fails: its folder of runs and its own."""
    folder = tmp_path_factory.mktemp("swept")
    path = toy(
        folder / "toy.ipynb",
        textwrap.dedent(LEDGER).strip(),
        "if layer == 7:\n    1 / 0\nwords, kind",
        parameters=PARAMETERS,
    )
    asked = Spec(
        notebook=str(path), name="mine", grid={"layer": "1,3,7"}, points=[{"layer": 3, "words": "confirm", "kind": "x"}]
    )
    found = sweep(asked, folder / "runs", out=QUIET, err=QUIET)
    assert [ending.status for ending in found.endings] == ["done", "done", "failed", "done"], found.endings
    return folder / "runs", found.folder


def test_results_has_a_row_per_run_and_claim(swept):
    table = collect.results("mine", runs_dir=swept[0])
    assert list(table.columns) == [
        *("run", "slug", "status", "stale", "preset", "seed", "layer", "words", "parameter_kind"),
        *("claim", "kind", "value", "low", "high", "n", "unit", "verdict", "control", "control_value"),
        *("seconds", "peak_private_mb", "model_sha256", "folder"),
    ]
    assert len(table) == 7 and list(table["claim"].dropna()) == ["C1a", "C2"] * 3
    bad = table[table["status"] == "failed"]
    assert len(bad) == 1 and bad["claim"].isna().all() and bad["layer"].item() == 7
    first = table.iloc[0]
    assert (first["layer"], first["value"], first["low"], first["n"]) == (1, 0.1, pytest.approx(0.05), 8)
    assert (first["control"], first["control_value"], first["verdict"]) == ("shuffled", 0.01, "open")
    assert list(table[table["claim"] == "C2"]["unit"].unique()) == ["template × word pair"]
    assert table["seconds"].gt(0).all() and not table["stale"].any()
    # by its folder too, and through the package's own function
    pd.testing.assert_frame_equal(helpers.batch.results(swept[1]), table)


def test_units_are_the_rows_that_went_into_the_claims(swept):
    units = helpers.batch.results(swept[1], units=True)
    assert len(units) == 4 * 2 * 3 and set(units["claim"]) == {"C1a", "C2"}
    assert set(units[units["layer"] == 7]["status"]) == {"failed"}  # measured, and known to be of a run that failed
    some = units[(units["layer"] == 3) & (units["claim"] == "C2") & (units["words"] == "explore")]
    assert list(some["template"]) == ["x", "y", "z"] and some["value"].eq(0.3).all()


def test_a_misspelt_name_shows_the_nearest(swept):
    with pytest.raises(HookbookError, match="There is no sweep 'mien': did you mean mine?"):
        collect.results("mien", runs_dir=swept[0])


def test_the_command_writes_tables_figures_and_a_page(swept, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hookbook", "report", "mine", "--out", "here", "--runs", str(swept[0])])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    paths = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    names = ["results.parquet", "results.csv", "units.parquet", "figure-1-C1a.png", "figure-2-C2.png", "report.html"]
    assert paths == [f"here/{name}" for name in names] and sorted(names) == sorted(
        p.name for p in (tmp_path / "here").iterdir()
    )
    table = collect.results("mine", runs_dir=swept[0])
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "here/results.parquet"), table, check_dtype=False)
    assert (
        len(pd.read_csv(tmp_path / "here/results.csv")) == 7
        and len(pd.read_parquet(tmp_path / "here/units.parquet")) == 24
    )
    assert Image.open(tmp_path / "here/figure-1-C1a.png").width > 500


def test_the_page_stands_alone_and_its_links_lead_somewhere(swept, tmp_path):
    written = report("mine", tmp_path / "deep" / "er", runs_dir=swept[0])
    soup = BeautifulSoup(written["page"].read_text(encoding="utf-8"), "html.parser")
    assert not soup.find_all(["script", "link"]) and "prefers-color-scheme: dark" in soup.style.string
    images = soup.find_all("img")
    assert len(images) == 2 and all(image["src"].startswith("data:image/png") for image in images)
    assert images[0]["alt"] == (
        "C1a: value with its 95 % interval over layer, coloured by words, 3 runs, values from 0.100 to 0.500; "
        "the test ≥ 0.20 is shaded. Verdicts: 2 holds, 1 open."
    )
    links = [link["href"] for link in soup.find_all("a")]
    assert len(links) == 3 + 6 and not any(re.match(r"/|https?:|file:", link) for link in links)
    assert all((written["page"].parent / link).exists() for link in links)
    text = soup.get_text(" ")
    assert "ZeroDivisionError: division by zero" in text and "toy(layer=7, words='explore', kind=None)" in text
    counts = [[cell.text for cell in row.find_all("td")] for row in soup.find("table").find_all("tr")[1:]]
    assert counts == [["toy", "done", "3"], ["toy", "failed", "1"]]


@pytest.mark.parametrize(
    ("plot", "sentence"),
    [
        ("C1a~layer", "--plot C1a~layer cannot be read: write a claim and a parameter, as in C1:value~layer."),
        ("C9:value~layer", "--plot C9:value~layer: no finished run has C9; there are C1a, C2."),
        (
            "C1a:value~lyer",
            "--plot C1a:value~lyer: lyer is no parameter; there are seed, layer, words, parameter_kind.",
        ),
    ],
)
def test_figures_that_cannot_be_drawn(swept, tmp_path, plot, sentence):
    with pytest.raises(HookbookError) as raised:
        report("mine", tmp_path, [plot], swept[0])
    assert str(raised.value) == sentence


def test_figures_asked_for_are_drawn_and_no_others(swept, tmp_path):
    written = report("mine", tmp_path, ["C2:value~words", "C2:value~layer"], swept[0])
    assert [path.name for path in written.values()][3:5] == ["figure-1-C2.png", "figure-2-C2.png"]


# without a sweep: folders as runs leave them


def left(folder, points, status="done", parameters=None):
    """A sweep's folder whose runs say what they are told to."""
    runs = []
    for number, point in enumerate(points):
        id = f"{number:012x}"
        value = point.pop("value")
        claim = {"id": "C1", "kind": "causal", "value": value, "interval": [value - 0.1, value + 0.1], "n": 9}
        claim |= {"unit": "template", "verdict": "holds", "control": "c", "control_value": 0.0, "region": [0.5, None]}
        claim |= {"test": "≥ 0.50", "statistic": "share of answers moved", "reason": ""}
        runs.append({"id": id, "slug": "toy", "preset": "custom", "parameters": point, "stale": False})
        record = {"status": status, "ledger": {"claims": [claim]}, "seconds": 1.0, "parameters": point}
        (new_folder(folder / "toy", id) / "run.json").write_text(json.dumps(record))
    sweep = folder / "sweeps" / "left"
    sweep.mkdir(parents=True)
    (sweep / "sweep.json").write_text(json.dumps({"name": "left", "generation": 1, "runs": runs}))
    return sweep


def test_a_sweep_that_has_not_ended_says_so(tmp_path):
    sweep = left(tmp_path, [{"seed": 1, "value": 0.6}])
    plan = json.loads((sweep / "sweep.json").read_text())
    plan["runs"].append({"id": "a" * 12, "slug": "toy", "preset": "custom", "parameters": {"seed": 2}, "stale": False})
    (sweep / "sweep.json").write_text(json.dumps(plan))
    assert list(collect.results(sweep)["status"]) == ["done", "never ran"]
    lock = store.FileLock(sweep / ".lock-1of1")
    with lock:
        assert list(collect.results(sweep)["status"]) == ["done", "waiting"]
        page = report(sweep)["page"].read_text()
    assert "It is still running" in page


def test_stale_runs_are_in_the_table_and_in_no_figure(tmp_path):
    sweep = left(tmp_path, [{"seed": 1, "value": 0.6}, {"seed": 1, "value": 0.1}])
    plan = json.loads((sweep / "sweep.json").read_text())
    plan["runs"][1]["stale"] = True
    (sweep / "sweep.json").write_text(json.dumps(plan))
    assert list(collect.results(sweep)["stale"]) == [False, True]
    page = report(sweep)["page"].read_text()
    assert "1 run, values from 0.600 to 0.600" in page and "1 run is stale" in page and "(stale)" in page


def test_parameters_of_any_type_are_columns_that_parquet_takes(tmp_path):
    points = [
        {"value": 0.1, "a": None, "b": [1, 2], "c": 1, "d": True, "e": "x", "f": 1, "g": None, "folder": "y"},
        {"value": 0.2, "a": 3, "b": [3], "c": 0.5, "d": False, "e": None, "f": "one", "g": None, "folder": "z"},
    ]
    sweep = left(tmp_path, points)
    table = collect.results(sweep)
    kinds = {name: str(table[name].dtype) for name in "abcdefg"}
    assert kinds["a"] == "Int64" and kinds["c"] == "Float64" and kinds["d"] == "boolean"
    assert list(table["b"]) == ["[1, 2]", "[3]"] and list(table["f"]) == ["1", "one"]
    assert list(table["parameter_folder"]) == ["y", "z"]
    assert len(pd.read_parquet(report(sweep)["results"])) == 2


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([dict(seed=s, layer=n) for s in range(3) for n in range(4)], ("layer", None)),
        ([dict(seed=s) for s in range(3)], ("seed", None)),
        ([dict(seed=s, words=w) for s in range(9) for w in "ab"], ("words", None)),
        ([dict(layer=n, words=w) for n in range(4) for w in "ab"], ("layer", "words")),
        ([dict(layer=n, model=str(m)) for n in range(4) for m in range(9)], ("layer", None)),
        ([dict(seed=0)], (None, None)),
    ],
)
def test_the_axis_is_what_varies_most_and_colour_what_has_few_values(tmp_path, points, expected):
    sweep = left(tmp_path, [point | {"value": 0.4} for point in points])
    table = collect.results(sweep)
    (asked,) = figures.asked([], table, list(points[0]))
    assert (asked.x, asked.colour) == expected
    report(sweep)  # and it can be drawn


def test_the_region_where_the_claim_holds_is_shaded():
    rows = pd.DataFrame({"claim": "C1", "value": [0.2, 0.6], "low": [0.1, 0.5], "high": [0.3, 0.7], "verdict": "open"})
    rows["layer"] = [1, 2]
    claim = {"region": [0.5, None], "test": "≥ 0.50", "statistic": "share moved"}
    fig, words = figures.draw(figures.Asked("C1", "layer", None), rows, claim)
    (ax,) = fig.axes
    (shade,) = ax.patches
    assert shade.get_y() == 0.5 and shade.get_y() + shade.get_height() == ax.get_ylim()[1] > 0.6
    assert list(ax.get_xticks()) == [1, 2] and ax.get_ylabel() == "C1: share moved"
    assert "the test ≥ 0.50 is shaded" in words


# one run


def test_one_run_shows_its_ledger(swept):
    path = swept[0].parent / "toy.ipynb"
    one = run(path, {"layer": 3}, "quick", swept[0].parent / "more")
    assert one.verdict("C1a") == "holds" and one.row("C2")["value"] == 0.3
    assert list(one.claims.index) == ["C1a", "C2"] and one.claims.loc["C1a", "n"] == 8
    assert list(one.units("C1a")["template"]) == [0, 1, 2] and one.record.status == "done"
    assert "C1a" in repr(one) and "holds" in repr(one) and one._repr_html_().startswith("<table")
    with pytest.raises(HookbookError, match="toy has no claim 'C1'; it has C1a"):
        one.verdict("C1")
    with pytest.raises(
        HookbookError, match=r"toy: failed in C3 the claim, .*: ZeroDivisionError.*; look at .*toy.ipynb"
    ):
        run(path, {"layer": 7}, "quick", swept[0].parent / "more")


def test_importing_the_package_is_light():
    import subprocess

    code = "import sys, helpers.batch; print([n for n in ('pandas', 'nbformat', 'papermill') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert callable(helpers.batch.run) and callable(helpers.batch.results)
