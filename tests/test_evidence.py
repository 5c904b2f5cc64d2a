import json
from pathlib import Path

import pytest
from nbformat.v4 import new_notebook

from helpers import notebooks
from helpers.batch import evidence
from helpers.batch.record import RunRecord
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
