"""Prompts and their corrupted counterparts, token by token: what `helpers.ioi` and `helpers.facts` give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from helpers.errors import HookbookError

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

MARK = "TEXT"  # stands for the user's words when the template's beginning is looked for


@dataclass(frozen=True, eq=False)
class Counterparts:
    """Prompts in several versions that agree in length position by position, so that patches fit.

    Attributes:
        table: one row a prompt, with the ids of its units and the words in it.
        texts: the prompts by version; "clean" is always one of them.
        tokens: their token ids by version, padded on the right to one width.
        mask: true at tokens, the same for all versions.
        roles: by name, the column of each prompt in which something stands, such as "end" for the last token.
        correct: the token that the clean prompt asks for.
        wrong: the token that it is compared with.
        note: what was kept and what was left out for this tokenizer, as a sentence.
    """

    table: pd.DataFrame
    texts: dict[str, list[str]]
    tokens: dict[str, Int[Tensor, "prompt pos"]]
    mask: Bool[Tensor, "prompt pos"]
    roles: dict[str, Int[Tensor, "prompt"]]
    correct: Int[Tensor, "prompt"]
    wrong: Int[Tensor, "prompt"]
    note: str

    def __len__(self) -> int:
        return len(self.table)


def encoder(model: TransformerBridge, prepend_bos: bool, chat_template: bool) -> Callable[[str], Int[Tensor, "pos"]]:
    """The function that makes token ids of a text, from BOS or within the user's turn of the chat template.

    Raises:
        HookbookError: the model has no chat template.
    """
    if not chat_template:
        return lambda text: model.to_tokens(text, prepend_bos=prepend_bos)[0].cpu()
    if getattr(model.tokenizer, "chat_template", None) is None:
        raise HookbookError("This model has no chat template: leave chat_template at False.")
    turn = [{"role": "user", "content": MARK}]
    start = model.tokenizer.apply_chat_template(turn, tokenize=False).partition(MARK)[0]
    return lambda text: model.to_tokens(start + text, prepend_bos=False)[0].cpu()


def encode(
    model: TransformerBridge, texts: Mapping[str, Sequence[str]], one: Callable[[str], Int[Tensor, "pos"]]
) -> tuple[dict[str, Int[Tensor, "prompt pos"]], Bool[Tensor, "prompt pos"]]:
    """Token ids of all versions, padded on the right to one width, and the mask that they share.

    Raises:
        HookbookError: a prompt has another number of tokens in one version than in another.
    """
    ids = {version: [one(text) for text in ones] for version, ones in texts.items()}
    lengths = {version: torch.tensor([len(row) for row in rows]) for version, rows in ids.items()}
    first = next(iter(lengths.values()))
    for version, length in lengths.items():
        if not torch.equal(length, first):
            row = int((length != first).nonzero()[0])
            raise HookbookError(
                f"{texts[version][row]!r} has {int(length[row])} tokens and not {int(first[row])} as its counterpart: "
                "this tokenizer joins words of this template with what stands beside them."
            )
    pad = getattr(model.tokenizer, "pad_token_id", None) or 0  # where it is padding, a forgotten mask is noticed
    padded = {v: torch.nn.utils.rnn.pad_sequence(x, batch_first=True, padding_value=pad) for v, x in ids.items()}
    return padded, torch.arange(int(first.max())) < first[:, None]


def schedule(n_templates: int, n_items: int, crossed: bool) -> list[tuple[int, int, int]]:
    """Which template serves which item: each item once, templates in turn, or every template with every item.

    Returns:
        (template, item, turn), where turn is 0 or 1, half and half over the prompts and within a template.
    """
    if crossed:
        return [(template, item, (template + item) % 2) for template in range(n_templates) for item in range(n_items)]
    shift = n_templates % 2 == 0  # else a template would always have the same turn
    return [(item % n_templates, item, (item + shift * (item // n_templates)) % 2) for item in range(n_items)]
