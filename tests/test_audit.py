"""The audit: which runs, what they mean together, what is named and kept; and four planted mistakes that it finds."""

import copy
import io
import json
import sys
from dataclasses import replace

import numpy as np
import planted_notebooks
import pytest
from catalogue_entries import STANDS
from ledger_rows import claim, row, spread
from rich.console import Console
from tiny_models import make_gguf
from toy_sweeps import toy

from helpers import cli, fingerprint, notebooks, papers
from helpers.alt_text import lacks
from helpers.audit import curve, doubts, findings, kept, outcomes, roles, strip
from helpers.audit.audit import audit
from helpers.audit.own_nulls import in_its_place, own_nulls
from helpers.audit.summary import summary
from helpers.audit.table import print_audit, print_summary
from helpers.batch.collect import Run
from helpers.batch.planned import Notebook
from helpers.dequantise import convert
from helpers.errors import HookbookError
from helpers.papers import Audit, Paper
from helpers.rows import tidy

QUIET = Console(quiet=True)
LOADING = """model_name: str = "smollm2-135m"  # a model
dtype: str = "float32"  # float32 | bfloat16
seed: int = 0  # 0..
prepend_bos: bool = True  # start with BOS
gates: bool = True  # stop at gates
layer: int = 1  # 1..9
words: str = "a"  # a | b | c"""
LOADS = "from helpers.models import load_model\n\nload_model(model_name, dtype=dtype)\nprint(prepend_bos, gates, layer)"


def planned(tmp_path, *sources, parameters=LOADING):
    return Notebook.at(toy(tmp_path / "toy.ipynb", *sources, parameters=parameters))


# which runs


def test_every_kind_but_those_that_are_checked_has_all_nulls():
    assert set(roles.NULLS_OF) == set(papers.Kind.__args__)
    for kind, found in roles.NULLS_OF.items():
        assert set(found) == (set() if kind in papers.CHECKED_KINDS else set(roles.NULLS_OF["behaviour"]))
        assert not found or found[0] == "random"


def test_roles_vary_what_the_notebook_has(tmp_path):
    notebook = planned(tmp_path, LOADS, "print(words)")
    found = roles.roles(notebook, ["behaviour"], Audit(redraw={"words": ["b", "c"]}), {})
    assert all(role.given["gates"] is False for role in found)
    given = [(role.part, {n: v for n, v in role.given.items() if n != "gates"}) for role in found]
    assert given[0] == ("default", {})
    names = [values["model_name"] for part, values in given if part == "null"]
    assert names == [f"{null}:smollm2-135m" for null in ("random", "random-x3", "shuffled", "fresh-blocks")]
    assert [values["seed"] for part, values in given if part == "seed"] == [0, 1, 2, 3, 4]
    assert [values for part, values in given if part == "redraw"] == [{"words": "b"}, {"words": "c"}]
    jitter = [values for part, values in given if part == "jitter"]
    assert jitter == [{"model_name": "jitter:smollm2-135m"}, {"dtype": "bfloat16"}, {"prepend_bos": False}]
    assert not [values for part, values in given if part == "choice"]


def test_without_a_named_redraw_other_seeds_stand_for_other_units(tmp_path):
    found = roles.roles(planned(tmp_path, LOADS), ["causal"], Audit(), {})
    assert [role.given["seed"] for role in found if role.part == "redraw"] == [5, 6, 7, 8, 9]


def test_a_notebook_without_model_and_claims_that_are_checked_have_no_nulls(tmp_path):
    found = roles.roles(planned(tmp_path, LOADS), ["identity", "method"], Audit(), {})
    assert not [role for role in found if role.part == "null"]
    bare = planned(tmp_path, "print(seed, label)", parameters="seed: int = 0  # 0..\nlabel: str = 'a'  # a name")
    found = roles.roles(bare, ["behaviour"], Audit(), {"label": "b"})
    assert {role.part for role in found} == {"default", "seed", "redraw"}
    assert all(role.given["label"] == "b" and "gates" not in role.given for role in found)


def test_another_model_may_be_audited_and_a_null_may_not(tmp_path):
    notebook = planned(tmp_path, LOADS)
    found = roles.roles(notebook, ["behaviour"], Audit(), {"model_name": "gpt2"})
    assert found[0].given["model_name"] == "gpt2" and found[1].given["model_name"] == "random:gpt2"
    with pytest.raises(HookbookError, match="is a null already.*give gpt2 as model_name"):
        roles.roles(notebook, ["behaviour"], Audit(), {"model_name": "shuffled:gpt2"})


def test_specifications_are_a_sample_that_stays():
    choices = {"layer": [1, 2, 3, 4, 5], "words": ["a", "b", "c"], "dtype": ["float32", "bfloat16"]}
    assert len(list(roles.specifications(Audit(choices=choices)))) == 24
    few = list(roles.specifications(Audit(choices=choices, sample=7)))
    assert few == list(roles.specifications(Audit(choices=choices, sample=7))) and len(few) == 7
    every = list(roles.specifications(Audit(choices=choices, sample=100)))
    assert len({json.dumps(point) for point in every}) == 30 and all(point in every for point in few)
    assert every[0] == {"layer": 1, "words": "a", "dtype": "float32"} and list(every[0]) == list(choices)
    assert list(roles.specifications(Audit())) == []


# the catalogue


def test_the_catalogues_entry_is_strict_and_optional():
    assert Paper.model_validate({"slug": "some-paper", **STANDS}).audit is None
    entry = {"redraw": {"words": ["b"]}, "choices": {"layer": [1, None]}, "sample": 5}
    assert Paper.model_validate({"slug": "some-paper", **STANDS, "audit": entry}).audit.sample == 5
    assert Paper.model_validate(
        {"slug": "some-paper", **STANDS, "audit": {"nulls": {"C1": ["shuffled_labels"]}}}
    ).audit.nulls
    wrong = [
        {"nulls": {"C1": ["nothing"]}},
        {"nulls": {"C7": ["shuffled_labels"]}},
        {"nulls": {"C1": []}},
        {"redraw": {"words": []}},
        {"choices": {"layer": [1]}},
        {"sample": 0},
        {"sampel": 3},
        {"redraw": ["words"]},
    ]
    for bad in wrong:
        with pytest.raises(ValueError):
            Paper.model_validate({"slug": "some-paper", **STANDS, "audit": bad})
    planned = {name: value for name, value in STANDS.items() if name not in ("claims", "presets", "teaching")}
    with pytest.raises(ValueError, match="a planned paper has none"):
        Paper.model_validate({"slug": "some-paper", **planned, "status": "planned", "audit": entry})


def test_an_entry_changes_no_fingerprint(monkeypatch):
    paper = next(paper for paper in papers.catalogue().values() if paper.notebook.is_file())
    raw = papers.raw_entry(paper.slug)
    before = fingerprint.shared(paper.notebook).hard
    changed = raw | {"audit": {"sample": 3}, "teaching": {}}
    monkeypatch.setattr(papers, "raw_entry", lambda slug: copy.deepcopy(changed))
    assert fingerprint.shared(paper.notebook).hard == before
    monkeypatch.setattr(papers, "raw_entry", lambda slug: copy.deepcopy(raw | {"title": "Another"}))
    assert fingerprint.shared(paper.notebook).hard != before
    assert not any(name.startswith("helpers.audit") for name in before)


# what a null says


C1 = claim(id="C1", controls={"shuffled_labels": "x"}, test={"at_least": 0.7})


def measured(mean, control=0.0, n=12, **fields):
    of = claim(id="C1", controls={"shuffled_labels": "x"}, test={"at_least": 0.7}, **fields)
    return row(of, spread(mean, 0.05, n), shuffled_labels=np.full(n, control) + spread(0, 0.01, n))


def ratio(denominators):
    from helpers.verdicts import judge

    n = len(denominators)
    frame = {"template": range(n), "value": spread(0.1, 0.1, n), "denominator": denominators}
    import pandas as pd

    return judge(C1, pd.DataFrame(frame | {"shuffled_labels": spread(0, 0.1, n)})).as_json()


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (measured(0.9), "passed"),
        (measured(0.1), "failed"),
        (measured(0.9, control=0.95), "failed"),  # inside the region, and no better than its control
        (measured(0.7), "failed"),  # open
        (measured(0.9, n=5), "undefined"),  # too few units for an interval
        (measured(0.9, n=8, n_min=10), "undefined"),
        (measured(0.9, control=np.nan), "undefined"),  # nothing to beat
        (ratio(spread(0.1, 1, 12)), "undefined"),  # a denominator that is not clear of zero
        (ratio(spread(5, 1, 12)), "failed"),
        (measured(0.1) | {"gate": "accuracy 0.50"}, "undefined"),  # at chance, measured all the same
        (measured(0.9) | {"gate": "accuracy 0.50"}, "passed"),
        (measured(0.1) | {"verdict": "not tested", "value": None, "interval": None}, "gate-stopped"),
        (measured(0.1) | {"verdict": "out of scope", "value": None, "interval": None}, "undefined"),
        (None, "not run"),
    ],
)
def test_what_a_row_on_a_null_means(found, outcome):
    assert outcomes.of_null(found) == outcome


@pytest.mark.parametrize(
    ("outcomes_", "together"),
    [
        (["failed", "failed"], ("failed", "a")),
        (["undefined", "failed"], ("failed", "b")),
        (["undefined", "undefined"], ("undefined", "a")),
        (["failed", "passed"], ("passed", "b")),
        (["gate-stopped", "undefined"], ("undefined", "b")),
        (["gate-stopped", "not run"], ("gate-stopped", "a")),
        (["not run", "not run"], ("not run", None)),
        ([], ("not run", None)),
    ],
)
def test_what_nulls_say_together(outcomes_, together):
    assert outcomes.together(dict(zip("ab", outcomes_, strict=False))) == together


def test_a_control_that_never_fails_is_doubted():
    trained, low, high = measured(0.9), measured(0.3, control=0.02), measured(0.2, control=0.01)
    (doubt,) = doubts.idle_controls(trained, {"random": low, "shuffled": high})
    assert "shuffled_labels is beaten on every null too (random:, shuffled:)" in doubt
    assert not doubts.idle_controls(trained, {"random": low})  # one null is no pattern
    assert not doubts.idle_controls(trained, {"random": low, "shuffled": measured(0.3, control=0.3)})
    assert not doubts.idle_controls(trained, {"random": low, "shuffled": measured(0.3, control=np.nan)})
    constant = [row(C1, spread(mean, 0.05, 12), shuffled_labels=np.full(12, 0.95)) for mean in (0.9, 0.3, 0.2)]
    (doubt,) = doubts.idle_controls(constant[0], {"random": constant[1], "shuffled": constant[2]})
    assert "is 0.950 on every model" in doubt and "no more than a threshold" in doubt


def test_values_that_move_further_than_their_interval_are_doubted():
    rng = np.random.default_rng(0)
    honest = [row(C1, rng.normal(0.9, 0.1, 12), shuffled_labels=np.zeros(12)) for _ in range(10)]
    assert doubts.scatter(honest) == []
    narrow = [row(C1, rng.normal(rng.normal(0.9, 0.1), 0.01, 40), shuffled_labels=np.zeros(40)) for _ in range(10)]
    (doubt,) = doubts.scatter(narrow)
    assert "over 10 seeds and redraws" in doubt and "not independent" in doubt
    assert doubts.scatter(narrow[:3]) == []
    assert doubts.scatter([measured(0.9)] * 5) == []


# the record


def play(part, label, *rows, status="done", given=None):
    role = roles.Role(part, label, given or {})
    record = {"ledger": {"claims": list(rows)}} if rows else {"failure": "C1, code cell 3\nValueError: no"}
    return findings.Played(role, Run(f"id-{label}", "toy", status, False, "custom", {}, None, record))


@pytest.fixture
def record():
    """Three claims: one holds and its nulls fail, one holds and a null passes, one is open."""

    def rows(first, second, third):
        return [measured(mean) | {"id": id} for id, mean in (("C1", first), ("C2", second), ("C3", third))]

    chosen = [{"layer": layer, "words": words} for layer in (1, 2) for words in ("a", "b")]
    played = [
        play("default", "default", *rows(0.9, 0.9, 0.7)),
        play("null", "random", *rows(0.1, 0.1, 0.1)),
        play("null", "random-x3", status="failed"),
        play("null", "fresh-blocks", *rows(0.2, 0.95, 0.1)),
        play("seed", "seed=0", *rows(0.9, 0.9, 0.7)),
        play("seed", "seed=1", *rows(0.85, 0.1, 0.7)),
        play("jitter", "dtype=bfloat16", *rows(0.9, 0.9, 0.7)),
        *(
            play("choice", str(point), *rows(0.8 + i / 50, 0.5 + i / 10, 0.1), given=point)
            for i, point in enumerate(chosen)
        ),
    ]
    return findings.findings("toy", "tiny", played, ["layer", "words"])


def test_the_record_says_what_each_run_found(record):
    first, second, third = record["claims"]
    assert (first["positive"], second["positive"], third["positive"]) == (True, True, False)
    assert first["null"] == {"outcome": "failed", "decided_by": "random"}
    assert second["null"] == {"outcome": "passed", "decided_by": "fresh-blocks"}
    assert [null["null"] for null in first["nulls"]] == ["random", "fresh-blocks", "random-x3"]  # decodable
    assert [null["outcome"] for null in first["nulls"]] == ["failed", "failed", "not run"]
    assert first["nulls"][2]["reason"] == "C1, code cell 3 ValueError: no" and first["nulls"][2]["verdict"] is None
    assert (first["seed_stability"], second["seed_stability"], first["redraw_stability"]) == (1.0, 0.5, None)
    assert first["specifications"][3]["choices"] == {"layer": 2, "words": "b"}
    assert first["jitter"][0]["verdict"] == "holds" and record["runs"]["planned"] == 11
    assert [one["label"] for one in record["runs"]["not_done"]] == ["random-x3"]
    json.dumps(record, allow_nan=False)


def test_what_has_to_be_said_is_said_by_name(record):
    passed = [sentence for sentence in findings.named(record) if "passed by a null" in sentence]
    assert passed == ["toy C2 is passed by a null (fresh-blocks:): It can be read."]
    text = io.StringIO()
    print_audit(record, Console(file=text, width=120))
    assert passed[0] in text.getvalue() and "null random-x3 is failed: C1, code cell 3" in text.getvalue()
    printed = io.StringIO()
    print_audit(record, Console(file=printed, width=80))
    rows = [line.split() for line in printed.getvalue().splitlines() if "holds" in line or "? open" in line]
    assert rows == [
        ["C1", "✓", "holds", "failed", "not", "run", "–", "failed", "–", "failed", "100%,", "–"],
        ["C2", "✓", "holds", "failed", "not", "run", "–", "passed", "–", "passed", "50%,", "–"],
        ["C3", "?", "open", "failed", "not", "run", "–", "failed", "–", "failed", "100%,", "–"],
    ]


@pytest.mark.parametrize(
    ("control", "outcome"),
    [(spread(0.1, 0.05, 12), "failed"), (spread(0.9, 0.05, 12), "passed"), (np.full(12, np.nan), "undefined")],
)
def test_a_control_that_is_the_claim_on_permuted_data_is_a_null(control, outcome, tmp_path):
    rows = tidy(C1, {"template": range(12), "value": spread(0.95, 0.05, 12), "shuffled_labels": control})
    (tmp_path / "rows").mkdir()
    rows.to_parquet(tmp_path / "rows" / "toy-C1.parquet")
    undecided = play("null", "random", ratio(spread(0.1, 1, 12)))
    default = play("default", "default", measured(0.95))
    run = replace(default.run, folder=tmp_path)
    own = own_nulls([C1], {"C1": ["shuffled_labels"]}, run)
    record = findings.findings("toy", "tiny", [replace(default, run=run), undecided], [], own)
    (only,) = record["claims"]
    assert [null["outcome"] for null in only["nulls"]] == [outcome, "undefined"]
    assert only["null"] == {"outcome": outcome, "decided_by": "shuffled_labels"}
    said = findings.named(record)
    assert [sentence for sentence in said if "passed by a null (shuffled labels)" in sentence] == said * (
        outcome == "passed"
    )
    text = io.StringIO()
    print_audit(record, Console(file=text, width=120))
    (line,) = [line.split() for line in text.getvalue().splitlines() if "holds" in line]
    assert line[3:9] == ["undef.", "–", "–", "–", {"undefined": "undef."}.get(outcome, outcome)] + [
        {"undefined": "undef."}.get(outcome, outcome)
    ]
    assert "shuffled labels" in strip.told(record) and "shuffled labels:" not in strip.told(record)
    json.dumps(record, allow_nan=False)


def test_without_rows_a_null_of_its_own_is_not_run():
    default = play("default", "default", measured(0.95))
    own = own_nulls([C1], {"C1": ["shuffled_labels"]}, default.run)
    assert own == {"C1": {"shuffled_labels": None}}
    (only,) = findings.findings("toy", "tiny", [default], [], own)["claims"]
    assert only["null"] == {"outcome": "not run", "decided_by": None}


def test_the_other_controls_of_a_null_have_to_be_beaten():
    two = claim(id="C1", controls={"shuffled_labels": "x", "layer_0": "y"}, test={"at_least": 0.7})
    frame = {"template": range(12), "value": spread(0.95, 0.05, 12), "shuffled_labels": spread(0.9, 0.05, 12)}
    beaten = tidy(two, frame | {"layer_0": spread(0.1, 0.01, 12)})
    unbeaten = tidy(two, frame | {"layer_0": spread(0.9, 0.05, 12)})
    assert in_its_place(two, "shuffled_labels", beaten)["verdict"] == "holds"
    assert in_its_place(two, "shuffled_labels", unbeaten)["verdict"] == "open"


def test_the_summary_counts_positive_claims(record):
    found = summary([record])
    assert found == {
        "claims": 3,
        "positive": 2,
        "null_ran_and_failed": 1,
        "null_passed": 1,
        "null_undefined": 0,
        "null_gate_stopped": 0,
        "null_not_run": 0,
        "null_pass_rate": 0.5,
        "null_coverage": 1.0,
        "seed_stability": 0.75,
    }
    text = io.StringIO()
    print_summary(found, Console(file=text, width=200))
    assert "3 claims audited, 2 positive" in text.getvalue() and "Pass rate 50%" in text.getvalue()
    assert summary([])["null_pass_rate"] is None
    silent = copy.deepcopy(record)
    for one, outcome in zip(silent["claims"], ("undefined", "gate-stopped"), strict=False):
        one["null"]["outcome"] = outcome
    silent["claims"][2] |= {"positive": True, "null": None}
    found = summary([record, silent])
    assert (found["positive"], found["null_pass_rate"], found["null_coverage"]) == (5, 0.5, 0.4)
    assert (found["null_undefined"], found["null_gate_stopped"], found["null_not_run"]) == (1, 1, 1)


def test_what_is_kept(record, tmp_path):
    path = kept.keep(record | {"model": "owner/tiny"}, tmp_path)
    assert path == tmp_path / "owner--tiny" / "toy.json"
    stored = json.loads(path.read_text())
    assert set(stored["figures"]) == {"nulls", "specifications"}
    for figure in stored["figures"].values():
        assert (path.parent / figure["file"]).stat().st_size > 5000
        assert list(lacks(figure["alt"])) == []
    assert json.loads((tmp_path / "summary.json").read_text())["claims"] == 3
    first = (path.parent / "toy-nulls.png").read_bytes()
    for claim_ in record["claims"]:
        claim_["specifications"] = []
    kept.keep(record | {"model": "owner/tiny"}, tmp_path)
    assert (path.parent / "toy-nulls.png").read_bytes() == first
    assert not (path.parent / "toy-specifications.png").exists()


def test_figures_survive_what_is_missing(record):
    for one in (record, json.loads(json.dumps(record))):
        first = one["claims"][0]
        first["nulls"][0] |= {"value": None, "interval": None}
        first["interval"], first["region"] = None, [0.2, 0.3]
        assert len(strip.draw(one).axes) == 3 and len(curve.draw(one).axes) == 6
    assert not strip.drawable({"claims": []}) and not curve.drawable({"claims": []})


# planted mistakes


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    make_gguf(folder / "tiny.gguf", padding=0)
    convert(folder / "tiny.gguf", folder)
    return folder


@pytest.fixture
def audited(tiny, tmp_path):
    def audited(slug, **given):
        out = io.StringIO()
        found = audit(
            planted_notebooks.FOLDER / f"{slug}.ipynb",
            {"model_name": str(tiny), **given},
            runs_dir=tmp_path / "runs",
            folder=tmp_path / "audit",
            out=Console(file=out, width=200),
            err=QUIET,
        )
        assert found.record["model"] == "tiny", out.getvalue()
        assert str(tiny) not in found.path.read_text()
        return found

    return audited


def test_the_planted_notebooks_are_what_their_script_writes():
    files = {path.stem: notebooks.read(path) for path in planted_notebooks.FOLDER.glob("*.ipynb")}
    assert files == planted_notebooks.every()


def test_a_vacuous_claim_is_passed_by_its_nulls(audited):
    found = audited("vacuous-claim")
    (only,) = found.record["claims"]
    assert found.exit_code == 0 and only["verdict"] == "holds"
    assert {null["null"]: null["outcome"] for null in only["nulls"]}["random"] == "passed"
    (sentence,) = [sentence for sentence in findings.named(found.record) if "passed by a null" in sentence]
    assert "vacuous-claim C1 is passed by a null (random:" in sentence


def test_a_control_that_cannot_fail_is_named(audited):
    found = audited("idle-control")
    (only,) = found.record["claims"]
    assert only["positive"] and only["null"]["outcome"] == "failed"
    assert any("control random_direction is beaten on every null too" in name for name in findings.named(found.record))


def test_tokens_of_one_prompt_are_named_by_the_audit_or_refused_by_the_ledger(audited):
    found = audited("tokens-as-units")
    (only,) = found.record["claims"]
    assert only["positive"] and only["null"]["outcome"] == "failed"
    assert any("its units are not independent" in name for name in findings.named(found.record))
    found = audited("tokens-as-units", hide=False)
    assert found.exit_code == 1 and found.record["claims"] == []
    (sentence,) = findings.named(found.record)
    assert "the default run is failed" in sentence and "tokens or rows of one unit must be averaged first" in sentence


def test_the_best_of_many_heads_is_passed_by_its_nulls_and_nothing_runs_twice(audited, tmp_path):
    found = audited("best-of-many")
    assert found.record["claims"][0]["null"]["outcome"] == "passed"
    assert json.loads((tmp_path / "audit" / "summary.json").read_text())["null_passed"] == 1
    folders = sorted((tmp_path / "runs" / "best-of-many").iterdir())
    assert audited("best-of-many").record == found.record
    assert sorted((tmp_path / "runs" / "best-of-many").iterdir()) == folders


def test_the_command(monkeypatch, capsys, tmp_path, tiny):
    path = planted_notebooks.FOLDER / "idle-control.ipynb"
    arguments = ["audit", path, "-p", "model_name", tiny, "--runs", tmp_path / "runs", "--out", tmp_path / "audit"]
    monkeypatch.setattr(sys, "argv", ["hookbook", *map(str, arguments), "--dry-run"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code and "audit-idle-control: 15 runs of idle-control" in capsys.readouterr().out
    assert not (tmp_path / "audit").exists()
