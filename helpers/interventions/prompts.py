"""Pairs of prompts for patching: the same length position by position, padded on one side, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from helpers.errors import HookbookError
from helpers.padding import refuse_hidden_padding

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

Prompts = str | Sequence[str] | Int[Tensor, "unit pos"]


@dataclass(frozen=True, eq=False)
class Pair:
    """Token ids of the run that is patched and of the one that patches come from; `mask` is true at tokens."""

    base: Int[Tensor, "unit pos"]
    source: Int[Tensor, "unit pos"]
    mask: Bool[Tensor, "unit pos"]


def pair(
    model: TransformerBridge,
    base: Prompts,
    source: Prompts | None,
    *,
    mask: Bool[Tensor, "unit pos"] | None,
    prepend_bos: bool | None,
) -> Pair:
    """Tokenise both and check that they agree position by position; without a source, the base is its own.

    Raises:
        HookbookError: unequal lengths, padding that nobody named, a mask with gaps, or no prompts at all.
    """
    ids, base_mask = _encode(model, base, mask, prepend_bos)
    if source is None:
        return Pair(ids, ids, base_mask)
    other, other_mask = _encode(model, source, mask, prepend_bos)
    if len(ids) != len(other):
        raise HookbookError(f"There are {len(ids)} prompts to patch and {len(other)} to patch from: give pairs.")
    lengths = base_mask.sum(1), other_mask.sum(1)
    if not torch.equal(*lengths):
        unit = int((lengths[0] != lengths[1]).nonzero()[0])
        raise HookbookError(
            f"The prompts of pair {unit} have {int(lengths[0][unit])} and {int(lengths[1][unit])} tokens: patching "
            "exchanges position by position, so choose words that take the same number of tokens."
        )
    if ids.shape != other.shape:
        raise HookbookError("The two token tensors differ in width: pad both to the same one.")
    return Pair(ids, other, base_mask)


def _encode(
    model: TransformerBridge, prompts: Prompts, mask: Tensor | None, prepend_bos: bool | None
) -> tuple[Int[Tensor, "unit pos"], Bool[Tensor, "unit pos"]]:
    if isinstance(prompts, Tensor):
        return _checked(model, prompts[None] if prompts.ndim == 1 else prompts, mask)
    if mask is not None:
        raise HookbookError("A mask belongs to token ids; texts are padded here, so leave `mask` out.")
    texts = [prompts] if isinstance(prompts, str) else list(prompts)
    if not texts:
        raise HookbookError("There are no prompts to patch.")
    ids = [model.to_tokens(text, prepend_bos=prepend_bos)[0] for text in texts]
    lengths = torch.tensor([len(one) for one in ids])
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    return padded, torch.arange(padded.shape[1]) < lengths[:, None]


def _checked(model: TransformerBridge, ids: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    ids = ids.to(model.cfg.device)
    if ids.ndim != 2 or ids.is_floating_point() or not ids.numel():
        raise HookbookError(f"Prompts are texts or token ids [prompt, position], not a tensor of {tuple(ids.shape)}.")
    if mask is None:
        refuse_hidden_padding(model, ids)
        return ids, torch.ones(ids.shape, dtype=torch.bool)
    mask = mask.bool().cpu()
    if mask.shape != ids.shape:
        raise HookbookError(f"The mask has the shape {tuple(mask.shape)} and the tokens {tuple(ids.shape)}.")
    starts = mask.int().diff(dim=1, prepend=torch.zeros(len(mask), 1, dtype=torch.int)).eq(1).sum(1)
    if not starts.eq(1).all():
        raise HookbookError("The mask must be true on one unbroken run of positions in every prompt.")
    return ids, mask
