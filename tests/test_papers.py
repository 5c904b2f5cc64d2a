"""The catalogue: what is accepted, and that each mistake is refused with file, entry, field and reason."""

import copy
import math
import os
import re

import pytest
import yaml
from catalogue_entries import CLAIM, PLANNED, STANDS

from helpers import papers
from helpers.errors import HookbookError
from helpers.papers import CATALOGUE, ROOT, THEMES, Claim, Test, catalogue, paper, raw_entry


@pytest.fixture
def read(tmp_path):
    """Reads entries (or the text of a file) as a catalogue."""

    def read(entries):
        path = tmp_path / "papers.yaml"
        text = entries if isinstance(entries, str) else yaml.safe_dump(entries, allow_unicode=True, sort_keys=False)
        path.write_text(text, encoding="utf-8")
        return catalogue(path)

    return read


def changed(entry, place, value):
    """A copy of the entry with the value at a place such as `claims.1.test`; the value `...` deletes."""
    entry = copy.deepcopy(entry)
    *parents, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    target = entry
    for part in parents:
        target = target[part]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return entry


def test_catalogue_lists_every_paper_once_in_the_order_of_the_alphabet():
    papers_ = catalogue()
    assert len(papers_) >= 114
    assert list(papers_) == sorted(papers_)
    assert {entry.theme for entry in papers_.values()} == set(THEMES)
    arxiv = [entry.arxiv for entry in papers_.values() if entry.arxiv]
    assert len(arxiv) == len(set(arxiv))


def test_catalogue_keeps_what_yaml_likes_to_break():
    assert "Özgür Şimşek" in paper("colour-shape-misgeneralization").authors
    assert paper("reversal-curse").title == 'The Reversal Curse: LLMs trained on "A is B" fail to learn "B is A"'
    assert paper("road-rotations").title.startswith("3-in-1: 2D")
    assert paper("diffusion-attribution").arxiv == "2311.00500"
    assert paper("linear-transformer-optimizers").authors[1] == "von Oswald"
    for entry in catalogue().values():
        for text in (entry.title, entry.venue, *entry.authors):
            assert text == " ".join(text.split()) and "\N{REPLACEMENT CHARACTER}" not in text


def test_papers_that_stand_have_their_data():
    for entry in catalogue().values():
        for path in entry.data_files:
            assert path.is_file(), f"{entry.slug} reads {path}, which is not there"


def test_catalogue_is_readable_as_text():
    for number, line in enumerate(CATALOGUE.read_text(encoding="utf-8").splitlines(), 1):
        assert len(line) <= 160, f"data/papers.yaml, line {number} is {len(line)} characters wide: wrap it"


def test_accepted_entry(read):
    entry = read({"some-paper": STANDS})["some-paper"]
    assert entry.slug == "some-paper"
    assert entry.notebook == ROOT / "notebooks" / "circuits" / "some-paper.ipynb"
    assert entry.presets["paper"]["lr"] == 1e-4
    first, second = entry.claims
    assert (first.units, first.n_min, first.direction) == (["template"], 6, "above")
    assert first.test.region == (0.7, math.inf)
    assert second.test.region == (0.2, 0.3)
    assert isinstance(entry.teaching.minutes.run, float)


def test_numbers_may_be_written_as_people_write_them(read):
    text = yaml.safe_dump({"some-paper": STANDS}, sort_keys=False).replace("lr: 0.0001", "lr: 1e-4\n      n: 1e3")
    preset = read(text)["some-paper"].presets["paper"]
    assert preset == {"lr": 1e-4, "n": 1e3} and isinstance(preset["n"], float)


def test_raw_entry_is_a_copy_of_what_the_file_says(read, tmp_path):
    read({"some-paper": STANDS})
    path = tmp_path / "papers.yaml"
    raw_entry("some-paper", path)["claims"].clear()
    assert raw_entry("some-paper", path) == STANDS


def test_a_caller_cannot_change_the_catalogue():
    catalogue().clear()
    assert catalogue()
    with pytest.raises(Exception, match="frozen"):
        paper("sentiment-direction").title = "Another"


def test_changed_file_is_read_again(read, tmp_path):
    assert read({"one": PLANNED})["one"].title == "A: B"
    assert read({"one": PLANNED | {"title": "C: D"}})["one"].title == "C: D"
    path = tmp_path / "papers.yaml"
    os.utime(path, ns=(1, 1))
    assert catalogue(path)["one"].title == "C: D"


WRONG = [
    ("arxiv", 2310.15154, "put it in quotes"),
    ("arxiv", "10.1101/2023", 'a number in quotes, such as "2310'),
    ("code", "https://github.com/owner/repo", "owner/repository"),
    ("theme", "vibes", "circuits"),
    ("tier", "E", "'A', 'B', 'C' or 'D'"),
    ("title", ..., "is missing"),
    ("title", " ", "some text"),
    ("authors", [], "must have it"),
    ("effort", "M", "no such field"),
    ("slug", "other", "remove the field"),
    ("unsure", ["mood"], "title"),
    ("model", [], "must have it"),
    ("not_claimed", ..., "must have it"),
    ("presets", ..., "must have it"),
    ("presets", {"quick": {}, "paper": {}}, "preset 'evidence' is missing"),
    ("presets.full", {}, "'quick', 'evidence' or 'paper'"),
    ("teaching", ..., "must have it"),
    ("teaching.goals", ["one", "two"], "3 items"),
    ("teaching.minutes.read", 0, "greater than 0"),
    ("teaching.difficulty", "hard", "'introductory'"),
    ("claims", [], "must have it"),
    ("claims.1.id", "C1", "the id C1 is used twice"),
    ("claims.1.id", "2", "an id such as C1"),
    ("claims.1.kind", "true", "'causal'"),
    ("claims.1.unit", [], "name one unit"),
    ("claims.1.unit", ["a", "b", "c"], "name one unit"),
    ("claims.1.unit", ["word", "word"], "two different ones"),
    ("claims.1.unit", 3, "in quotes"),
    ("claims.1.bounds", [1, 0], "first number must be below"),
    ("claims.1.test", {}, "exactly one of"),
    ("claims.1.test", {"at_least": 0.1, "at_most": 0.2}, "exactly one of"),
    ("claims.1.test", {"at_least": 0}, "bare sign"),
    ("claims.1.test", {"at_least": 1.2}, "can never hold"),
    ("claims.1.test", {"between": [-1, 2]}, "can never fail"),
    ("claims.1.test.between", [0.3, 0.2], "first number must be below"),
    ("claims.1.test.between", [0.3], "is missing"),
    ("claims.1.test.between", ["low", 0.3], "number"),
    ("claims.1.test.above", 0.5, "no such field"),
    ("claims.1.controls", {}, "at least one control"),
    ("claims.1.controls", {"value": "x"}, "already names a column"),
    ("claims.1.controls", {"template": "x"}, "already names a column"),
    ("claims.1.controls", {"shuffled": ""}, "some text"),
    ("claims.1.direction", "beside", "'above' or 'below'"),
    ("claims.1.n_min", 5, "at least 6 units"),
    ("claims.1.n_min", True, "integer"),
    ("claims.1.tolerance", ..., "is missing"),
    ("claims.1.tolerance", -0.1, "greater than or equal to 0"),
    ("claims.1.tolerance", math.inf, "finite"),
    ("claims.1.seen_before", "no", "boolean"),
    ("claims.1.threshold_from", "gut", "'paper', 'theory' or 'pilot'"),
    ("claims.1.paper.place", ..., "is missing"),
    ("claims.1.paper.value", "0.9", "number"),
    ("data", ["/etc/passwd"], "inside data/"),
    ("data", ["../README.md"], "inside data/"),
    ("data", ["data/words.csv"], "inside data/"),
]


@pytest.mark.parametrize(
    ("place", "value", "reason"), WRONG, ids=[f"{place}={value!r}"[:60] for place, value, _ in WRONG]
)
def test_mistake_is_named(read, place, value, reason):
    with pytest.raises(HookbookError) as caught:
        read({"fine": PLANNED, "some-paper": changed(STANDS, place, value)})
    message = str(caught.value)
    assert reason in message
    file, entry, rest = message.split(", ", 2)
    assert file.endswith("papers.yaml") and entry == "some-paper"
    field = rest.split(": ")[0]
    # one end of a pair is named below the field, an id used twice at the list that holds both
    assert re.fullmatch(rf"{place}(\.\w+)?", field) or (field, place) == ("claims", "claims.1.id"), message


def test_message_is_as_promised(read, tmp_path):
    with pytest.raises(HookbookError) as caught:
        read({"sentiment-direction": changed(STANDS, "claims.1.test", {})})
    expected = "sentiment-direction, claims.1.test: give exactly one of at_least, at_most and between."
    assert str(caught.value) == f"{tmp_path / 'papers.yaml'}, {expected}"


def test_repository_file_is_named_from_the_root(monkeypatch, tmp_path):
    monkeypatch.setattr(papers, "ROOT", tmp_path.resolve())
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "papers.yaml"
    path.write_text("one:\n  title: 3\n")
    with pytest.raises(HookbookError, match=r"^data/papers\.yaml, one, "):
        catalogue(path)


@pytest.mark.parametrize("field", ["claims", "presets"])
def test_planned_paper_has_no_claims_or_presets(read, field):
    with pytest.raises(HookbookError, match=f"one, {field}: a planned paper has none"):
        read({"one": PLANNED | {field: STANDS[field]}})


@pytest.mark.parametrize("kind", ["identity", "method"])
def test_checked_kinds_need_no_control_and_may_test_a_sign(kind):
    loose = CLAIM | {"kind": kind, "controls": {}, "test": {"at_most": 0}, "bounds": None}
    loose["n_min"] = 1 if kind == "identity" else 6
    assert Claim.model_validate(loose).controls == {}


TEXTS = [
    ("one: {title: A\n", r"papers\.yaml, line \d+: "),
    ("one:\n  title: A\n  title: B\n", r"papers\.yaml, line 3: 'title' is given twice"),
    ("one:\n  title: A\none:\n  title: B\n", r"papers\.yaml, line 3: 'one' is given twice"),
    ("one:\n  claims: [{controls: {a: x, a: y}}]\n", r"line 2: 'a' is given twice"),
    ("- one\n", "start with a slug"),
    ("", "start with a slug"),
    ("one: two\n", "one: expected fields"),
    ("one: !!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
    ("One Paper:\n  title: A\n", "One Paper, slug: "),
    ("12: {title: A}\n", "12, slug: "),
]


@pytest.mark.parametrize(("text", "message"), TEXTS)
def test_broken_file_is_named(read, text, message):
    with pytest.raises(HookbookError, match=message):
        read(text)


def test_missing_or_foreign_file(tmp_path):
    with pytest.raises(HookbookError, match="cannot be read"):
        catalogue(tmp_path / "none.yaml")
    path = tmp_path / "latin.yaml"
    path.write_bytes("one: {title: Şimşek}".encode("iso8859-9"))
    with pytest.raises(HookbookError, match="not UTF-8"):
        catalogue(path)


@pytest.mark.parametrize(
    ("slug", "hint"),
    [
        ("sentiment-directoin", "did you mean sentiment-direction"),
        ("successor", "did you mean successor-heads?"),
        ("qqqqqq", "`hookbook list`"),
        ("", "`hookbook list`"),
    ],
)
def test_unknown_paper(slug, hint):
    for ask in (paper, raw_entry):
        with pytest.raises(HookbookError, match=re.escape(hint)):
            ask(slug)


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ({"at_least": 0.7}, "≥ 0.70"),
        ({"at_most": 0.05}, "≤ 0.05"),
        ({"between": [-0.1, 0.125]}, "in [-0.10, 0.125]"),
        ({"at_least": 3}, "≥ 3"),
        ({"at_most": 1e-4}, "≤ 0.0001"),
        ({"between": [1, 2.5]}, "in [1, 2.50]"),
    ],
)
def test_region_in_words(test, words):
    assert Test.model_validate(test).describe() == words


def test_open_ends_are_infinite():
    assert Test(at_most=0.2).region == (-math.inf, 0.2)
