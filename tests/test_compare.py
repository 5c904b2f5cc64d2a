"""The same claims on two models: verdicts side by side, how they agree, the figure, and the ceiling of agreement."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from ledger_rows import claim, keep, ledger, paper, row, spread
from PIL import Image
from rich.console import Console

from helpers import compare, forest, papers, plots, split_half, stored
from helpers.errors import HookbookError

MODELS = ("toy", "owner/other-toy")
CHANCE = spread(0.2, 0.04, 12)[::-1]


def found(id, mean, deviation=0.05, **fields):
    return row(claim(id=id, **fields), spread(mean, deviation, 12), shuffled_labels=CHANCE)


def untested(id):
    return found(id, 0.5) | {"verdict": "not tested", "value": None, "interval": None, "controls": {}, "n": None}


@pytest.fixture
def folder(tmp_path):
    """Two tiny files of evidence: agreement, disagreement, one left open, one not tested, one with a changed test."""
    first = [
        found("C1", 0.9),
        found("C2", 0.9),
        found("C3", 0.75, 0.3),
        untested("C4"),
        found("C5", 0.9),
        found("C6", 0.9),
    ]
    second = [
        found("C1", 0.8),
        found("C2", 0.4),
        found("C3", 0.9),
        found("C4", 0.9),
        found("C5", 0.9, test={"at_most": 0.3}),
    ]
    settings = {"seed": 0, "model_name": "toy", "words": "confirm"}
    keep(tmp_path, ledger(first, MODELS[0], run={"parameters": settings}))
    keep(tmp_path, ledger(second, MODELS[1], run={"parameters": settings | {"model_name": "x", "words": "explore"}}))
    keep(tmp_path, ledger([found("C1", 0.9)], MODELS[0]), slug="alone")
    return tmp_path


@pytest.fixture
def compared(folder):
    (one,) = compare.compare(*(stored.of_model(model, folder) for model in MODELS), [])
    return one


def printed(comparison):
    console = Console(width=140, file=io.StringIO())
    compare.print_table(comparison, MODELS, console)
    return console.file.getvalue()


def test_how_two_verdicts_stand_to_each_other(compared):
    assert [(pair.id, pair.first["verdict"], pair.second["verdict"], pair.agreement) for pair in compared.pairs] == [
        ("C1", "holds", "holds", "same"),
        ("C2", "holds", "fails", "opposite"),
        ("C3", "open", "holds", "open on one"),
        ("C4", "not tested", "holds", "no verdict on one"),
        ("C5", "holds", "fails", "other test"),
    ]


def test_the_summary_counts_what_has_a_verdict_on_both(compared):
    assert compare.summary(compared.pairs) == (
        "1 of 3 verdicts agree (33%), 1 opposite, 1 open on one, 1 no verdict on one, 1 other test."
    )
    assert compare.summary(compared.pairs[3:4]) == "0 of 0 verdicts agree, 1 no verdict on one."


def test_the_table_and_what_must_be_said_beside_it(compared):
    text = printed(compared)
    assert "some-paper" in text and "owner/other-toy" in text
    line = next(line for line in text.splitlines() if line.strip().startswith("C2"))
    assert "✓ holds 0.900 [0.8" in line and "✗ fails 0.400 [0.3" in line and line.rstrip().endswith("opposite")
    assert "Only on toy: C6." in text and "1 of 3 verdicts agree" in text
    assert "The runs differ in more than the model: words confirm and explore." in text
    assert "No split-half ceiling: the rows per unit are not kept" in text


def test_papers_of_both_or_those_that_are_named(folder):
    first, second = (stored.of_model(model, folder) for model in MODELS)
    assert list(first) == ["alone", "some-paper"]
    assert [one["model"] for one in stored.of_paper("alone", folder)] == ["toy"]
    assert [one["model"] for one in stored.of_paper("some-paper", folder)] == ["owner/other-toy", "toy"]
    assert [one.slug for one in compare.compare(first, second, [])] == ["some-paper"]
    with pytest.raises(HookbookError, match="There is no run of alone on owner/other-toy: it has some-paper."):
        compare.compare(first, second, ["alone"])
    with pytest.raises(HookbookError, match="No paper is common to both models"):
        compare.compare({"alone": first["alone"]}, second, [])


def test_an_unknown_model_is_a_sentence(folder):
    with pytest.raises(HookbookError, match="No evidence run of gpt2 .* some of owner/other-toy, toy"):
        stored.of_model("gpt2", folder)


# the figure


def test_the_figure_shows_every_claim_on_both_models(compared):
    fig = forest.figure(compared, MODELS)
    assert [ax.get_title(loc="left").split()[0] for ax in fig.axes] == ["C1", "C2", "C3", "C4", "C5"]
    assert all(ax.get_xlabel() == "accuracy on held-out words" for ax in fig.axes)
    for ax, pair in zip(fig.axes, compared.pairs, strict=True):
        points = [line for line in ax.lines if line.get_marker() in ("o", "s")]
        rows = [one for one in (pair.first, pair.second) if one["value"] is not None]
        assert [line.get_xdata()[0] for line in points] == [one["value"] for one in rows]
        left, right = ax.get_xlim()
        drawn = [end for one in rows for end in (*one["interval"], one["value"])]
        assert left < min(drawn) and max(drawn) < right and left < 0.7 < right and left < 0.9 < right
        assert [text.get_text() for text in ax.texts] == [pair.first["verdict"], pair.second["verdict"]]
    labels = [text.get_text() for text in fig.legends[0].get_texts()]
    assert labels == [*MODELS, "the tested region", "the paper"]


def test_the_papers_own_value_is_within_the_axis(compared):
    far = compared.pairs[0].first | {"paper_value": 1.5}
    pair = compare.Pair("some-paper", far, compared.pairs[0].second)
    (ax,) = forest.figure(compare.Comparison("some-paper", [pair], []), MODELS).axes
    assert ax.get_xlim()[1] > 1.5 and [1.5, 1.5] in [list(line.get_xdata()) for line in ax.lines]


def test_the_figure_is_a_file_with_alternative_text(compared, tmp_path):
    path = forest.save(compared, MODELS, tmp_path / "new" / "folder")
    assert path.name == "compare-toy-owner--other-toy-some-paper.png"
    picture = Image.open(path)
    assert picture.width > 900 and len(np.unique(np.asarray(picture.convert("L")))) > 20
    assert picture.info["Description"].startswith("Value and interval by claim on toy and on owner/other-toy")
    assert "C2 holds and fails" in picture.info["Description"]


def test_a_claim_without_any_number_still_has_its_line(compared):
    pair = compare.Pair("some-paper", untested("C4"), untested("C4"))
    (ax,) = forest.figure(compare.Comparison("some-paper", [pair], []), MODELS).axes
    assert [text.get_text() for text in ax.texts] == ["not tested", "not tested"]


def test_a_folder_that_cannot_be_made(compared, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HookbookError, match="cannot be written .*: name another folder with --out"):
        forest.save(compared, MODELS, tmp_path / "file" / "folder")


def test_colours_tell_the_models_apart():
    assert len({plots.BLUE, plots.ORANGE} & set(forest._COLOURS)) == 2 and len(set(forest._MARKERS)) == 2


# the ceiling, from runs that kept their rows


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Runs of a paper with one claim in a folder; `(model, values)` adds one."""
    stated = claim(unit="word")
    monkeypatch.setattr(
        split_half, "catalogue", lambda: {"some-paper": paper(stated, claim(id="C2", kind="method", unit="word"))}
    )

    def add(model, values, started="1", status="done", chance=None):
        folder = tmp_path / "runs" / "some-paper" / f"{model.replace('/', '-')}-{started}"
        (folder / "rows").mkdir(parents=True)
        rng = np.random.default_rng(0)
        chance = 0.2 + 0.05 * rng.normal(size=len(values)) if chance is None else chance
        words = [f"w{number}" for number in range(len(values))]
        frame = pd.DataFrame({"word": words, "value": values, "shuffled_labels": chance})
        for id in ("C1", "C2"):
            frame.to_parquet(folder / "rows" / f"some-paper-{id}.parquet")
        measured = ledger([row(stated, np.array(values), shuffled_labels=np.array(chance))], model)
        record = {
            "slug": "some-paper",
            "status": status,
            "started": started,
            "ledger": measured,
            "parameters": {"seed": 1},
        }
        (folder / "run.json").write_text(json.dumps(record))
        return folder

    add.folder = tmp_path / "runs"
    return add


def test_two_clear_results_agree_and_two_opposite_ones_do_not(runs):
    high, low, other = (runs(name, spread(mean, 0.05, 20)) for name, mean in (("a", 0.9), ("b", 0.3), ("c", 0.85)))
    assert split_half.agreement("some-paper", high, other) == split_half.Agreement(1, 1, 1, ["C1"])
    assert split_half.agreement("some-paper", high, low) == split_half.Agreement(0, 1, 1, ["C1"])


def test_a_noisy_result_does_not_even_agree_with_itself(runs):
    noisy = np.random.default_rng(1).permutation(spread(0.78, 0.2, 40))
    first, second = runs("a", noisy), runs("b", spread(0.9, 0.05, 40))
    found = split_half.agreement("some-paper", first, second)
    assert 0 < found.within_first < 1 and found.within_second == 1 and found.between < 1
    assert f"{found.within_first:.0%} within the first, 100% within the second" in str(found)


def test_halves_are_disjoint_and_the_same_in_both_runs():
    frame = pd.DataFrame({"word": list("abcdefghijkl"), "value": 1.0})
    one = claim(unit="word")
    for seed in range(3):
        first, rest = split_half._halves(one, frame, seed)
        again, _ = split_half._halves(one, frame[::-1], seed)
        assert set(first.word) | set(rest.word) == set("abcdefghijkl") and len(first) == len(rest) == 6
        assert set(first.word) == set(again.word)
    assert len({frozenset(split_half._halves(one, frame, seed)[0].word) for seed in range(5)}) > 1


def test_of_crossed_units_the_more_plentiful_is_halved():
    crossed = claim(unit=["template", "word pair"])
    frame = pd.DataFrame([(t, w, 1.0) for t in range(8) for w in range(12)], columns=["template", "word_pair", "value"])
    first, rest = split_half._halves(crossed, frame, 0)
    assert first.word_pair.nunique() == rest.word_pair.nunique() == 6
    assert first.template.nunique() == rest.template.nunique() == 8
    assert split_half._enough(crossed, frame) and not split_half._enough(crossed, frame[frame.word_pair < 11])
    assert not split_half._enough(crossed, frame[frame.template < 5])


@pytest.mark.parametrize("n", [11, 12])
def test_too_few_units_are_not_halved(runs, n):
    first, second = runs("a", spread(0.9, 0.05, n)), runs("b", spread(0.9, 0.05, 20))
    found = split_half.agreement("some-paper", first, second)
    assert (found is None) == (n == 11)


def test_rows_that_are_missing_or_of_another_form_are_left_out(runs):
    first, second = runs("a", spread(0.9, 0.05, 20)), runs("b", spread(0.9, 0.05, 20))
    pd.DataFrame({"other": [1.0]}).to_parquet(second / "rows" / "some-paper-C1.parquet")
    assert split_half.agreement("some-paper", first, second) is None
    (second / "rows" / "some-paper-C1.parquet").unlink()
    assert split_half.agreement("some-paper", first, second) is None
    assert split_half.agreement("not-in-the-catalogue", first, first) is None


def test_the_newest_finished_run_of_the_model_counts(runs):
    runs("a", spread(0.9, 0.05, 20), "2026-01-01")
    newest = runs("a", spread(0.8, 0.05, 20), "2026-01-03")
    runs("a", spread(0.7, 0.05, 20), "2026-01-02")
    runs("a", spread(0.6, 0.05, 20), "2026-01-04", status="failed")
    (newest.parent / "half-written").mkdir()
    (newest.parent / "half-written" / "run.json").write_text("{")
    found = split_half.finished_runs("a", runs.folder)
    assert found["some-paper"]["folder"] == newest and found["some-paper"]["run"] == {"parameters": {"seed": 1}}
    with pytest.raises(HookbookError, match="holds no finished run on b: run the notebooks on it first"):
        split_half.finished_runs("b", runs.folder)


def test_runs_are_compared_with_their_ceiling(runs):
    runs("toy", spread(0.9, 0.05, 20))
    runs("owner/other-toy", spread(0.85, 0.05, 20))
    (one,) = compare.compare(*(split_half.finished_runs(model, runs.folder) for model in MODELS), [])
    assert "Split-half ceiling (C1): on disjoint halves of the units 100%" in printed(one)
    assert one.pairs[0].agreement == "same"


def test_a_ceiling_that_nobody_can_compute_is_told(runs):
    runs("toy", spread(0.9, 0.05, 8))
    runs("owner/other-toy", spread(0.85, 0.05, 8))
    (one,) = compare.compare(*(split_half.finished_runs(model, runs.folder) for model in MODELS), [])
    assert one.remarks == ["No split-half ceiling: no claim has rows with units enough to be halved."]


def test_stored_evidence_of_this_repository_can_be_compared_with_itself():
    models = {path.parent.name for path in stored.FOLDER.glob("*/*.json")}
    for model in sorted(models):
        kept = stored.of_model(model)
        for one in compare.compare(kept, kept, []):
            assert {pair.agreement for pair in one.pairs} == {"same"} and papers.paper(one.slug)
