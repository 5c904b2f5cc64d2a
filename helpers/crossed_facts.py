"""Facts about countries, every country asked for every relation: capital, language, continent, currency."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from helpers.counterparts import encode, encoder
from helpers.datasets import first, read_json
from helpers.errors import HookbookError

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

    from helpers.facts import Half

RELATIONS = ("capital", "language", "continent", "currency")
LETTERS = 3  # an answer's first token must have as many, unless the answer itself is shorter


@dataclass(frozen=True, eq=False)
class CrossedFacts:
    """Prompts of a full table: every country with every relation, in every template of that relation.

    Attributes:
        table: one row a prompt: country, relation, template (counted from 0 within its relation), answer.
        texts: the prompts.
        tokens: their token ids, padded on the right to one width.
        mask: true at tokens.
        subject: true at the tokens of the country.
        end: the column of the last token.
        correct: the token that the prompt asks for, the first of its answer.
        answers: by relation, the first token of each answer that some country of the table has.
        note: what was kept and what was left out for this tokenizer, as a sentence.
    """

    table: pd.DataFrame
    texts: list[str]
    tokens: Int[Tensor, "prompt pos"]
    mask: Bool[Tensor, "prompt pos"]
    subject: Bool[Tensor, "prompt pos"]
    end: Int[Tensor, "prompt"]
    correct: Int[Tensor, "prompt"]
    answers: dict[str, dict[str, int]]
    note: str

    def __len__(self) -> int:
        return len(self.table)


def crossed_facts(
    model: TransformerBridge,
    *,
    half: Half = "explore",
    relations: Sequence[str] = RELATIONS,
    n_countries: int | None = None,
    n_templates: int | None = None,
    subject: str | None = None,
    prepend_bos: bool = True,
    chat_template: bool = False,
    seed: int = 0,
) -> CrossedFacts:
    """The crossed table of countries and relations, such as "The capital of France is the city of".

    Kept are countries of one token for which every relation has an answer whose first token is the answer's own: no
    other answer of the relation begins with it, and it has three letters at least (or is the whole answer). Several
    countries may share a language, a continent or a currency. In rows of one country the templates of a relation come
    one after the other; countries come in random order.

    Source: public knowledge (data/countries.json, data/country_relations.json); subjects of one token, each asked for
    several relations, are Chughtai, Cooney and Nanda's, 2024 (2402.07321).

    Args:
        model: whose tokenizer decides lengths and first tokens.
        half: countries and templates of `confirm` are used by no pilot.
        relations: of RELATIONS, at least one.
        n_countries: countries, by default as many as are kept.
        n_templates: templates of each relation, all of the half by default.
        subject: words to put in the place of every country, such as "that country"; the answers stay.
        prepend_bos: start every prompt with the BOS token.
        chat_template: put the prompts, unfinished, into the user's turn of the model's chat template.
        seed: of the order of the countries, and so of the choice where fewer are asked for.

    Raises:
        HookbookError: an unknown relation, too few countries or templates, or a tokenizer that joins a country with its
            neighbours.
    """
    if unknown := [name for name in relations if name not in RELATIONS]:
        raise HookbookError(f"There is no relation {unknown[0]!r}; known are {', '.join(RELATIONS)}.")
    if not relations or len(set(relations)) < len(relations):
        raise HookbookError(f"Name each relation once, at least one of {', '.join(RELATIONS)}.")
    known = _templates(half)
    templates = {
        r: first(known[r], len(known[r]) if n_templates is None else n_templates, "templates") for r in relations
    }
    rows = [row for row in _countries(half) if all(row[r] for r in relations)]
    kept, dropped = _kept(rows, relations, model.tokenizer)
    wanted = len(kept) if n_countries is None else n_countries
    if not 2 <= wanted <= len(kept):
        raise HookbookError(
            f"{len(kept)} of {len(rows)} countries have one token and an answer of their own in each relation for this "
            f"model, and {wanted} are asked for (at least two): ask for fewer, or for fewer relations."
        )
    order = np.random.default_rng([seed, 0]).permutation(len(kept))[:wanted]
    table = pd.DataFrame([
        {"country": row["country"], "relation": relation, "template": t, "answer": row[relation]}
        for row in (kept[i] for i in order)
        for relation in relations
        for t in range(len(templates[relation]))
    ])  # fmt: skip
    shown = table.country if subject is None else [subject] * len(table)
    patterns = [templates[relation][t] for relation, t in zip(table.relation, table.template, strict=True)]
    texts = [text.format(COUNTRY=name) for text, name in zip(patterns, shown, strict=True)]
    one = encoder(model, prepend_bos, chat_template)
    tokens, mask = encode(model, {"clean": texts}, one)
    answers = {
        relation: {word: _first_token(word, model.tokenizer) for word in dict.fromkeys(part.answer)}
        for relation, part in table.groupby("relation", sort=False)
    }
    return CrossedFacts(
        table=table,
        texts=texts,
        tokens=tokens["clean"],
        mask=mask,
        subject=_subject(one, patterns, list(shown), tokens["clean"]),
        end=mask.sum(1) - 1,
        correct=torch.tensor([answers[r][a] for r, a in zip(table.relation, table.answer, strict=True)]),
        answers=answers,
        note=f"{wanted} of {len(rows)} countries that have an answer in each relation; left out for this tokenizer: "
        f"{', '.join(dropped) or 'none'}",
    )


def _templates(half: str) -> dict[str, list[str]]:
    files = read_json("countries")["templates"] | read_json("country_relations")["templates"]
    return {relation: files[relation][half] for relation in RELATIONS}


def _countries(half: str) -> list[dict[str, str | None]]:
    more = {row["country"]: row for row in read_json("country_relations")[half]}
    return [row | more[row["country"]] for row in read_json("countries")[half]]


def _first_token(word: str, tokenizer: Any) -> int:
    return tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0]


def _kept(
    rows: list[dict[str, str]], relations: Sequence[str], tokenizer: Any
) -> tuple[list[dict[str, str]], list[str]]:
    """Countries of one token whose answers can be told from their first tokens, and the names of the others."""
    begins: dict[tuple[str, int], set[str]] = defaultdict(set)
    for row in rows:
        for relation in relations:
            begins[relation, _first_token(row[relation], tokenizer)].add(row[relation])

    def fits(row: dict[str, str]) -> bool:
        if len(tokenizer(f" {row['country']}", add_special_tokens=False)["input_ids"]) != 1:
            return False
        for relation in relations:
            token = _first_token(row[relation], tokenizer)
            text = tokenizer.decode([token]).strip()
            whole = text == row[relation] or (len(text) >= LETTERS and row[relation].startswith(text))
            if len(begins[relation, token]) > 1 or not whole:
                return False
        return True

    return [row for row in rows if fits(row)], [row["country"] for row in rows if not fits(row)]


def _subject(one: Any, patterns: list[str], shown: list[str], tokens: Int[Tensor, "prompt pos"]) -> Bool[Tensor, "p q"]:
    """Where the country stands: each text is cut before and behind it, and must be cut so as tokens."""
    where = torch.zeros_like(tokens, dtype=torch.bool)
    for row, (pattern, name) in enumerate(zip(patterns, shown, strict=True)):
        before = pattern.partition(" {COUNTRY}")[0]
        cut = [one(text) for text in (before, f"{before} {name}")]
        if not all(torch.equal(ids, tokens[row, : len(ids)]) for ids in cut):
            raise HookbookError(f"This tokenizer joins {name!r} with what stands beside it.")
        where[row, len(cut[0]) : len(cut[1])] = True
    return where
