"""Facts about countries: prompts that ask for a capital or a language, paired with another country of equal length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from helpers.counterparts import Counterparts, encode, encoder, schedule
from helpers.datasets import first, read_json
from helpers.errors import HookbookError

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

Half = Literal["explore", "confirm"]
Relation = Literal["capital", "language"]
LETTERS = 3  # an answer's first token must have as many: " O" of Ouagadougou may begin anything


def capitals(
    model: TransformerBridge,
    *,
    half: Half = "explore",
    n_pairs: int | None = None,
    n_templates: int | None = None,
    crossed: bool = False,
    both_ways: bool = True,
    prepend_bos: bool = True,
    chat_template: bool = False,
    seed: int = 0,
) -> Counterparts:
    """Prompts such as "The capital of France is the city of", each beside the same prompt for another country.

    Countries form pairs of equal token length; a country belongs to one pair only, so pairs are independent. Left out
    are countries whose capital's first token is that of another capital or has fewer than three letters, and countries
    that find no partner.

    Versions: clean, and other (the other country of the pair: "symmetric token replacement", a prompt that the model
    knows as well, with the answer `wrong`). Roles: subject_first, subject_last (of the country's tokens) and end.

    Source: public knowledge (data/countries.json); pairs of facts of equal length are an idea of Zhang and Nanda, 2024
    (2309.16042).

    Args:
        model: whose tokenizer decides lengths and first tokens.
        half: countries and templates of `confirm` are used by no pilot.
        n_pairs: pairs of countries, by default as many as can be formed.
        n_templates: templates, all of the half by default.
        crossed: every template with every pair, instead of each pair with one template.
        both_ways: each country of a pair is asked for, in two prompts of one template; else the first only.
        prepend_bos: start every prompt with the BOS token.
        chat_template: put the prompts, unfinished, into the user's turn of the model's chat template.
        seed: of the pairs.

    Returns:
        Prompts with the columns template, country_pair, country, answer, other, other_answer of `table`; `correct` and
        `wrong` are the first tokens of the two answers.

    Raises:
        HookbookError: fewer pairs or templates than asked for, or a tokenizer that joins a country with its neighbours.
    """
    return _facts(model, "capital", half, n_pairs, n_templates, crossed, both_ways, prepend_bos, chat_template, seed)


def languages(
    model: TransformerBridge,
    *,
    half: Half = "explore",
    n_pairs: int | None = None,
    n_templates: int | None = None,
    crossed: bool = False,
    both_ways: bool = True,
    prepend_bos: bool = True,
    chat_template: bool = False,
    seed: int = 0,
) -> Counterparts:
    """As `capitals`, for the main official language of countries that have one: "People in France mostly speak".

    The two countries of a pair speak different languages, but two pairs may share one: where that matters, the unit is
    the language and not the pair.
    """
    return _facts(model, "language", half, n_pairs, n_templates, crossed, both_ways, prepend_bos, chat_template, seed)


def _facts(
    model: TransformerBridge,
    relation: Relation,
    half: Half,
    n_pairs: int | None,
    n_templates: int | None,
    crossed: bool,
    both_ways: bool,
    prepend_bos: bool,
    chat_template: bool,
    seed: int,
) -> Counterparts:
    data = read_json("countries")
    known = data["templates"][relation][half]
    templates = first(known, len(known) if n_templates is None else n_templates, "templates")
    kept, dropped = _unambiguous([row for row in data[half] if row[relation]], relation, model.tokenizer)
    pairs, single = _pairs(kept, relation, model.tokenizer, np.random.default_rng([seed, 0]))
    n_pairs = len(pairs) if n_pairs is None else n_pairs
    if not 0 < n_pairs <= len(pairs):
        raise HookbookError(
            f"{len(pairs)} pairs of countries of equal length can be formed for this model and {n_pairs} are asked for."
        )
    table = pd.DataFrame([
        {
            "template": template,
            "country_pair": pair,
            "country": one["country"],
            "answer": one[relation],
            "other": other["country"],
            "other_answer": other[relation],
        }
        for template, pair, _ in schedule(len(templates), n_pairs, crossed)
        for one, other in (pairs[pair], pairs[pair][::-1])[: 1 + both_ways]
    ])  # fmt: skip
    texts = {
        version: [templates[t].format(COUNTRY=c) for t, c in zip(table.template, table[column], strict=True)]
        for version, column in (("clean", "country"), ("other", "other"))
    }
    one = encoder(model, prepend_bos, chat_template)
    tokens, mask = encode(model, texts, one)
    ids = {c: torch.tensor([_first_token(a, model.tokenizer) for a in table[c]]) for c in ("answer", "other_answer")}
    return Counterparts(
        table=table,
        texts=texts,
        tokens=tokens,
        mask=mask,
        roles=_roles(one, templates, table, tokens["clean"]) | {"end": mask.sum(1) - 1},
        correct=ids["answer"],
        wrong=ids["other_answer"],
        note=f"{2 * len(pairs)} of {len(kept) + len(dropped)} countries are in pairs; ambiguous under this tokenizer: "
        f"{', '.join(dropped) or 'none'}; without a partner of equal length: {', '.join(single) or 'none'}",
    )


def _first_token(word: str, tokenizer: Any) -> int:
    return tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0]


def _unambiguous(
    rows: list[dict[str, str]], relation: Relation, tokenizer: Any
) -> tuple[list[dict[str, str]], list[str]]:
    """The countries whose answer's first token says which answer it is, and the names of the others."""
    answers = defaultdict(set)
    for row in rows:
        answers[_first_token(row[relation], tokenizer)].add(row[relation])
    kept, dropped = [], []
    for row in rows:
        token = _first_token(row[relation], tokenizer)
        long_enough = row[relation].startswith(text := tokenizer.decode([token]).strip()) and len(text) >= LETTERS
        if len(answers[token]) == 1 and (long_enough or text == row[relation]):
            kept.append(row)
        else:
            dropped.append(row["country"])
    return kept, dropped


def _pairs(
    rows: list[dict[str, str]], relation: Relation, tokenizer: Any, rng: np.random.Generator
) -> tuple[list[tuple[dict[str, str], dict[str, str]]], list[str]]:
    """Disjoint pairs of countries with equally many tokens and different answers, in random order; who is left over."""
    waiting: dict[int, list[dict[str, str]]] = defaultdict(list)
    pairs = []
    for i in rng.permutation(len(rows)):
        row = rows[i]
        group = waiting[len(tokenizer(f" {row['country']}", add_special_tokens=False)["input_ids"])]
        partner = next((other for other in group if other[relation] != row[relation]), None)
        if partner is None:
            group.append(row)
        else:
            group.remove(partner)
            pairs.append((partner, row))
    return pairs, sorted(row["country"] for group in waiting.values() for row in group)


def _roles(
    one: Callable[[str], Int[Tensor, "pos"]],
    templates: list[str],
    table: pd.DataFrame,
    tokens: Int[Tensor, "prompt pos"],
) -> dict[str, Int[Tensor, "prompt"]]:
    """First and last column of the country: its template is cut before and behind it, and must be cut so as tokens."""
    ends = []
    for row, (template, country) in enumerate(zip(table.template, table.country, strict=True)):
        before = templates[template].partition(" {COUNTRY}")[0]
        cut = [one(text) for text in (before, f"{before} {country}")]
        if not all(torch.equal(ids, tokens[row, : len(ids)]) for ids in cut):
            raise HookbookError(f"This tokenizer joins {country!r} with what stands beside it.")
        ends.append([len(ids) for ids in cut])
    starts, stops = torch.tensor(ends).T
    return {"subject_first": starts, "subject_last": stops - 1}
