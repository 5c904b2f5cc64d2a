import re

import pytest
import torch
from words_only import WordModel

from helpers import datasets
from helpers.errors import HookbookError
from helpers.ioi import ioi

NAMES = ("io", "s", "new_1", "new_2", "new_3")


def words(prompts, version, role, model):
    ids = prompts.tokens[version][torch.arange(len(prompts)), prompts.roles[role]]
    return [model.tokenizer.decode([int(i)]).strip() for i in ids]


def test_the_halves_share_nothing():
    sets = datasets.read_json("ioi")
    for kind in ("names", "templates", "places", "objects"):
        explore, confirm = sets["explore"][kind], sets["confirm"][kind]
        assert len(set(explore)) == len(explore) and len(set(confirm)) == len(confirm)
        assert not set(explore) & set(confirm)
    assert min(len(sets[half]["templates"]) for half in ("explore", "confirm")) >= 8


@pytest.mark.parametrize("half", ["explore", "confirm"])
def test_slots_come_after_a_space_and_names_twice_before_the_third(half):
    parts = datasets.read_json("ioi")[half]
    for template in parts["templates"]:
        assert re.findall(r"{(\w+)}", template.replace("{PLACE}", "").replace("{OBJECT}", "")) == ["A", "B", "C"]
        assert all(template[m.start() - 1] == " " for m in re.finditer("{", template)) and not template.endswith(" ")
        text = template.format(A="", B="", C="", PLACE=" ".join(parts["places"]), OBJECT=" ".join(parts["objects"]))
        assert not set(re.findall(r"\w+", text)) & set(parts["names"])
        if re.search(r"\ba {(PLACE|OBJECT)}", template):
            assert not any(word[0] in "aeiou" for word in parts["objects"])


@pytest.mark.parametrize("prepend_bos", [True, False])
@pytest.mark.parametrize("crossed", [True, False])
def test_roles_and_versions(prepend_bos, crossed):
    model = WordModel()
    p = ioi(model, n_pairs=9, n_templates=4, crossed=crossed, prepend_bos=prepend_bos)
    assert len(p) == (36 if crossed else 9)
    t = p.table
    assert words(p, "clean", "io", model) == t.io.tolist()
    assert words(p, "clean", "s1", model) == words(p, "clean", "s2", model) == t.s.tolist()
    assert words(p, "s2_io", "s2", model) == t.io.tolist() == words(p, "s2_io", "io", model)
    assert words(p, "s2_new", "s2", model) == t.new_1.tolist()
    new = [words(p, "abc", role, model) for role in ("io", "s1", "s2")]
    assert new == [t.new_1.tolist(), t.new_2.tolist(), t.new_3.tolist()]
    assert (t[list(NAMES)].nunique(axis=1) == 5).all()
    assert set(words(p, "clean", "end", model)) == {"to"}
    assert torch.equal(p.roles["s1_next"], p.roles["s1"] + 1)
    first_is_io = p.roles["io"] < p.roles["s1"]
    assert first_is_io.tolist() == (t.order == "ABBA").tolist()
    assert [model.tokenizer.decode([int(i)]) for i in p.correct] == [f" {name}" for name in t.io]
    assert [model.tokenizer.decode([int(i)]) for i in p.wrong] == [f" {name}" for name in t.s]
    for version in ("s2_io", "s2_new"):
        assert ((p.tokens[version] != p.tokens["clean"]).sum(1) == 1).all()
    assert ((p.tokens["abc"] != p.tokens["clean"]).sum(1) == 3).all()
    assert p.mask.sum(1).max() == p.mask.shape[1] and (p.tokens["clean"][~p.mask] == 0).all()


def test_name_pairs_share_no_name_and_orders_take_turns():
    p = ioi(WordModel(), n_pairs=24, n_templates=6)
    names = p.table.io.tolist() + p.table.s.tolist()
    assert len(set(names)) == 48
    assert p.table.name_pair.tolist() == list(range(24))
    assert p.table.groupby("template").order.value_counts().eq(2).all()
    assert p.table.groupby("template").size().eq(4).all()
    crossed = ioi(WordModel(), n_pairs=4, n_templates=3, crossed=True).table
    assert crossed.groupby("template").order.value_counts().eq(2).all()
    assert not crossed.duplicated(["template", "name_pair"]).any()
    assert crossed.groupby("name_pair")[["io", "s"]].nunique().eq(1).all(axis=None)


def test_the_seed_draws_the_pairs_and_nothing_else_does():
    one, again, other = (ioi(WordModel(), n_pairs=8, seed=seed) for seed in (1, 1, 2))
    assert one.table.equals(again.table) and one.texts == again.texts
    assert not one.table.io.equals(other.table.io)


def test_names_of_several_tokens_are_left_out_and_counted():
    names = datasets.read_json("ioi")["explore"]["names"]
    model = WordModel(split=names[:60])
    p = ioi(model, n_pairs=8)
    assert not set(p.table[list(NAMES)].values.ravel()) & set(names[:60])
    assert p.note.startswith("18 of 78 names are one token; left out: Aaron")
    with pytest.raises(HookbookError, match="Only 18 of 78 words .* 20 are needed"):
        ioi(model, n_pairs=10)
    with pytest.raises(HookbookError, match="12 templates .* 13 are asked for"):
        ioi(model, n_templates=13)


def test_a_name_that_stands_elsewhere_too_is_noticed(monkeypatch):
    sets = datasets.read_json("ioi")
    sets["explore"]["templates"] = [f"With {name}, {{A}} and {{B}} met {{C}}" for name in sets["explore"]["names"][:1]]
    sets["explore"]["names"] = sets["explore"]["names"][:5]
    monkeypatch.setattr("helpers.ioi.read_json", lambda name: sets)
    with pytest.raises(HookbookError, match="joins names"):
        ioi(WordModel(), n_pairs=2, crossed=True)


def test_in_a_chat_the_roles_move_and_nothing_else():
    model = WordModel()
    with pytest.raises(HookbookError, match="no chat template"):
        ioi(model, chat_template=True)
    model.tokenizer.chat_template = "there is one"
    plain, chat = ioi(model, prepend_bos=False), ioi(model, chat_template=True)
    assert chat.table.equals(plain.table) and torch.equal(chat.correct, plain.correct)
    assert all(torch.equal(chat.roles[role], plain.roles[role] + 7) for role in plain.roles)
    assert torch.equal(chat.tokens["clean"][:, 8:], plain.tokens["clean"][:, 1:])
