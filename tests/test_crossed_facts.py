import pytest
import torch
from words_only import WordModel

from helpers import datasets
from helpers.crossed_facts import RELATIONS, crossed_facts
from helpers.errors import HookbookError


def truth(half):
    rows = {row["country"]: dict(row) for row in datasets.read_json("countries")[half]}
    for row in datasets.read_json("country_relations")[half]:
        rows[row["country"]] |= row
    return rows


def test_the_file_covers_the_countries_of_the_other_one_and_its_halves_share_no_template():
    other, here = datasets.read_json("countries"), datasets.read_json("country_relations")
    for half in ("explore", "confirm"):
        assert [row["country"] for row in here[half]] == [row["country"] for row in other[half]]
    for relation in ("continent", "currency"):
        explore, confirm = here["templates"][relation]["explore"], here["templates"][relation]["confirm"]
        assert len({*explore, *confirm}) == len(explore) + len(confirm) == 12
        assert all(t.count(" {COUNTRY}") == 1 and t == t.strip() for t in explore + confirm)
        words = {row[relation] for half in ("explore", "confirm") for row in here[half] if row[relation]}
        assert not any(f" {word}" in t for word in words for t in explore + confirm)


@pytest.mark.parametrize("prepend_bos", [True, False])
def test_every_country_is_asked_for_every_relation_in_every_template(prepend_bos):
    model = WordModel()
    f = crossed_facts(model, n_countries=10, n_templates=3, prepend_bos=prepend_bos)
    assert len(f) == 10 * 4 * 3 and not f.table.duplicated(["country", "relation", "template"]).any()
    shape = (10, 4, 3)
    assert [*f.table.relation[:12:3]] == [*RELATIONS] and [*f.table.template[:3]] == [0, 1, 2]
    assert (f.table.country.to_numpy().reshape(shape) == f.table.country.to_numpy().reshape(shape)[:, :1, :1]).all()
    known = truth("explore")
    assert all(known[row.country][row.relation] == row.answer for row in f.table.itertuples())
    assert torch.equal(f.end, f.mask.sum(1) - 1)
    for i, row in enumerate(f.table.itertuples()):
        assert model.tokenizer.decode(f.tokens[i, f.subject[i]].tolist()).strip() == row.country
        assert row.answer.startswith(model.tokenizer.decode([int(f.correct[i])]).strip())
        assert f.answers[row.relation][row.answer] == f.correct[i]
    for words in f.answers.values():
        assert len({*words.values()}) == len(words)


def test_other_words_in_the_place_of_the_country_change_nothing_else():
    model = WordModel()
    f, blank = (crossed_facts(model, n_countries=4, n_templates=1, subject=s) for s in (None, "that country"))
    assert f.table.equals(blank.table) and torch.equal(f.correct, blank.correct)
    assert (blank.subject.sum(1) == 2).all() and (f.subject.sum(1) == 1).all()
    for i in range(len(f)):
        assert torch.equal(f.tokens[i, f.mask[i] & ~f.subject[i]], blank.tokens[i, blank.mask[i] & ~blank.subject[i]])


def test_countries_of_several_tokens_and_ambiguous_answers_are_left_out():
    kept = {*crossed_facts(WordModel()).table.country}
    assert {"France", "Italy", "Egypt"} <= kept
    fewer = crossed_facts(WordModel(split=["France", "Rome"]))  # two tokens; " R" of Rome: one letter
    assert not {"France", "Italy"} & {*fewer.table.country} and "Egypt" in {*fewer.table.country}
    assert "France" in fewer.note and "Italy" in fewer.note
    only = crossed_facts(WordModel(split=["Rome"]), relations=["language", "continent"])
    assert "Italy" in {*only.table.country}, "of the relations that are asked for"


def test_the_seed_orders_the_countries():
    first, again, other = (crossed_facts(WordModel(), n_countries=8, seed=s).table.country.tolist() for s in (0, 0, 1))
    assert first == again != other


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relations": ["capital", "anthem"]}, "anthem"),
        ({"relations": []}, "at least one"),
        ({"relations": ["capital", "capital"]}, "once"),
        ({"n_countries": 500}, "ask for fewer"),
        ({"n_countries": 1}, "at least two"),
        ({"n_templates": 7}, "7 are asked for"),
    ],
)
def test_mistakes_are_told(options, message):
    with pytest.raises(HookbookError, match=message):
        crossed_facts(WordModel(), **options)
