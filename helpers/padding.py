"""Padding that nobody named."""

from jaxtyping import Shaped
from torch import Tensor

from helpers.errors import HookbookError
from helpers.hooks import HookedModel


def refuse_hidden_padding(model: HookedModel, tokens: Shaped[Tensor, "prompt ..."]) -> None:
    """Refuse token ids that look padded, for those who were given no mask.

    Left padding then shifts every position, and right padding is taken for what the prompt says or read by a metric.
    One padding token in front may be the BOS, which some models use for both.

    Raises:
        HookbookError: a prompt begins or ends with the padding token.
    """
    tokenizer = getattr(model, "tokenizer", None)
    pad = getattr(tokenizer, "pad_token_id", None)
    if pad is None or tokens.is_floating_point() or tokens.ndim != 2 or tokens.shape[1] < 2:
        return
    is_pad = tokens == pad
    padded = is_pad[:, -1] | (is_pad[:, :2].all(1) if pad == tokenizer.bos_token_id else is_pad[:, 0])
    if padded.any():
        raise HookbookError(
            f"Prompt {int(padded.nonzero()[0])} begins or ends with the padding token: pass `mask`, true at tokens."
        )
