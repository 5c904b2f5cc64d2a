import pytest
import torch
from words_only import WordModel

from helpers import datasets
from helpers.errors import HookbookError
from helpers.facts import capitals, languages


def test_the_halves_share_no_country_and_no_template():
    data = datasets.read_json("countries")
    countries = [row["country"] for half in ("explore", "confirm") for row in data[half]]
    capital_names = [row["capital"] for half in ("explore", "confirm") for row in data[half]]
    assert len(set(countries)) == len(countries) >= 120 and len(set(capital_names)) == len(countries)
    for relation in ("capital", "language"):
        explore, confirm = data["templates"][relation]["explore"], data["templates"][relation]["confirm"]
        assert len({*explore, *confirm}) == len(explore) + len(confirm) >= 12
        assert all(t.count("{COUNTRY}") == 1 and " {COUNTRY}" in t and t == t.strip() for t in explore + confirm)
        assert not any(row[relation] and row[relation] in t for t in explore + confirm for row in data["explore"])
    assert not any(c in row["capital"] or row["capital"] in c for c in countries for row in data["explore"])


@pytest.mark.parametrize("prepend_bos", [True, False])
@pytest.mark.parametrize("facts", [capitals, languages])
def test_roles_answers_and_counterparts(facts, prepend_bos):
    model = WordModel(split=["Rome", "Paris", "France", "Italy"])
    p = facts(model, prepend_bos=prepend_bos)
    rows = torch.arange(len(p))
    relation = "capital" if facts is capitals else "language"
    truth = {row["country"]: row[relation] for row in datasets.read_json("countries")["explore"]}

    def subject(version, i):
        a, b = (int(p.roles[f"subject_{end}"][i]) for end in ("first", "last"))
        return model.tokenizer.decode(p.tokens[version][i, a : b + 1].tolist()).strip()

    assert [subject("clean", i) for i in rows] == p.table.country.tolist()
    assert [subject("other", i) for i in rows] == p.table.other.tolist()
    assert [truth[c] for c in p.table.country] == p.table.answer.tolist()
    assert [truth[c] for c in p.table.other] == p.table.other_answer.tolist()
    assert (p.table.answer != p.table.other_answer).all()
    assert torch.equal(p.roles["end"], p.mask.sum(1) - 1)
    decoded = [model.tokenizer.decode([int(i)]).strip() for i in p.correct]
    assert all(a.startswith(token) for a, token in zip(p.table.answer, decoded, strict=True))
    outside = p.mask.clone()
    for i in rows:
        outside[i, p.roles["subject_first"][i] : p.roles["subject_last"][i] + 1] = False
    assert torch.equal(p.tokens["clean"][outside], p.tokens["other"][outside])


def test_pairs_are_disjoint_of_equal_length_and_asked_both_ways():
    model = WordModel(split=["France", "Italy", "Japan"])
    p = capitals(model)
    assert p.table.country.is_unique
    both = p.table.groupby("country_pair")
    assert both.size().eq(2).all() and both.template.nunique().eq(1).all()
    assert (both.country.first() == both.other.last()).all()
    n = {c: len(model.tokenizer(f" {c}", add_special_tokens=False)["input_ids"]) for c in p.table.country}
    assert set(n.values()) == {1, 2} and (p.table.country.map(n) == p.table.other.map(n)).all()
    assert "without a partner of equal length: " in p.note and "length: none" not in p.note
    one_way = capitals(WordModel(), n_pairs=5, both_ways=False)
    assert len(one_way) == 5 and not set(one_way.table.country) & set(one_way.table.other)
    crossed = capitals(WordModel(), n_pairs=3, n_templates=2, crossed=True)
    assert len(crossed) == 12 and not crossed.table.duplicated(["template", "country"]).any()


def test_ambiguous_first_tokens_are_left_out():
    model = WordModel(split=["Paris", "Prague", "Rome"])  # " P", " R": one letter
    p = capitals(model)
    assert not {"France", "Italy"} & {*p.table.country}
    assert "ambiguous under this tokenizer: " in p.note and "France" in p.note.partition("ambiguous")[2]
    firsts = {int(i) for i in p.correct}
    assert len(firsts) == len(p)


def test_first_tokens_that_two_answers_share_are_left_out(monkeypatch):
    monkeypatch.setattr("helpers.facts.LETTERS", 1)
    twins = ["Rome", "Riga", "Rabat"]
    kept = {country for twin in twins for country in capitals(WordModel(split=[twin])).table.country}
    both = capitals(WordModel(split=twins)).table
    explore = [row for row in datasets.read_json("countries")["explore"] if row["capital"] in twins]
    assert len(explore) >= 2 and {row["country"] for row in explore} <= kept
    assert not {row["country"] for row in explore} & {*both.country}


def test_a_language_may_be_shared_but_not_within_a_pair():
    p = languages(WordModel())
    assert p.table.answer.duplicated().any() and (p.table.answer != p.table.other_answer).all()


def test_too_much_asked_for_is_an_error_with_both_numbers():
    n = capitals(WordModel()).table.country_pair.nunique()
    with pytest.raises(HookbookError, match=f"{n} pairs .* {n + 1} are asked for"):
        capitals(WordModel(), n_pairs=n + 1)
    with pytest.raises(HookbookError, match="6 templates .* 7 are asked for"):
        languages(WordModel(), n_templates=7)


def test_the_seed_draws_the_pairs():
    one, again, other = (capitals(WordModel(), seed=seed).table for seed in (1, 1, 2))
    assert one.equals(again) and not one.equals(other)


def test_texts_of_unequal_length_are_refused():
    class Greedy(WordModel):
        def to_tokens(self, text, prepend_bos):
            ids = super().to_tokens(text, prepend_bos)
            return ids[:, :-1] if "Italy" in text else ids

    with pytest.raises(HookbookError, match="tokens and not .* as its counterpart"):
        capitals(Greedy())


def test_in_a_chat_the_roles_move_and_nothing_else():
    model = WordModel()
    with pytest.raises(HookbookError, match="no chat template"):
        capitals(model, chat_template=True)
    model.tokenizer.chat_template = "there is one"
    plain, chat = capitals(model, prepend_bos=False), capitals(model, chat_template=True)
    assert chat.table.equals(plain.table) and torch.equal(chat.correct, plain.correct)
    assert all(torch.equal(chat.roles[role], plain.roles[role] + 7) for role in plain.roles)
    assert torch.equal(chat.tokens["clean"][:, 8:], plain.tokens["clean"][:, 1:])
