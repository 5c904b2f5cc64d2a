import re

import pytest
import torch
from words_only import WordModel

from helpers import datasets
from helpers.colored_objects import colored_objects, options
from helpers.errors import HookbookError
from helpers.models import load_model

WORDS = ["object", "other_object", "third_object", "color", "other_color", "third_color"]


def words(prompts, version, role, model):
    ids = prompts.tokens[version][torch.arange(len(prompts)), prompts.roles[role]]
    return [model.tokenizer.decode([int(i)]).strip() for i in ids]


def answers(ids, model):
    return [model.tokenizer.decode([int(i)]) for i in ids]


def question(text):
    return text.rpartition("Q:")[2]


def test_the_halves_share_nothing():
    sets = datasets.read_json("colored_objects")
    for kind in ("colors", "objects", "shown", "surfaces", "templates"):
        explore, confirm = sets["explore"][kind], sets["confirm"][kind]
        assert len(set(explore)) == len(explore) and len(set(confirm)) == len(confirm)
        assert not set(explore) & set(confirm)
    everything = [word for half in ("explore", "confirm") for kind in ("colors", "objects", "shown", "surfaces")
                  for word in sets[half][kind]]  # fmt: skip
    assert len(set(everything)) == len(everything)
    assert min(len(sets[half]["objects"]) for half in ("explore", "confirm")) >= 72
    assert min(len(sets[half]["colors"]) for half in ("explore", "confirm")) >= 9  # for two examples


@pytest.mark.parametrize("half", ["explore", "confirm"])
def test_slots_come_once_each_after_a_space_and_the_list_before_the_question(half):
    parts = datasets.read_json("colored_objects")[half]
    used = {word for kind in ("colors", "objects", "shown", "surfaces") for word in parts[kind]}
    for template in parts["templates"]:
        slots = re.findall(r"{(\w+)}", template)
        assert sorted(slots) == ["LIST", "OBJECT", "SURFACE"] and slots.index("LIST") < slots.index("OBJECT")
        assert all(template[m.start() - 1] == " " for m in re.finditer("{", template))
        assert template.startswith("Q: ") and template.endswith("\nA:")
        assert not set(re.findall(r"\w+", re.sub("{.*?}", "", template))) & used


@pytest.mark.parametrize("half", ["explore", "confirm"])
@pytest.mark.parametrize(
    "options_of_the_set", [{}, {"crossed": True, "prepend_bos": False}, {"shots": 2, "capital": False}]
)
def test_roles_and_versions(options_of_the_set, half):
    model = WordModel()
    p = colored_objects(model, half=half, n_items=7, n_templates=4, **options_of_the_set)
    t = p.table
    assert len(p) == (84 if "crossed" in options_of_the_set else 21)
    for role in WORDS:
        assert words(p, "clean", role, model) == t[role].tolist()
    assert words(p, "clean", "asked", model) == t.object.tolist()
    assert set(words(p, "clean", "end", model)) == {":"}
    assert torch.equal(p.roles["end"], p.mask.sum(1) - 1)
    for who in ("", "other_", "third_"):
        assert torch.equal(p.roles[f"{who}object"], p.roles[f"{who}color"] + 1)
    assert (p.roles["shown"] < p.roles["color"]).all() and (p.roles["third_object"] < p.roles["asked"]).all()
    assert words(p, "other", "asked", model) == t.other_object.tolist()
    assert words(p, "absent", "asked", model) == t.absent.tolist()
    assert ((p.tokens["other"] != p.tokens["clean"]).sum(1) == 1).all()
    assert ((p.tokens["absent"] != p.tokens["clean"]).sum(1) == 1).all()
    assert words(p, "swapped", "color", model) == t.other_color.tolist()
    assert words(p, "swapped", "other_color", model) == t.color.tolist()
    for role in set(WORDS) - {"color", "other_color"} | {"asked"}:
        assert words(p, "swapped", role, model) == words(p, "clean", role, model)
    assert (t[WORDS[3:]].nunique(axis=1) == 3).all()
    assert not (t[WORDS[:3]].eq(t.absent, axis=0)).any(axis=None)


@pytest.mark.parametrize("capital", [True, False])
def test_answers_are_the_colors_and_the_example_shows_how_they_are_written(capital):
    model = WordModel()
    p = colored_objects(model, n_items=6, capital=capital)
    written = [c.capitalize() if capital else c for c in p.table.color]
    assert answers(p.correct, model) == [f" {color}" for color in written]
    other = [c.capitalize() if capital else c for c in p.table.other_color]
    assert answers(p.wrong, model) == [f" {color}" for color in other]
    three = options(model, p, capital=capital)
    assert torch.equal(three[:, 0], p.correct) and torch.equal(three[:, 1], p.wrong)
    third = [c.capitalize() if capital else c for c in p.table.third_color]
    assert answers(three[:, 2], model) == [f" {color}" for color in third]
    after = p.tokens["clean"][torch.arange(len(p)), p.roles["shown"] + 1]
    assert set(answers(after, model)) == {"Q"}  # the answer of the example, not the color in its list
    for text, shown in zip(p.texts["clean"], words(p, "clean", "shown", model), strict=True):
        example, _, last = text.rpartition("Q:")
        assert example.endswith(f"\nA: {shown}\n") and shown.istitle() == capital
        assert re.search(rf"an? {shown.lower()} (\w+)[,. ].*the \1", example.replace("\n", " "))
        assert not set(re.findall(r"\ban? (\w+)", example)) & set(re.findall(r"\ban? (\w+)", last))
    assert all(text.startswith(p.texts["clean"][i].rpartition("Q:")[0]) for i, text in enumerate(p.texts["swapped"]))


def test_an_article_goes_with_its_color():
    p = colored_objects(WordModel(), n_items=20)
    pairs = {
        pair for text in p.texts["clean"] + p.texts["swapped"] for pair in re.findall(r"\b(an?) (\w+) \w+[, ]", text)
    }
    assert ("an", "orange") in pairs and ("a", "red") in pairs
    assert all((article == "an") == (color[0] in "aeiou") for article, color in pairs)


def test_items_share_no_object_and_every_object_is_asked_for():
    p = colored_objects(WordModel(), n_items=24)
    items = p.table.groupby("item")
    assert items.size().eq(3).all()
    assert items.asked.nunique().eq(3).all() and items.object.nunique().eq(3).all() and p.table.object.is_unique
    for column in ("template", "surface"):
        assert items[column].nunique().eq(1).all()
    assert items.color.agg(set).map(len).eq(3).all() and (items.color.agg(set) == items.third_color.agg(set)).all()
    place = (p.roles["color"] > p.roles["other_color"]).int() + (p.roles["color"] > p.roles["third_color"]).int()
    assert place.tolist() == p.table.asked.tolist()
    assert [a == (b + 1) % 3 for a, b in zip(_places(p, "other_"), p.table.asked, strict=True)] == [True] * len(p)
    alone = colored_objects(WordModel(), n_items=24, every_object=False).table
    assert len(alone) == 24 and alone.asked.value_counts().eq(8).all()
    crossed = colored_objects(WordModel(), n_items=4, n_templates=3, crossed=True).table
    assert len(crossed) == 36 and not crossed.duplicated(["template", "item", "asked"]).any()
    assert crossed.groupby("item")[["surface"]].nunique().eq(1).all(axis=None)


def _places(p, who):
    """The place in the list of the objects that `who` names."""
    columns = torch.stack([p.roles[f"{one}color"] for one in ("", "other_", "third_")], 1)
    return (columns < p.roles[f"{who}color"][:, None]).sum(1).tolist()


def test_the_seed_draws_the_items_and_nothing_else_does():
    one, again, other = (colored_objects(WordModel(), n_items=8, seed=seed) for seed in (1, 1, 2))
    assert one.table.equals(again.table) and one.texts == again.texts
    assert not one.table.object.equals(other.table.object)


def test_without_an_example_there_is_only_the_question():
    p = colored_objects(WordModel(), n_items=4, shots=0)
    assert "shown" not in p.roles and all(text.count("Q:") == 1 for text in p.texts["clean"])
    assert all(text.count("Q:") == 3 for text in colored_objects(WordModel(), n_items=4, shots=2).texts["clean"])


def test_words_of_several_tokens_are_left_out_and_counted():
    parts = datasets.read_json("colored_objects")["explore"]
    split = [*parts["objects"][:60], "red", "Blue"]
    p = colored_objects(WordModel(split=split), n_items=4)
    assert not set(p.table[WORDS[:3]].values.ravel()) & set(split)
    assert not set(p.table[WORDS[3:]].values.ravel()) & {"red", "blue"}
    assert p.note.startswith("12 of 72 objects are one token; left out: textbook")
    assert p.note.endswith("8 of 10 colors are one token; left out: red, blue")
    assert colored_objects(WordModel(split=split), n_items=4, capital=False).note.endswith(
        "9 of 10 colors are one token; left out: red"
    )
    with pytest.raises(HookbookError, match="Only 12 of 72 words .* 15 are needed"):
        colored_objects(WordModel(split=split), n_items=5)
    with pytest.raises(HookbookError, match="Only 8 of 10 colors .* 9 are needed; ask for fewer shots"):
        colored_objects(WordModel(split=split), n_items=4, shots=2)
    with pytest.raises(HookbookError, match="6 templates .* 7 are asked for"):
        colored_objects(WordModel(), n_templates=7)


def test_a_word_that_stands_elsewhere_too_is_noticed(monkeypatch):
    sets = datasets.read_json("colored_objects")
    sets["explore"]["templates"] = ["Q: With a red hat I saw {LIST} on the {SURFACE}. The {OBJECT}?\nA:"]
    sets["explore"]["colors"] = ["red", "blue", "gray"]
    monkeypatch.setattr("helpers.colored_objects.read_json", lambda name: sets)
    with pytest.raises(HookbookError, match="joins words"):
        colored_objects(WordModel(), n_items=2, shots=0)


def test_in_a_chat_the_roles_move_and_nothing_else():
    model = WordModel()
    with pytest.raises(HookbookError, match="no chat template"):
        colored_objects(model, chat_template=True)
    model.tokenizer.chat_template = "there is one"
    plain, chat = colored_objects(model, prepend_bos=False), colored_objects(model, chat_template=True)
    assert chat.table.equals(plain.table) and torch.equal(chat.correct, plain.correct)
    assert all(torch.equal(chat.roles[role], plain.roles[role] + 7) for role in plain.roles)


@pytest.mark.model
def test_the_default_model_names_a_listed_color_and_the_right_one_more_often_than_by_chance():
    model = load_model()
    p = colored_objects(model, n_items=12)
    assert p.note == "72 of 72 objects are one token; left out: none; 10 of 10 colors are one token; left out: none"
    logits = []
    with torch.no_grad():
        for rows in torch.arange(len(p)).split(12):
            every = model(p.tokens["clean"][rows], attention_mask=p.mask[rows].long())
            logits.append(every[torch.arange(len(rows)), p.roles["end"][rows]])
    logits = torch.cat(logits)
    three = options(model, p)
    assert (logits.argmax(1)[:, None] == three).any(1).float().mean() > 0.6
    assert (logits.gather(1, three).argmax(1) == 0).float().mean() > 0.4
