"""What holds for every notebook under notebooks/: the rules, and a fresh run that says what the committed one says."""

import json
import subprocess
import sys

import bad_notebooks
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from rerun_notebooks import ci_minutes, rerun, reruns

from helpers import notebooks, papers
from helpers.agreement import contradicts, disagreement
from helpers.rules import check
from helpers.skeleton import title_markdown

NOTEBOOKS = sorted(papers.ROOT.glob("notebooks/*/*.ipynb"))
EACH = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_every_notebook_belongs_to_a_paper():
    expected = [paper.notebook for paper in papers.catalogue().values()]
    assert [path for path in NOTEBOOKS if path not in expected] == []


@EACH
def test_it_keeps_the_rules(path):
    problems = [str(problem) for problem in check(path) if not problem.advice]
    assert not problems, f"{path.stem}:\n" + "\n".join(problems)


@EACH
def test_its_title_says_what_the_catalogue_says(path):
    assert notebooks.read(path).cells[0].source == title_markdown(papers.paper(path.stem))


@EACH
def test_quick_and_evidence_do_not_contradict_each_other(path):
    ledger = notebooks.ledger(path)
    assert ledger, f"{path.stem} has no ledger in its outputs: run `hookbook refresh {path.stem}`"
    stored = papers.ROOT / "data" / "claims" / ledger["model"].replace("/", "--") / path.name.replace(".ipynb", ".json")
    if not stored.exists():
        pytest.skip("no evidence run is stored yet")
    evidence = {row["id"]: row["verdict"] for row in json.loads(stored.read_text(encoding="utf-8"))["claims"]}
    quick = {row["id"]: row["verdict"] for row in ledger["claims"]}
    clashes = [f"{name}: quick {quick[name]}, evidence {evidence[name]}" for name in quick.keys() & evidence.keys()
               if contradicts(quick[name], evidence[name])]  # fmt: skip
    assert not clashes, f"{path.stem}: {'; '.join(clashes)}"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    with reruns(NOTEBOOKS, tmp_path_factory.mktemp("fresh")) as futures:
        yield futures


@pytest.mark.model
@pytest.mark.timeout(3600)  # the last one waits for all others
@EACH
def test_a_fresh_run_agrees(path, fresh):
    complaints = fresh[path].result()
    assert not complaints, "\n".join(complaints)


def test_ci_stays_within_its_fifty_minutes():
    recorded = {path.stem: notebooks.read(path).metadata["hookbook"]["provenance"]["seconds"] for path in NOTEBOOKS}
    slowest = sorted(recorded, key=recorded.get)[-5:]
    assert ci_minutes(list(recorded.values())) < 50, f"make some faster, the slowest are {', '.join(slowest)}"


def test_the_minutes_of_ci_grow_with_the_notebooks():
    assert ci_minutes([]) < ci_minutes([20] * 100) < 50 < ci_minutes([60] * 100)


# the same, on small notebooks that must be caught


READS = """from helpers import datasets, papers

assert papers.CATALOGUE.is_file() and datasets.read_yaml("sentiment")"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("place", ["root", "own folder", "a copy elsewhere"])
def test_a_notebook_with_helpers_and_data_passes_from_everywhere(place, tmp_path):
    own, elsewhere = tmp_path / "own", tmp_path / "else where"
    for folder in (own, elsewhere) if place == "a copy elsewhere" else (own,):
        folder.mkdir()
        notebooks.write(new_notebook(cells=[new_code_cell(READS)]), folder / "reads.ipynb")
    folder = {"root": papers.ROOT, "own folder": own, "a copy elsewhere": elsewhere}[place]
    path = own / "reads.ipynb" if place == "root" else "reads.ipynb"
    command = [sys.executable, "-m", "pytest", "--nbmake", "-q", "-p", "no:cacheprovider", str(path)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


@pytest.fixture
def tiny(tmp_path):
    """The good small notebook with its outputs; `(edit)` changes it before it is run again in a folder beside."""
    with bad_notebooks.tiny_catalogue():

        def tiny(edit=lambda nb: None):
            nb = notebooks.read(bad_notebooks.FOLDER / "good.ipynb")
            edit(nb)
            path = tmp_path / f"{bad_notebooks.SLUG}.ipynb"
            notebooks.write(nb, path)
            folder = tmp_path / "elsewhere"
            folder.mkdir()
            return rerun(path, folder)

        yield tiny


def test_a_good_notebook_agrees_with_itself(tiny):
    assert tiny() == []


def test_a_failure_names_notebook_section_cell_and_claims(tiny):
    complaints = tiny(lambda nb: bad_notebooks.edit(nb, "c2-2", "sum(rows)", "sum(row)"))
    place = "tiny-paper, C2 Moving it moves the answer, cell c2-2: NameError: name 'row' is not defined"
    assert complaints == [f"{place}; claims without a verdict: C1, C2"]


def test_a_dead_kernel_is_told_in_a_line(tiny):
    complaints = tiny(lambda nb: bad_notebooks.edit(nb, "c2-2", "moved", "import os\n\nos.kill(os.getpid(), 9)\nmoved"))
    assert complaints == [
        "tiny-paper, the kernel died; `hookbook run` tells in which cell; claims without a verdict: C1, C2"
    ]


def test_allowed_errors_do_not_turn_it_green(tiny):
    def edit(nb):
        nb.metadata["execution"] = {"allow_errors": True}
        bad_notebooks.edit(nb, "ledger-2", "for id, kind", "for id, kind in []\n    for x, kind")

    assert any("no verdict any more" in complaint or "Error" in complaint for complaint in tiny(edit))


def test_another_verdict_is_told_with_its_section(tiny):
    complaints = tiny(lambda nb: bad_notebooks.ledger_row(nb, verdict="fails", value=0.4, interval=[0.3, 0.5]))
    assert len(complaints) == 1
    assert complaints[0].startswith("tiny-paper, C2 Moving it moves the answer: C2 holds at 0.95 [0.9, 1]")
    assert "committed: fails at 0.4 [0.3, 0.5]" in complaints[0]


def test_a_verdict_that_was_never_committed_is_told(tiny):
    complaints = tiny(lambda nb: bad_notebooks.cell(nb, "ledger-2").outputs.clear())
    assert complaints == ["tiny-paper, C1 has no committed verdict", "tiny-paper, C2 has no committed verdict"]


def row(verdict, low=None, high=None, contrast=None):
    controls = {"shuffled_labels": {"interval": contrast}} if contrast else {}
    interval = None if low is None else [low, high]
    return {"verdict": verdict, "value": low, "interval": interval, "controls": controls, "reason": None}


@pytest.mark.parametrize(
    ("committed", "fresh", "agree"),
    [
        (row("holds", 0.8, 0.9), row("holds", 0.75, 0.9), True),
        (row("holds", 0.8, 0.9), row("open", 0.69, 0.9), False),  # was clear of 0.70 by more than 0.02
        (row("holds", 0.71, 0.9), row("open", 0.69, 0.9), True),
        (row("holds", 0.71, 0.9), row("fails", 0.5, 0.6), False),  # opposite, however near
        (row("open", 0.5, 0.9), row("holds", 0.75, 0.9), False),
        (row("open", 0.69, 0.9), row("holds", 0.71, 0.9), True),
        (row("fails", 0.5, 0.69), row("open", 0.5, 0.71), True),
        (row("open", 0.8, 0.9, contrast=[-0.01, 0.3]), row("holds", 0.8, 0.9), True),
        (row("open", 0.8, 0.9, contrast=[-0.2, 0.3]), row("holds", 0.8, 0.9), False),
        (row("not tested"), row("holds", 0.8, 0.9), False),
        (row("holds", 0.8, 0.9), None, False),
        (row("holds", 0.8, 0.9), row("not tested"), False),
    ],
)
def test_how_far_a_rerun_may_differ(committed, fresh, agree):
    claim = papers.catalogue(bad_notebooks.FOLDER / "papers.yaml")[bad_notebooks.SLUG].claims[0]
    assert (disagreement(claim, committed, fresh) is None) == agree


def test_open_contradicts_nothing():
    assert contradicts("holds", "fails") and contradicts("fails", "holds")
    assert not any(
        contradicts("open", verdict) or contradicts(verdict, "open") for verdict in ("holds", "fails", "open")
    )
