"""Indirect object identification: prompts in which one of two names comes back, and the other is what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from helpers.counterparts import Counterparts, encode, encoder, schedule
from helpers.datasets import first, read_json, single_token
from helpers.errors import HookbookError

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

THIRD = 3  # new names in a prompt of which nothing is left


def ioi(
    model: TransformerBridge,
    *,
    half: Literal["explore", "confirm"] = "explore",
    n_pairs: int = 12,
    n_templates: int | None = None,
    crossed: bool = False,
    prepend_bos: bool = True,
    chat_template: bool = False,
    seed: int = 0,
) -> Counterparts:
    """Prompts such as "When Mary and John went to the store, John gave a drink to", with three corruptions.

    Mary is the indirect object (IO), John the subject (S). A name belongs to one pair only, so name pairs are
    independent; the two orders of the names (ABBA: IO first, BABA: S first) take turns over templates and pairs. Places
    and objects are drawn for each prompt.

    Versions:
        clean: S comes back.
        s2_io: the IO comes back instead ("symmetric token replacement"): the answer is S.
        s2_new: a third name comes back: neither is the answer, and both names stay.
        abc: three new names, all different: nothing of the names is left.

    Roles: io, s1, s2, s1_next (the token after S1, where heads note the token before) and end.

    Source: the task is of Wang et al., Interpretability in the Wild, ICLR 2023 (2211.00593); names and templates are
    this collection's own (data/ioi.json).

    Args:
        model: whose tokenizer decides which names are a single token.
        half: names, templates, places and objects of `confirm` are used by no pilot.
        n_pairs: name pairs.
        n_templates: templates, all of the half by default.
        crossed: every template with every name pair, instead of each pair once.
        prepend_bos: start every prompt with the BOS token.
        chat_template: put the prompts, unfinished, into the user's turn of the model's chat template.
        seed: of the pairs, places and objects.

    Returns:
        Prompts with the columns template, name_pair, order, io, s, new_1, new_2, new_3, place, object of `table`;
        `correct` is the IO, `wrong` is S.

    Raises:
        HookbookError: too few names that are one token under this tokenizer, more templates or pairs than there are, or
            a tokenizer that joins names with their neighbours.
    """
    parts = read_json("ioi")[half]
    templates = first(parts["templates"], len(parts["templates"]) if n_templates is None else n_templates, "templates")
    names = single_token(parts["names"], model.tokenizer, at_least=max(2 * n_pairs, 2 + THIRD))
    rng = np.random.default_rng([seed, 0])
    shuffled = [str(name) for name in rng.permutation(names.words)]
    rows = [
        _row(template, pair, turn, shuffled, str(rng.choice(parts["places"])), str(rng.choice(parts["objects"])))
        for template, pair, turn in schedule(len(templates), n_pairs, crossed)
    ]
    table = pd.DataFrame(rows)
    versions = {
        "clean": ("io", "s", "s"),
        "s2_io": ("io", "s", "io"),
        "s2_new": ("io", "s", "new_1"),
        "abc": ("new_1", "new_2", "new_3"),
    }
    texts = {version: [_text(templates, row, *who) for row in rows] for version, who in versions.items()}
    tokens, mask = encode(model, texts, encoder(model, prepend_bos, chat_template))
    ids = {who: torch.tensor([_single(model, name) for name in table[who]]) for who in ("io", "s")}
    (io,), (s1, s2) = (_columns(tokens["clean"], mask, ids["io"], 1), _columns(tokens["clean"], mask, ids["s"], 2))
    left_out = ", ".join(names.dropped) or "none"
    return Counterparts(
        table=table,
        texts=texts,
        tokens=tokens,
        mask=mask,
        roles={"io": io, "s1": s1, "s2": s2, "s1_next": s1 + 1, "end": mask.sum(1) - 1},
        correct=ids["io"],
        wrong=ids["s"],
        note=f"{len(names)} of {len(parts['names'])} names are one token; left out: {left_out}",
    )


def _row(template: int, pair: int, turn: int, names: list[str], place: str, thing: str) -> dict[str, object]:
    """One prompt's entries; the third names are the next ones in the circle of names, those of other pairs."""
    new = [names[(2 * pair + 2 + i) % len(names)] for i in range(THIRD)]
    return {
        "template": template,
        "name_pair": pair,
        "order": ("ABBA", "BABA")[turn],
        "io": names[2 * pair],
        "s": names[2 * pair + 1],
        **{f"new_{i + 1}": name for i, name in enumerate(new)},
        "place": place,
        "object": thing,
    }


def _text(templates: list[str], row: dict[str, object], io: str, s: str, again: str) -> str:
    one, other = (row[io], row[s]) if row["order"] == "ABBA" else (row[s], row[io])
    return templates[row["template"]].format(A=one, B=other, C=row[again], PLACE=row["place"], OBJECT=row["object"])


def _single(model: TransformerBridge, name: str) -> int:
    return model.tokenizer(f" {name}", add_special_tokens=False)["input_ids"][0]


def _columns(
    tokens: Int[Tensor, "prompt pos"], mask: Tensor, wanted: Int[Tensor, "prompt"], times: int
) -> tuple[Int[Tensor, "prompt"], ...]:
    """Where a token stands, which it must do exactly so many times."""
    found = (tokens == wanted[:, None]) & mask
    if not found.sum(1).eq(times).all():
        raise HookbookError("This tokenizer joins names with what stands beside them: a name is not found where it is.")
    return found.nonzero()[:, 1].reshape(-1, times).unbind(1)
