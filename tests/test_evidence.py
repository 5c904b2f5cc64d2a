"""What is kept as evidence: the evidence preset and nothing else, by model, and again when it is behind."""

import json
from pathlib import Path

import bad_notebooks
import pytest
from nbformat.v4 import new_notebook

from helpers import notebooks
from helpers.batch import evidence
from helpers.batch.planned import label
from helpers.batch.record import RunRecord
from helpers.batch.single import run
from helpers.errors import HookbookError


@pytest.fixture
def record(tmp_path):
    def record(status="done", preset="evidence"):
        path = tmp_path / "some-paper.ipynb"
        notebooks.write(new_notebook(metadata={"hookbook": {"fingerprint": {"id": "abc"}}}), path)
        ledger = {"paper": "some-paper", "model": "EleutherAI/pythia-70m", "claims": []}
        return RunRecord("some-paper", status, tmp_path, path, Path("x"), ledger, {"seed": 1}, preset, 90.0, 1.0, None)

    return record


def test_a_finished_evidence_run_is_filed_under_its_model(record, tmp_path):
    path = evidence.keep(record(), tmp_path / "claims")
    assert path == tmp_path / "claims" / "EleutherAI--pythia-70m" / "some-paper.json"
    kept = json.loads(path.read_text())
    assert kept["paper"] == "some-paper"
    assert kept["run"].items() >= {"minutes": 1.5, "parameters": {"seed": 1}, "fingerprint": "abc"}.items()


@pytest.mark.parametrize(("status", "preset"), [("failed", "evidence"), ("done", "quick"), ("done", "custom")])
def test_nothing_else_counts_as_evidence(record, tmp_path, status, preset):
    with pytest.raises(HookbookError, match=f"this one is {preset}, {status}"):
        evidence.keep(record(status, preset), tmp_path / "claims")
    assert not (tmp_path / "claims").exists()


@pytest.mark.parametrize(
    ("given", "called"),
    [
        ({}, "evidence"),
        ({"model_name": "gpt2"}, "evidence"),
        ({"model_name": "gpt2", "revision": "v1"}, "evidence"),
        ({"seed": 1}, "custom"),
        ({"model_name": "gpt2", "device": "cuda"}, "custom"),
    ],
)
def test_a_preset_on_another_model_is_that_preset_and_with_anything_else_it_is_not(given, called):
    assert label(given, "evidence") == called


@pytest.mark.parametrize(
    ("given", "preset", "sentence"),
    [
        ({}, "quick", "use it with --preset evidence and with no other -p than model_name and revision"),
        ({"seed": "1", "model_name": "gpt2"}, "evidence", "with no other -p than model_name and revision"),
        ({"model_name": "shuffled:gpt2"}, "evidence", "shuffled:gpt2 learned nothing .* let `hookbook audit` compare"),
    ],
)
def test_what_could_not_be_kept_is_refused_before_it_runs(given, preset, sentence):
    with pytest.raises(HookbookError, match=sentence):
        evidence.refuse_others(given, preset)


@pytest.mark.parametrize("given", [{}, {"model_name": "gpt2"}, {"revision": "v1", "model_name": "owner/gpt2"}])
def test_evidence_on_any_model_is_not_refused(given):
    evidence.refuse_others(given, "evidence")


def test_a_second_model_is_kept_beside_the_first_and_an_edit_makes_evidence_stale(tmp_path):
    path, claims = tmp_path / f"{bad_notebooks.SLUG}.ipynb", tmp_path / "claims"
    notebooks.write(bad_notebooks.source(), path)
    with bad_notebooks.tiny_catalogue():
        other = run(path, {"model_name": "owner/other"}, "evidence", tmp_path / "runs")
        evidence.keep(other, claims)
        assert not evidence.is_current(path, claims), "another model's evidence is not that of the preset"
        evidence.keep(run(path, preset="evidence", runs_dir=tmp_path / "runs"), claims)
        assert evidence.is_current(path, claims)
        found = {file.parent.name: json.loads(file.read_text()) for file in claims.glob("*/*.json")}
        assert found.keys() == {"toy", "owner--other"} and {kept["preset"] for kept in found.values()} == {"evidence"}
        one, two = (kept["run"]["parameters"] for kept in found.values())
        assert {name for name in one if one[name] != two[name]} == {"model_name"}
        path.write_text(path.read_text().replace("accuracy on held-out words", "accuracy"))
        assert not evidence.is_current(path, claims)
