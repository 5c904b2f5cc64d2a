"""Colored Objects: three objects of different colors are listed, and one of them is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from helpers.counterparts import Counterparts, encode, encoder, schedule
from helpers.datasets import Kept, first, read_json, single_token
from helpers.errors import HookbookError

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

LISTED = 3  # objects in a list
WHO = ("", "other_", "third_")  # the object that is asked for, and those after it in the circle of the list


def colored_objects(
    model: TransformerBridge,
    *,
    half: Literal["explore", "confirm"] = "explore",
    n_items: int = 12,
    n_templates: int | None = None,
    crossed: bool = False,
    every_object: bool = True,
    shots: int = 1,
    capital: bool = True,
    prepend_bos: bool = True,
    chat_template: bool = False,
    seed: int = 0,
) -> Counterparts:
    """Prompts such as "Q: I can see a red cup, a blue hat, and a gray pen on the table. What color is the hat?\\nA:".

    Before that stands a solved example, the same in all versions, whose colors do not come again. The objects of a list
    (an item) are in no other item, so items are independent; colors, surfaces and examples are drawn for each item.

    Versions:
        clean: the answer is the color of the object that is asked for.
        other: the next object of the list is asked for; its color is the answer, and `wrong` in the clean prompt.
        swapped: the two objects have changed colors, the question is the same: the answer is `wrong` again.
        absent: an object is asked for that is not in the list: there is no answer.

    Roles: object and color (of what is asked for, in the list), other_object, other_color, third_object, third_color,
    asked (the object in the question), end, and with an example shown (its answer).

    Source: the task is BIG-bench's, with one solved example as in Merullo et al., Circuit Component Reuse, ICLR 2024
    (2310.08744); words and templates are this collection's own (data/colored_objects.json).

    Args:
        model: whose tokenizer decides which objects and colors are a single token.
        half: templates, objects, colors and surfaces of `confirm` are used by no pilot.
        n_items: lists of three objects.
        n_templates: templates, all of the half by default.
        crossed: every template with every item, instead of each item with one.
        every_object: each object of a list is asked for, in three prompts; else one of them, in turn over items.
        shots: solved examples.
        capital: answers begin with a capital letter, those of the examples too.
        prepend_bos: start every prompt with the BOS token.
        chat_template: put the prompts, unfinished, into the user's turn of the model's chat template.
        seed: of items, colors, surfaces and examples.

    Returns:
        Prompts with the columns template, item, asked (0 to 2, the place in the list), object, color, other_object,
        other_color, third_object, third_color, absent, surface of `table`; `correct` is the color of the object,
        `wrong` that of the other one. `options` has the three colors as tokens.

    Raises:
        HookbookError: too few objects or colors that are one token under this tokenizer, more templates than there are,
            or a tokenizer that joins words with their neighbours.
    """
    parts = read_json("colored_objects")[half]
    templates = first(parts["templates"], len(parts["templates"]) if n_templates is None else n_templates, "templates")
    objects = single_token(parts["objects"], model.tokenizer, at_least=LISTED * max(n_items, 2))
    colors = _colors(parts["colors"], model, LISTED * (1 + shots), capital)
    rng = np.random.default_rng([seed, 0])
    names = [str(name) for name in rng.permutation(objects.words)]
    items = [_item(names[LISTED * i : LISTED * (i + 1)], colors.words, parts, shots, rng) for i in range(n_items)]
    asked = range(LISTED) if every_object else [None]
    rows = [
        _row(template, item, item % LISTED if which is None else which, items, names)
        for template, item, _ in schedule(len(templates), n_items, crossed)
        for which in asked
    ]
    table = pd.DataFrame(rows)
    before = [_examples(templates[row["template"]], items[row["item"]]["examples"], capital) for row in rows]
    texts = {
        version: [start + _text(templates, row, version) for start, row in zip(before, rows, strict=True)]
        for version in ("clean", "other", "swapped", "absent")
    }
    tokens, mask = encode(model, texts, encoder(model, prepend_bos, chat_template))
    roles = {}
    for who in WHO:
        places = _places(tokens["clean"], mask, _ids(model, table[f"{who}object"]), 2 if who == "" else 1)
        roles[f"{who}object"] = places[0]
        roles[f"{who}color"] = _places(tokens["clean"], mask, _ids(model, table[f"{who}color"]), 1)[0]
        if who == "":
            roles["asked"] = places[1]
    if shots:
        answers = [_answer(items[item]["examples"][-1]["color"], capital) for item in table["item"]]
        roles["shown"] = _places(tokens["clean"], mask, _ids(model, answers), None)[-1]
    correct, wrong = (_ids(model, [_answer(c, capital) for c in table[f"{who}color"]]) for who in WHO[:2])
    return Counterparts(
        table=table,
        texts=texts,
        tokens=tokens,
        mask=mask,
        roles=roles | {"end": mask.sum(1) - 1},
        correct=correct,
        wrong=wrong,
        note=f"{_note(objects, 'objects')}; {_note(colors, 'colors')}",
    )


def options(model: TransformerBridge, prompts: Counterparts, *, capital: bool = True) -> Int[Tensor, "prompt 3"]:
    """The three colors of each list as answers, the correct one first, then `wrong`, then the third.

    Args:
        model: that the prompts were made for.
        prompts: of `colored_objects`.
        capital: as they were made.
    """
    return torch.stack([_ids(model, [_answer(c, capital) for c in prompts.table[f"{who}color"]]) for who in WHO], 1)


def _note(kept: Kept, what: str) -> str:
    left_out = ", ".join(kept.dropped) or "none"
    return f"{len(kept)} of {len(kept) + len(kept.dropped)} {what} are one token; left out: {left_out}"


def _colors(words: list[str], model: TransformerBridge, at_least: int, capital: bool) -> Kept:
    """The colors that are one token both in the list and as an answer."""
    as_answers = set(single_token([_answer(word, capital) for word in words], model.tokenizer, at_least=0).words)
    both = single_token([word for word in words if _answer(word, capital) in as_answers], model.tokenizer, at_least=0)
    if len(both) < at_least:
        raise HookbookError(
            f"Only {len(both)} of {len(words)} colors are one token for this model, as {_answer('red', capital)!r} and "
            f"as 'red', and {at_least} are needed; ask for fewer shots or use another model."
        )
    return Kept(both.words, [word for word in words if word not in both.words])


def _item(objects: list[str], colors: list[str], parts: dict, shots: int, rng: np.random.Generator) -> dict:
    """A list and the examples before it, which share no color."""
    drawn = [str(color) for color in rng.choice(colors, LISTED * (1 + shots), replace=False)]
    surface = str(rng.choice(parts["surfaces"]))
    examples = []
    for shot in range(1, shots + 1):
        shown = [str(name) for name in rng.choice(parts["shown"], LISTED, replace=False)]
        which, own = int(rng.integers(LISTED)), drawn[LISTED * shot : LISTED * (shot + 1)]
        where = str(rng.choice(parts["surfaces"]))
        examples.append({"list": _list(own, shown), "object": shown[which], "color": own[which], "surface": where})
    return {"objects": objects, "colors": drawn[:LISTED], "surface": surface, "examples": examples}


def _row(template: int, item: int, which: int, items: list[dict], names: list[str]) -> dict[str, object]:
    """One prompt's entries; the absent object is one of the next item, in the circle of items."""
    own, places = items[item], [(which + i) % LISTED for i in range(LISTED)]
    return {
        "template": template,
        "item": item,
        "asked": which,
        **{f"{who}object": own["objects"][place] for who, place in zip(WHO, places, strict=True)},
        **{f"{who}color": own["colors"][place] for who, place in zip(WHO, places, strict=True)},
        "absent": names[(LISTED * (item + 1) + which) % len(names)],
        "surface": own["surface"],
    }


def _text(templates: list[str], row: dict[str, object], version: str) -> str:
    which = row["asked"]
    objects, colors = ([row[f"{who}{what}"] for who in WHO] for what in ("object", "color"))
    if version == "swapped":
        colors = [colors[1], colors[0], colors[2]]
    asked = {"other": row["other_object"], "absent": row["absent"]}.get(version, row["object"])
    in_order = [(place - which) % LISTED for place in range(LISTED)]
    listed = _list([colors[i] for i in in_order], [objects[i] for i in in_order])
    return templates[row["template"]].format(LIST=listed, SURFACE=row["surface"], OBJECT=asked)


def _list(colors: list[str], objects: list[str]) -> str:
    one, two, three = (f"{'an' if c[0] in 'aeiou' else 'a'} {c} {o}" for c, o in zip(colors, objects, strict=True))
    return f"{one}, {two}, and {three}"


def _examples(template: str, examples: list[dict[str, str]], capital: bool) -> str:
    return "".join(
        f"{template.format(LIST=e['list'], SURFACE=e['surface'], OBJECT=e['object'])} {_answer(e['color'], capital)}\n"
        for e in examples
    )


def _answer(color: str, capital: bool) -> str:
    return color.capitalize() if capital else color


def _ids(model: TransformerBridge, words: list[str] | pd.Series) -> Int[Tensor, "prompt"]:
    ids = [model.tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0] for word in words]
    return torch.tensor(ids)


def _places(
    tokens: Int[Tensor, "prompt pos"], mask: Tensor, wanted: Int[Tensor, "prompt"], times: int | None
) -> list[Int[Tensor, "prompt"]]:
    """Where a token stands, which it must do exactly so many times; without a number the last place alone."""
    found = (tokens == wanted[:, None]) & mask
    counts = found.sum(1)
    if not (counts.eq(times) if times else counts.gt(0)).all():
        raise HookbookError("This tokenizer joins words with what stands beside them: a word is not found where it is.")
    if times is None:
        return [(found * torch.arange(tokens.shape[1])).amax(1)]
    return list(found.nonzero()[:, 1].reshape(-1, times).unbind(1))
