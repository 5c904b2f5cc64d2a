"""Every verdict by a constructed case, the ledger's JSON and tables, and the refusals."""

import json
from html.parser import HTMLParser
from io import StringIO

import numpy as np
import pandas as pd
import pytest
import torch
from catalogue_entries import CLAIM, STANDS
from rich.console import Console

from helpers import claims
from helpers.claims import MIME, Ledger, print_table
from helpers.errors import HookbookError
from helpers.papers import Paper
from helpers.tables import html_table, number, plain_table

CLAIMS = [
    CLAIM,
    CLAIM | {"id": "C2", "unit": ["template", "word pair"], "kind": "causal"},
    CLAIM | {"id": "C3", "test": {"at_most": 0.1}, "direction": "below", "n_min": 10},
    CLAIM | {"id": "C4", "kind": "identity", "test": {"at_most": 1e-3}, "controls": {}, "bounds": None},
    CLAIM | {"id": "C5", "kind": "method", "test": {"at_least": 0.9}, "controls": {}, "statement": "A <b>method</b>."},
    CLAIM | {"id": "C6", "bounds": None, "controls": {"random": "a random one", "untrained": "an untrained model"}},
]
NEAR = np.array([0.9, 0.8, 0.85, 0.95, 0.9, 0.8, 0.85, 0.95])  # mean 0.875
CHANCE = np.array([0.5, 0.45, 0.55, 0.5, 0.4, 0.6, 0.5, 0.5])


@pytest.fixture
def ledger(monkeypatch):
    for name in ("HOOKBOOK_PRESET", "HOOKBOOK_ROWS"):
        monkeypatch.delenv(name, raising=False)
    paper = Paper.model_validate({"slug": "a-b"} | STANDS | {"claims": CLAIMS})
    monkeypatch.setattr(claims, "paper", {"a-b": paper}.__getitem__)
    return Ledger("a-b", model="smollm2-135m", sha256="00ff", seed=3, parameters={"n": np.int64(8), "lr": float("nan")})


def rows(value=NEAR, control=CHANCE, **others):
    return {"template": list(range(len(value))), "value": value, "shuffled_labels": control} | others


def crossed(values, control, n_a=8, n_b=8):
    a, b = np.repeat(range(n_a), n_b), np.tile(range(n_b), n_a)
    return {"template": a, "word_pair": b, "value": values(a, b), "shuffled_labels": control(a, b)}


def test_holds_inside_the_region_and_clear_of_the_control(ledger):
    row = ledger.check("C1", rows())
    assert (row.verdict, row.n, row.hardest) == ("holds", 8, "shuffled_labels")
    assert 0.7 <= row.low < row.value < row.high <= 1 and row.value == pytest.approx(0.875)
    assert row.control == pytest.approx(0.5)
    contrast = row.controls["shuffled_labels"].contrast
    assert contrast.value == pytest.approx(0.375) and contrast.low > 0
    assert ledger.verdict("C1") == "holds" and ledger.verdict("C2") == "not tested"


def test_fails_wholly_outside(ledger):
    row = ledger.check("C1", rows(NEAR - 0.4))
    assert row.verdict == "fails" and row.high < 0.7


def test_open_across_the_edge_says_how_many_units(ledger):
    row = ledger.check("C1", rows(np.array([0.5, 0.95] * 4)))
    assert row.verdict == "open" and row.low < 0.7 < row.high
    assert "straddles the edge of ≥ 0.70; about" in row.reason and "units would settle it" in row.reason


def test_open_on_the_edge_promises_nothing(ledger):
    values = np.array([0.625, 0.775] * 4)  # exact in binary, with the test's 0.7 as their mean
    row = ledger.check("C6", {"template": range(8), "value": values, "random": CHANCE, "untrained": CHANCE})
    assert row.verdict == "open" and "more units would hardly decide it" in row.reason


def test_open_across_the_edge_also_names_the_control_that_is_not_beaten(ledger):
    row = ledger.check(
        "C6", {"template": range(8), "value": [0.6, 0.8] * 4, "random": [0.9, 0.4] * 4, "untrained": CHANCE}
    )
    assert "straddles the edge" in row.reason and "'random' is not beaten" in row.reason


def test_conclude_says_verdict_test_units_and_reason(ledger, monkeypatch):
    outputs = shown(monkeypatch)
    with pytest.raises(HookbookError, match="C1 has not been checked yet"):
        ledger.conclude("C1")
    ledger.check("C1", rows())
    ledger.conclude("C1")
    assert outputs[0].data.startswith(
        "**C1 holds** (test: ≥ 0.70, by a 95 % interval over 8 templates, and each control"
    )
    assert outputs[0].data.endswith("and every control is beaten.")


def test_open_where_a_control_is_not_beaten(ledger):
    row = ledger.check("C1", rows(control=NEAR + np.array([0.04, -0.05] * 4)))
    assert row.verdict == "open" and row.low >= 0.7
    assert "'shuffled_labels' is not beaten: contrast 0.005 [-0.0" in row.reason and "about" in row.reason
    better = ledger.check(
        "C6", {"template": range(8), "value": NEAR, "random": NEAR + 0.2 * CHANCE, "untrained": CHANCE}
    )
    assert better.verdict == "open" and "'random' is not beaten" in better.reason and "wrong sign" in better.reason
    assert better.hardest == "random" and "untrained" not in better.reason


def test_controls_count_in_the_claims_direction(ledger):
    low = np.linspace(0.01, 0.04, 12)
    assert ledger.check("C3", rows(low, low + 0.3 + 0.01 * np.arange(12) % 3)).verdict == "holds"
    beside = Ledger("a-b", model="m")
    assert beside.check("C3", rows(low, low / 2)).verdict == "open"


def test_an_undefined_control_needs_a_second_one(ledger):
    undefined = np.full(8, np.nan)
    row = ledger.check("C6", {"template": range(8), "value": NEAR, "random": CHANCE, "untrained": undefined})
    assert row.verdict == "holds" and "untrained: undefined here" in row.reason and row.hardest == "random"
    alone = ledger.check("C1", rows(control=undefined))
    assert alone.verdict == "open" and "name a second one" in alone.reason and alone.control is None
    entry = alone.as_json()["controls"]["shuffled_labels"]
    assert entry == {"value": None, "contrast": None, "interval": None, "beaten": False}


def test_too_few_units_are_not_tested(ledger):
    row = ledger.check("C1", rows(NEAR[:5], CHANCE[:5]))
    assert (row.verdict, row.low) == ("not tested", None) and "5 units, and at least 6" in row.reason
    below_its_own_minimum = ledger.check("C3", rows(np.linspace(0.01, 0.02, 9), np.linspace(0.5, 0.6, 9)))
    assert below_its_own_minimum.verdict == "not tested" and "9 units, and at least 10" in below_its_own_minimum.reason
    few = ledger.check("C2", crossed(lambda a, b: 0.9 + a / 100, lambda a, b: 0.1 + b / 100, n_a=5, n_b=12))
    assert few.verdict == "not tested" and few.counts == {"template": 5, "word pair": 12} and few.n == 5


def test_equal_units_without_bounds_stay_open(ledger):
    row = ledger.check("C6", {"template": range(8), "value": [0.9] * 8, "random": CHANCE, "untrained": CHANCE})
    assert row.verdict == "open" and "spread is unknown" in row.reason


def test_a_perfect_score_on_few_units_does_not_hold(ledger):
    row = ledger.check("C1", rows(np.ones(8)))
    assert row.verdict == "open" and row.low == pytest.approx(0.631, abs=1e-3) and "about 11 units" in row.reason
    assert Ledger("a-b", model="m").check("C1", rows(np.ones(11), np.linspace(0.1, 0.4, 11))).verdict == "holds"


def test_crossed_units(ledger):
    rng = np.random.default_rng(0)
    noise_a, noise_b = 0.02 * rng.normal(size=8), 0.02 * rng.normal(size=8)
    row = ledger.check("C2", crossed(lambda a, b: 0.9 + noise_a[a] + noise_b[b], lambda a, b: 0.1 + noise_b[b] / 2))
    assert row.verdict == "holds" and "two-way" in row.interval.method and row.as_json()["n"] == 8


def test_denominators_make_sums_over_sums(ledger):
    items = np.array([2, 4, 6, 8, 10, 12, 14, 16])
    row = ledger.check("C1", rows(items * NEAR, items * CHANCE, denominator=items))
    assert row.value == pytest.approx((items * NEAR).sum() / items.sum()) != pytest.approx(NEAR.mean())
    assert row.control == pytest.approx((items * CHANCE).sum() / items.sum())
    assert row.verdict == "holds"


def test_identities_and_methods_are_checked(ledger):
    assert ledger.check("C4", {"template": [0, 1], "value": [1e-5, 2e-5]}).verdict == "checked"
    assert ledger.check("C5", {"template": range(10), "value": [0.95, 0.96] * 5}).verdict == "checked"
    other = Ledger("a-b", model="m")
    broken = other.check("C4", {"template": range(8), "value": [1e-5] * 7 + [5e-3]})
    assert broken.value < 1e-3 and broken.verdict == "fails" and "1 of 8 rows" in broken.reason  # the mean hides it
    straddles = other.check("C5", {"template": range(10), "value": [True] * 9 + [False]})
    assert straddles.verdict == "open" and "straddles" in straddles.reason
    other = Ledger("a-b", model="m")
    assert other.check("C5", {"template": range(10), "value": [0.5, 0.6] * 5}).verdict == "fails"


def test_out_of_scope_and_never_reached(ledger):
    ledger.out_of_scope("C1", "the model knows one language")
    found = {claim["id"]: (claim["verdict"], claim["reason"]) for claim in ledger.to_json()["claims"]}
    assert found["C1"] == ("out of scope", "the model knows one language")
    assert found["C2"] == ("not tested", "never reached")


def test_a_closed_gate_stops_the_claim(ledger):
    assert ledger.gate("C1", np.bool_(True), "accuracy 0.90")
    assert not ledger.gate("C2", False, "accuracy 0.51")
    assert (ledger.verdict("C2"), ledger.to_json()["claims"][1]["gate"]) == ("not tested", "accuracy 0.51")
    with pytest.raises(HookbookError, match="settled already"):
        ledger.check("C2", crossed(lambda a, b: 0.9 + a / 100, lambda a, b: 0.1 + b / 100))
    assert ledger.check("C1", rows()).gate is None


def test_without_gates_the_claim_is_measured_and_marked(ledger):
    ledger = Ledger("a-b", model="m", gates=False)
    assert ledger.gate("C1", False, "accuracy 0.51")
    row = ledger.check("C1", rows())
    assert (row.verdict, row.gate) == ("holds", "accuracy 0.51")
    assert ledger.to_json()["claims"][0]["gate"] == "accuracy 0.51"
    assert "Its gate did not open: accuracy 0.51." in repr(row)


def test_a_second_look_is_refused_and_a_second_run_of_the_cell_is_not(ledger):
    first = ledger.check("C1", rows())
    assert ledger.check("C1", rows()) is first
    for again in (lambda: ledger.check("C1", rows(NEAR + 0.01)), lambda: ledger.not_tested("C1", "on second thoughts")):
        with pytest.raises(HookbookError, match=r"C1 is settled already \(holds\)"):
            again()
    assert ledger.not_tested("C2", "no pairs") == ledger.not_tested("C2", "no pairs")
    assert ledger.verdict("C1") == "holds"


def test_rows_may_be_a_frame_or_tensors(ledger):
    frame = pd.DataFrame(rows())
    as_frame = ledger.check("C1", frame)
    tensors = {name: torch.tensor(np.asarray(column)) for name, column in rows().items()}
    assert Ledger("a-b", model="m", seed=3).check("C1", tensors) == as_frame
    assert list(frame) == ["template", "value", "shuffled_labels"]  # not changed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"template": [0, 0, 1, 1, 2, 2, 3, 3]},
            "4 rows repeat a unit .*tokens or rows of one unit must be averaged first",
        ),
        ({"value": [0.9] * 7 + [np.nan]}, "1 of 8 entries of 'value' are not finite"),
        ({"value": [0.9] * 7 + [np.inf]}, "1 of 8 entries of 'value' are not finite"),
        ({"shuffled_labels": [0.5] * 7 + [np.nan]}, "1 of 8 entries of 'shuffled_labels' .*undefined"),
        ({"denominator": [1] * 7 + [np.nan]}, "'denominator' are not finite"),
        ({"denominators": [1] * 8}, "no use is known for the column 'denominators'"),
        ({"value": ["high"] * 8}, "'value' must hold numbers"),
        ({"value": NEAR + 0.5}, "C1: .*outside the bounds"),
        ({"value": NEAR[:3]}, "lists of one length"),
        ({"template": ["a"] * 7 + [None]}, "do not name their unit"),
    ],
)
def test_rows_that_would_mislead_are_refused(ledger, change, words):
    with pytest.raises(HookbookError, match=words):
        ledger.check("C1", rows() | change)
    assert ledger.verdict("C1") == "not tested"


def test_missing_columns_and_rows_are_named(ledger):
    for missing in ("template", "value", "shuffled_labels"):
        with pytest.raises(HookbookError, match=f"lack the column {missing!r}"):
            ledger.check("C1", {name: column for name, column in rows().items() if name != missing})
    with pytest.raises(HookbookError, match="no rows; say why with ledger.not_tested"):
        ledger.check("C1", rows([], []))
    with pytest.raises(HookbookError, match="repeat a unit .*one cell must be averaged first"):
        twice = crossed(lambda a, b: 0.9 + a / 100, lambda a, b: 0.1 + b / 100)
        ledger.check("C2", {name: np.tile(column, 2) for name, column in twice.items()})


def test_unknown_claims_get_the_nearest(ledger):
    for call in (
        lambda: ledger.check("C11", rows()),
        lambda: ledger.gate("C11", True, "fine"),
        lambda: ledger.verdict("C11"),
        lambda: ledger.say("{C11.value}"),
    ):
        with pytest.raises(HookbookError, match="a-b has no claim 'C11': did you mean C1"):
            call()
    with pytest.raises(HookbookError, match="say in a few words"):
        ledger.not_tested("C1", " ")


def shown(monkeypatch) -> list:
    outputs = []
    monkeypatch.setattr(claims, "display", lambda output, **_: outputs.append(output))
    return outputs


def test_say_fills_in_what_was_measured(ledger, monkeypatch):
    outputs = shown(monkeypatch)
    ledger.check("C1", rows())
    ledger.check("C6", {"template": range(8), "value": [0.9] * 8, "random": CHANCE, "untrained": CHANCE})
    ledger.say(
        "{C1.value:.2f} of {C1.n}, not {C1.control:.1f} ({C1.controls[shuffled_labels].value:.2f}), {C1.verdict}; "
        "{C6.low:.2f}; {layer:02d}; $x_{{1}}$",
        layer=7,
    )
    assert outputs[0].data == "0.88 of 8, not 0.5 (0.50), holds; –; 07; $x_{1}$"


def test_say_takes_a_text_indented_like_the_code(ledger, monkeypatch):
    outputs = shown(monkeypatch)
    ledger.check("C1", rows())
    ledger.say(
        """
        First {C1.n},
        then more.
        """
    )
    assert outputs[0].data == "First 8,\nthen more."  # four spaces at the start would be a code block in markdown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{C2.value:.2f}", "C2 has not been checked yet"),
        ("{layer}", "no claim 'layer'"),
        ("{C1.worth}", "cannot be filled in: .*worth"),
        ("{C1.verdict:.2f}", "cannot be filled in"),
        ("half a {brace", "cannot be filled in"),
    ],
)
def test_say_refuses_what_it_does_not_know(ledger, text, words):
    ledger.check("C1", rows())
    with pytest.raises(HookbookError, match=words):
        ledger.say(text)


KEYS = {
    "id",
    "kind",
    "statement",
    "statistic",
    "unit",
    "test",
    "paper_value",
    "value",
    "interval",
    "control_value",
    "n",
}


def full(ledger: Ledger) -> Ledger:
    ledger.check("C1", rows())
    ledger.check("C2", crossed(lambda a, b: 0.2 + a / 100 + b / 90, lambda a, b: 0.1 + b / 100))
    ledger.gate("C3", False, "accuracy 0.51 <script>")
    ledger.check("C4", {"template": [0, 1], "value": [1e-5, 2e-5]})
    ledger.out_of_scope("C5", "no such tokens")
    return ledger


def test_json_is_strict_and_complete(ledger):
    found = full(ledger).to_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert {"paper", "model", "preset", "claims", "provenance"} <= set(found)
    assert [claim["id"] for claim in found["claims"]] == ["C1", "C2", "C3", "C4", "C5", "C6"]
    for claim in found["claims"]:
        assert KEYS | {"verdict", "reason"} <= set(claim)
        assert claim["reason"]
    first = found["claims"][0]
    assert first["interval"][0] < first["value"] < first["interval"][1] and first["region"] == [0.7, None]
    assert first["controls"]["shuffled_labels"]["beaten"] and first["control_value"] == pytest.approx(0.5)
    assert found["claims"][1]["unit"] == ["template", "word pair"]
    assert found["claims"][3]["interval"] is None
    assert found["provenance"]["parameters"] == {"n": 8, "lr": None} and found["provenance"]["seed"] == 3
    assert {"torch", "scipy", "transformer-lens"} <= set(found["provenance"]["versions"])


def test_json_is_the_same_in_every_run(ledger):
    again = Ledger("a-b", model="smollm2-135m", sha256="00ff", seed=3, parameters={"n": 8, "lr": float("nan")})
    assert full(ledger).to_json() == full(again).to_json()


def test_preset_comes_from_the_runner(ledger, monkeypatch):
    assert ledger.to_json()["preset"] is None
    monkeypatch.setenv("HOOKBOOK_PRESET", "evidence")
    assert Ledger("a-b", model="m").to_json()["preset"] == "evidence"
    assert Ledger("a-b", model="m", preset="quick").preset == "quick"


class Tags(HTMLParser):
    """Counts rows, and checks that tags close in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.count, self.text = [], {}, ""
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data + " "


def test_table_is_one_output_for_readers_and_programs(ledger, monkeypatch):
    outputs = shown(monkeypatch)
    full(ledger).table()
    assert len(outputs) == 1 and set(outputs[0]) == {"text/plain", "text/html", MIME}
    assert outputs[0][MIME] == ledger.to_json()


def test_html_table(ledger):
    html = html_table(full(ledger).to_json())
    tags = Tags(html)
    assert tags.count["tr"] == 7 and "script" not in tags.count and "accuracy 0.51 <script>" in tags.text
    assert "A <b>method</b>." in tags.text
    for words in ("✓ holds", "✗ fails", "– not tested", "☑ checked", "⊘ out of scope", "never reached", "0.875 [0.8"):
        assert words in tags.text
    assert "8 × 8 template × word pair" in tags.text and "That it is used." in tags.text
    for foreign in ("color", "http", "class=", "src=", "url("):
        assert foreign not in html


def test_plain_table_fits_a_hundred_columns(ledger, monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *_: pytest.fail("shown instead of returned"))
    ledger.paper.claims[0].paper.__dict__["value"] = None  # then the paper's words stand in its place
    text = plain_table(full(ledger).to_json())
    assert max(map(len, text.splitlines())) <= 100
    for words in (
        "✓ holds",
        "in words: nearly all",
        "C3 not tested: accuracy 0.51 <script>",
        "Not claimed: That it is used.",
    ):
        assert words in " ".join(text.split())
    monkeypatch.undo()
    out = StringIO()
    print_table(ledger.to_json(), Console(file=out, width=140))
    assert "C6 It can be read." in out.getvalue()


def test_numbers_are_short():
    given = [None, 0.0, 0.95349, 12.345, 1234.5, 3.1e-5, -0.5, 2.5e7]
    assert [number(x) for x in given] == ["–", "0.000", "0.953", "12.35", "1,234", "3.1e-05", "-0.500", "2.5e+07"]


def test_a_row_shows_itself(ledger):
    row = ledger.check("C1", rows())
    assert repr(row).startswith("C1 ✓ holds: 0.875 [0.8") and "control shuffled labels: 0.500" in repr(row)
    assert "≥ 0.70" in row._repr_html_()


def test_rows_are_written_beside_the_run(ledger, monkeypatch, tmp_path):
    monkeypatch.setenv("HOOKBOOK_ROWS", str(tmp_path))
    ledger.check("C1", rows())
    assert [path.name for path in (tmp_path / "rows").iterdir()] == ["a-b-C1.parquet"]
    stored = pd.read_parquet(tmp_path / "rows" / "a-b-C1.parquet")
    pd.testing.assert_frame_equal(stored, pd.DataFrame(rows()))
    with pytest.raises(HookbookError, match="settled already"):
        ledger.check("C1", rows(NEAR + 0.01))
    assert pd.read_parquet(tmp_path / "rows" / "a-b-C1.parquet").equals(stored)
    mixed = [("a", 1), "b", 3, 4, 5, 6, 7, 8]
    ledger.check("C6", {"template": mixed, "value": NEAR, "random": CHANCE, "untrained": np.full(8, np.nan)})
    assert pd.read_parquet(tmp_path / "rows" / "a-b-C6.parquet")["untrained"].isna().all()


def test_rows_that_cannot_be_written_lose_nothing(ledger, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOOKBOOK_ROWS", str(tmp_path / "file"))
    with pytest.raises(HookbookError, match="could not be written to .*HOOKBOOK_ROWS"):
        ledger.check("C1", rows())
    monkeypatch.setenv("HOOKBOOK_ROWS", str(tmp_path))
    assert ledger.check("C1", rows()).verdict == "holds"
    assert (tmp_path / "rows" / "a-b-C1.parquet").exists()
