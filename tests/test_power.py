"""How many units would settle a claim: the numbers of the verdict's own reason, and what more units cannot settle."""

import re

import numpy as np
import pytest
from ledger_rows import claim, keep, ledger, paper, row, spread
from nbformat.v4 import new_code_cell, new_notebook, new_output
from rich.console import Console

from helpers import notebooks, papers, power, stored, verdicts
from helpers.errors import HookbookError

C1 = claim()  # at least 0.7, above shuffled_labels
CHANCE = spread(0.2, 0.04, 12)[::-1]


@pytest.fixture(autouse=True)
def catalogue(monkeypatch, tmp_path):
    """One paper, and a folder of evidence that is empty; both can be replaced."""

    def state(*claims):
        monkeypatch.setattr(papers, "paper", lambda slug: paper(*claims))

    state(C1)
    monkeypatch.setattr(stored.of_paper, "__defaults__", (tmp_path / "claims",))
    return state


def needs(*rows):
    return power.needs("some-paper", power.Ledger("evidence run", list(rows), 6.0))


def in_words(reason):
    """The numbers of units in a verdict's reason."""
    return [int(number.replace(",", "")) for number in re.findall(r"about ([\d,]+) units", reason)]


def test_the_plan_is_the_one_in_the_verdicts_reason():
    stated = row(C1, spread(0.8, 0.3, 12), shuffled_labels=CHANCE)
    (need,) = needs(stated)
    assert stated["verdict"] == "open" and [need.needed] == in_words(stated["reason"])
    assert (need.claim, need.unit, need.n, need.then, need.crossed) == ("C1", "template", 12, "holds", False)
    assert "interval [0.6" in need.what and "≥ 0.70" in need.what
    assert need.factor == need.needed / 12 and need.minutes(6.0) == pytest.approx(6 * need.factor)
    assert need.minutes(None) is None


def test_more_units_of_that_spread_do_settle_it():
    (need,) = needs(row(C1, spread(0.8, 0.3, 12), shuffled_labels=CHANCE))
    chance = spread(0.2, 0.04, need.needed)[::-1]
    assert row(C1, spread(0.8, 0.3, need.needed), shuffled_labels=chance)["verdict"] == "holds"
    assert row(C1, spread(0.8, 0.3, need.needed - 10), shuffled_labels=chance[10:])["verdict"] == "open"


def test_a_value_outside_is_settled_by_its_interval_alone():
    (need,) = needs(row(C1, spread(0.6, 0.3, 12), shuffled_labels=spread(0.61, 0.3, 12)))
    assert need.then == "fails" and need.needed > 12


def test_a_control_that_is_not_beaten_is_told_with_its_own_number():
    stated = row(C1, spread(0.9, 0.1, 12), shuffled_labels=spread(0.85, 0.2, 12)[::-1])
    (need,) = needs(stated)
    assert stated["verdict"] == "open" and [need.needed] == in_words(stated["reason"])
    assert need.what.startswith("control shuffled labels, contrast [-0.") and need.then == "the control is beaten"


def test_interval_and_control_each_have_a_line():
    stated = row(C1, spread(0.8, 0.3, 12), shuffled_labels=spread(0.75, 0.1, 12)[::-1])
    one, other = needs(stated)
    assert in_words(stated["reason"]) == [one.needed, other.needed]
    assert (one.then, other.then) == ("holds, once every control is beaten", "the control is beaten")


def test_a_control_that_does_better_is_not_beaten_by_more_units():
    (need,) = needs(row(C1, spread(0.9, 0.1, 12), shuffled_labels=spread(0.91, 0.1, 12)[::-1]))
    assert need.needed is None and need.factor is None and need.minutes(6.0) is None
    assert need.then == "the control does as well or better: more units would not make it hold"


def test_below_its_controls(catalogue):
    below = claim(direction="below", test={"at_most": 0.3})
    catalogue(below)
    (need,) = needs(row(below, spread(0.1, 0.1, 12), shuffled_labels=spread(0.15, 0.2, 12)[::-1]))
    assert need.needed > 12 and need.then == "the control is beaten"
    (need,) = needs(row(below, spread(0.1, 0.1, 12), shuffled_labels=spread(0.05, 0.2, 12)[::-1]))
    assert need.needed is None and need.then.startswith("the control does as well or better")


@pytest.mark.parametrize("mean", [0.7, 0.7001, 0.699])
def test_an_estimate_on_the_edge_is_told(mean):
    stated = row(C1, spread(mean, 0.3, 12), shuffled_labels=CHANCE)
    (need,) = needs(stated)
    assert stated["verdict"] == "open" and "hardly decide" in stated["reason"]
    assert need.needed is None and need.then == power.HARDLY


def test_both_agree_on_what_is_too_much():
    assert power.TOO_MANY == verdicts._TOO_MANY


def test_of_crossed_units_the_scarcer_is_counted_and_both_grow(catalogue):
    crossed = claim(unit=["template", "word pair"])
    catalogue(crossed)
    values = spread(0.8, 0.2, 10)[:, None] + spread(0, 0.2, 8)[None, :]
    stated = row(crossed, values, shuffled_labels=0.2 - values / 10)
    (need,) = needs(stated)
    assert stated["verdict"] == "open" and [need.needed] == in_words(stated["reason"])
    assert (need.unit, need.n, need.crossed) == ("word pair (and template)", 8, True)
    assert need.minutes(6.0) == pytest.approx(6 * (need.needed / 8) ** 2)


def test_where_there_is_no_interval_the_reason_is_repeated():
    equal = np.full(12, 0.9)
    stated = row(C1, equal, shuffled_labels=CHANCE)
    (need,) = needs(stated)
    assert need.needed is None and "its spread is unknown" in need.then
    stated = row(C1, spread(0.9, 0.1, 12), shuffled_labels=equal * np.nan)
    (need,) = needs(stated)
    assert stated["verdict"] == "open" and need.needed is None and "name a second one" in need.then


def test_units_all_equal_need_their_own_rule(catalogue):
    bounded = claim(bounds=[0, 1], test={"at_least": 0.8})
    catalogue(bounded)
    stated = row(bounded, np.ones(8), shuffled_labels=spread(0.2, 0.04, 8))
    (need,) = needs(stated)
    assert stated["verdict"] == "open" and [need.needed] == in_words(stated["reason"])


def test_fewer_units_than_there_are_never_settle_it():
    stated = row(C1, spread(0.8, 0.3, 12), shuffled_labels=CHANCE) | {"n": 2000, "units": {"template": 2000}}
    (need,) = needs(stated | {"interval": [0.6999999, 0.9000001]})
    assert need.needed == 2001


def test_only_open_claims_are_planned():
    settled = [row(C1, spread(mean, 0.05, 12), shuffled_labels=CHANCE) for mean in (0.9, 0.3)]
    assert [one["verdict"] for one in settled] == ["holds", "fails"] and needs(*settled) == []


def test_an_old_ledger_is_a_sentence():
    with pytest.raises(HookbookError, match="The evidence run has a ledger of an older form: run it again."):
        needs({"id": "C1", "verdict": "open"})


# from the files to the table


@pytest.fixture
def printed(monkeypatch, tmp_path):
    """The table as text, for a notebook and evidence in a folder."""
    monkeypatch.setattr(papers.Paper, "notebook", property(lambda self: tmp_path / "some-paper.ipynb"))

    def printed():
        console = Console(width=140)
        with console.capture() as captured:
            power.print_needs("some-paper", console)
        return captured.get()

    return printed


def commit(tmp_path, stated, seconds):
    output = new_output("display_data", {notebooks.LEDGER_MIME: stated})
    nb = new_notebook(cells=[new_code_cell("ledger.table()", outputs=[output])])
    nb.metadata["hookbook"] = {"provenance": {"seconds": seconds}}
    notebooks.write(nb, tmp_path / "some-paper.ipynb")


def test_the_table_shows_quick_run_and_evidence(printed, tmp_path):
    quick = row(C1, spread(0.8, 0.3, 12), shuffled_labels=CHANCE)
    commit(tmp_path, ledger([quick], preset="quick"), 90)
    kept = row(C1, spread(0.78, 0.3, 24), shuffled_labels=spread(0.2, 0.04, 24)[::-1])
    keep(tmp_path / "claims", ledger([kept], "owner/toy", run={"minutes": 6.0}))
    text = printed()
    assert "quick run on toy, 1.5 minutes" in text and "evidence run on owner/toy, 6 minutes" in text
    for minutes, one in ((1.5, quick), (6.0, kept)):
        needed = in_words(one["reason"])[0]
        factor = needed / one["n"]
        cells = [*map(str, (one["n"], needed)), f"× {factor:.1f}", f"{float(f'{minutes * factor:.2g}'):g}", "holds"]
        assert re.search(r"C1 .*template +" + r" +".join(map(re.escape, cells)), text), text
    assert "as uncertain as the spread" in text


def test_nothing_open_is_said_so(printed, tmp_path):
    keep(tmp_path / "claims", ledger([row(C1, spread(0.9, 0.05, 12), shuffled_labels=CHANCE)]))
    assert printed() == "evidence run on toy: no claim is open\n"


def test_without_any_ledger_it_says_what_to_do(printed):
    with pytest.raises(HookbookError, match="some-paper has no ledger yet: run `hookbook refresh some-paper`"):
        printed()


def test_a_broken_file_is_named(printed, tmp_path):
    path = keep(tmp_path / "claims", ledger([]))
    path.write_text("{}")
    with pytest.raises(HookbookError, match="some-paper.json is not a ledger"):
        printed()
