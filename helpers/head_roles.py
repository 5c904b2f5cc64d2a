"""What roles attention heads play: previous token, duplicate token, induction, mover, suppression.

Three roles are read off attention on random tokens that come twice, where nothing but position and repetition can be
attended to. Two are read off what a head writes: straight into the logit of the token that it attends to, upwards for a
mover, downwards for suppression. The prompt is the last axis of all scores, so that heads chosen on some prompts can be
tested on others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformer_lens import head_detector

from helpers.errors import HookbookError
from helpers.hooks import attached, find_targets
from helpers.network_digest import device_of
from helpers.padding import refuse_hidden_padding

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

    from helpers.counterparts import Counterparts

Scores = Float[np.ndarray, "layer head prompt"]

SHORTEST = 4  # tokens before they come again; of fewer, the token before and the one after the first copy may be one
_MARKS = {
    "previous token": head_detector.get_previous_token_head_detection_pattern,
    "duplicate token": head_detector.get_duplicate_token_head_detection_pattern,
    "induction": head_detector.get_induction_head_detection_pattern,
}
ROLES = (*_MARKS, "mover", "suppression")


@dataclass(frozen=True, eq=False)
class DirectLogits:
    """What every head does with the sources that it was asked about.

    Attributes:
        attention: the share of the head's attention that lies on them, 0 to 1.
        logit: what it adds through them, by the direct path, to a token's logit less the mean over the vocabulary.
    """

    attention: Float[np.ndarray, "layer head prompt"]
    logit: Float[np.ndarray, "layer head prompt"]


def head_roles(
    model: TransformerBridge,
    prompts: Counterparts,
    *,
    source: str = "io",
    query: str = "end",
    n_random: int = 16,
    length: int = 24,
    prepend_bos: bool = True,
    seed: int = 0,
    batch_size: int = 8,
) -> dict[str, Float[np.ndarray, "layer head prompt"]]:
    """How much every head plays each of ROLES: `attention_roles`, and `direct_logits` between two places of prompts.

    A mover's score is the logit that the head adds to the token at `source` by attending to it from `query`; the score
    of suppression is the same with the other sign.

    Args:
        model: with folded weights.
        prompts: such as those of `helpers.ioi`; their clean version is read.
        source: the role of the token that is attended to.
        query: the role of the token that attends.
        n_random: prompts of random tokens.
        length: random tokens before they come again.
        prepend_bos: start the random prompts with the BOS token.
        seed: of the random tokens.
        batch_size: prompts in one forward pass.

    Returns:
        By role, attention (0 to 1) by random prompt or logits by prompt.

    Raises:
        HookbookError: prompts without such a role, or as for `attention_roles` and `direct_logits`.
    """
    if absent := [role for role in (query, source) if role not in prompts.roles]:
        raise HookbookError(f"These prompts have no role {absent[0]!r}; they have {', '.join(prompts.roles)}.")
    direct = direct_logits(
        model,
        prompts.tokens["clean"],
        query=prompts.roles[query],
        source=prompts.roles[source],
        mask=prompts.mask,
        batch_size=batch_size,
    )
    random = attention_roles(
        model, n_prompts=n_random, length=length, prepend_bos=prepend_bos, seed=seed, batch_size=batch_size
    )
    return {**random, "mover": direct.logit, "suppression": -direct.logit}


def attention_roles(
    model: TransformerBridge,
    *,
    n_prompts: int = 16,
    length: int = 24,
    prepend_bos: bool = True,
    seed: int = 0,
    batch_size: int = 8,
) -> dict[str, Float[np.ndarray, "layer head prompt"]]:
    """Attention to the token before, to the first copy of a token and to what followed it, on `repeated_tokens`.

    Each score is the mean, over the positions that have such a token, of the attention that goes there: 1 for a head
    that attends nowhere else. Duplicates and what follows them exist in the second half only; the first token of the
    prompt, BOS or not, on which heads rest that have nothing to do, is never counted as attended to.

    Source: prefix matching of Olsson et al., In-context Learning and Induction Heads, 2022 (2209.11895), for induction;
    Wang et al., ICLR 2023 (2211.00593), for the other two. Where to look is said by `transformer_lens.head_detector`;
    its `detect_head` itself takes texts only, averages over them, and divides by all attention, so that a perfect
    induction head gets less than one half.

    Args:
        model: any bridge; runs without gradients.
        n_prompts: prompts, each with other tokens.
        length: random tokens before they come again.
        prepend_bos: start every prompt with the BOS token.
        seed: of the tokens.
        batch_size: prompts in one forward pass.

    Returns:
        By role (previous token, duplicate token, induction) the attention of every head on every prompt, 0 to 1.

    Raises:
        HookbookError: as for `repeated_tokens`.
    """
    tokens = repeated_tokens(model, n_prompts=n_prompts, length=length, prepend_bos=prepend_bos, seed=seed)
    marks = _marks(tokens[:1])
    scores = {role: _empty(model, len(tokens)) for role in marks}
    for rows in _batches(len(tokens), batch_size):

        def read(layer: int, pattern: Tensor, rows: slice = rows) -> None:
            for role, where in marks.items():
                there = (pattern.float() * where.to(pattern.device)).sum((-1, -2)) / where.any(-1).sum()
                scores[role][layer][:, rows] = there.T.cpu().numpy()

        _run(model, tokens[rows], None, {"attn.hook_pattern": read})
    return scores


def uniform_attention(length: int, prepend_bos: bool = True) -> dict[str, float]:
    """What `attention_roles` gives a head that attends to all positions alike: chance.

    Args:
        length: random tokens before they come again.
        prepend_bos: whether BOS stands before them.
    """
    ids = torch.arange(1, length + 1).repeat(2)[None]
    marks = _marks(torch.cat([torch.zeros(1, 1, dtype=torch.long), ids], 1) if prepend_bos else ids)
    share = 1 / torch.arange(1, 1 + 2 * length + prepend_bos)
    return {role: float((share[:, None] * where).sum() / where.any(-1).sum()) for role, where in marks.items()}


def repeated_tokens(
    model: TransformerBridge, *, n_prompts: int = 16, length: int = 24, prepend_bos: bool = True, seed: int = 0
) -> Int[Tensor, "prompt pos"]:
    """Random tokens that come twice in the same order; none of them is special, and none comes twice in one half.

    Args:
        model: whose vocabulary the tokens are from.
        n_prompts: prompts.
        length: tokens before they come again, 4 or more.
        prepend_bos: start every prompt with the BOS token.
        seed: of the tokens.

    Raises:
        HookbookError: too few tokens or too many for the vocabulary or the model's context, or no BOS token.
    """
    tokenizer = model.tokenizer
    special = set(getattr(tokenizer, "all_special_ids", None) or [])
    size = min(model.cfg.d_vocab, model.cfg.d_vocab if tokenizer is None else len(tokenizer))
    usable = np.setdiff1d(np.arange(size), list(special))
    longest = min(len(usable), (model.cfg.n_ctx - prepend_bos) // 2)
    if n_prompts < 1 or not SHORTEST <= length <= longest:
        raise HookbookError(
            f"Prompts of {length} tokens that come twice, {n_prompts} of them: this model takes at least one prompt "
            f"of {SHORTEST} to {longest} tokens."
        )
    rng = np.random.default_rng([seed, 0])
    half = torch.tensor(np.stack([rng.choice(usable, length, replace=False) for _ in range(n_prompts)]))
    bos = getattr(tokenizer, "bos_token_id", None)
    if prepend_bos and bos is None:
        raise HookbookError("This model's tokenizer has no BOS token: pass prepend_bos=False.")
    start = torch.full((n_prompts, 1), bos) if prepend_bos else half[:, :0]
    return torch.cat([start, half, half], 1)


def direct_logits(
    model: TransformerBridge,
    tokens: Int[Tensor, "prompt pos"],
    *,
    query: Int[Tensor, "prompt"] | None = None,
    source: Int[Tensor, "prompt"] | Bool[Tensor, "prompt pos"] | None = None,
    token: Int[Tensor, "prompt"] | None = None,
    mask: Bool[Tensor, "prompt pos"] | None = None,
    batch_size: int = 8,
) -> DirectLogits:
    """What every head, by attending to some tokens, writes straight into the logits of these very tokens.

    From source S a head adds to the residual stream at query Q its attention to S times v_S W_O. Divided by the scale
    of the final norm as it is and read by the unembedding of a token, this is the direct logit attribution of that head
    and source: over all sources it sums up to what `transformer_lens.tools.analysis.direct_logit_attribution` gives for
    the head, which splits no sources. What later layers make of it is not in it, nor is the attention's output bias.

    Positive where an attended token is copied (movers; Wang et al., ICLR 2023, 2211.00593), negative where it is
    suppressed (McDougall et al., 2023, 2310.04625).

    Args:
        model: with folded weights; runs without gradients.
        tokens: prompts.
        query: the column of each prompt that attends; by default all that have a source, and scores are their means.
        source: the column of each prompt that is attended to, or all columns that count, as their sum; by default what
            comes before the query, without the first token of the prompt.
        token: whose logit is read, one a prompt; by default the source's own.
        mask: true at tokens, false at padding, left or right.
        batch_size: prompts in one forward pass.

    Raises:
        HookbookError: weights that are not folded, a model that does more to a head's output than the final norm does,
            columns that are padding or come after the query, prompts that look padded without a mask.
    """
    _require_direct_path(model)
    tokens = torch.as_tensor(tokens).long().cpu()
    if mask is None:
        refuse_hidden_padding(model, tokens)
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else torch.as_tensor(mask).bool().cpu()
    pairs = _pairs(real, query, source)
    found = DirectLogits(_empty(model, len(tokens)), _empty(model, len(tokens)))
    for rows in _batches(len(tokens), batch_size):
        read = _DirectReader(model, tokens[rows] if token is None else token.cpu()[rows, None], pairs[rows])
        _run(model, tokens[rows], real[rows], read.hooks)
        for kept, values in zip((found.attention, found.logit), read.finished(), strict=True):
            kept[:, :, rows] = values.cpu().numpy()
    return found


def table(roles: Mapping[str, Float[np.ndarray, "layer head prompt"]], n: int = 3) -> pd.DataFrame:
    """The heads with the highest mean score in each role, highest first.

    Args:
        roles: scores by role.
        n: heads a role.

    Returns:
        Columns role, rank (from 1), layer, head, score, and spread (standard deviation over prompts).
    """
    rows = []
    for role, scores in roles.items():
        mean, spread = scores.mean(-1), scores.std(-1)
        best = np.argsort(-mean, axis=None, kind="stable")[:n]
        for rank, (layer, head) in enumerate(zip(*np.unravel_index(best, mean.shape), strict=True), start=1):
            rows.append((role, rank, int(layer), int(head), mean[layer, head], spread[layer, head]))
    return pd.DataFrame(rows, columns=["role", "rank", "layer", "head", "score", "spread"])


class _DirectReader:
    """Reads, layer by layer, what pairs of query and source carry; divides by the norm's scale when that is known."""

    def __init__(self, model: TransformerBridge, token: Int[Tensor, "prompt #pos"], pairs: Bool[Tensor, "prompt q s"]):
        self.model, self.pairs = model, pairs.to(device_of(model))
        unembed = model.W_U.float()
        columns = unembed.T[token.to(unembed.device)]
        self.direction = columns - unembed.mean(1)
        self.copied: dict[int, Float[Tensor, "prompt head s"]] = {}
        self.attention: dict[int, Float[Tensor, "prompt head q"]] = {}
        self.written: dict[int, Float[Tensor, "prompt head q"]] = {}
        self.scale: Float[Tensor, "prompt q"] | None = None
        self.hooks = {
            "attn.hook_v": self._value,
            "attn.hook_pattern": self._pattern,
            "ln_final.hook_scale": self._scale,
        }

    def _value(self, layer: int, v: Float[Tensor, "prompt s kv_head e"]) -> None:
        weight = self.model.blocks[layer].attn.W_O.float()
        v = v.float().repeat_interleave(len(weight) // v.shape[2], dim=2)
        through = torch.einsum("hed,npd->nphe", weight, self.direction)
        self.copied[layer] = (v * through).sum(-1).transpose(1, 2)

    def _pattern(self, layer: int, pattern: Float[Tensor, "prompt head q s"]) -> None:
        seen = pattern.float() * self.pairs[:, None]
        self.attention[layer] = seen.sum(-1)
        self.written[layer] = (seen * self.copied.pop(layer)[:, :, None]).sum(-1)

    def _scale(self, _: int, scale: Float[Tensor, "prompt q 1"]) -> None:
        self.scale = scale.float()[..., 0]

    def finished(self) -> tuple[Float[Tensor, "layer head prompt"], Float[Tensor, "layer head prompt"]]:
        """Attention and logits, as means over the queries of a prompt."""
        n_queries = self.pairs.any(-1).sum(-1)
        attention, written = (torch.stack([of[layer] for layer in sorted(of)]) for of in (self.attention, self.written))
        logit = written / self.scale[:, None]
        return tuple(values.sum(-1).transpose(1, 2) / n_queries for values in (attention, logit))


def _pairs(
    real: Bool[Tensor, "prompt pos"],
    query: Int[Tensor, "prompt"] | None,
    source: Int[Tensor, "prompt"] | Bool[Tensor, "prompt pos"] | None,
) -> Bool[Tensor, "prompt q s"]:
    """Which query looks at which source."""
    n, size = real.shape
    before = torch.ones(size, size, dtype=torch.bool).tril(0 if source is not None else -1)
    pairs = before & real[:, :, None] & real[:, None, :]
    if query is not None:
        pairs &= _at(query, n, size, "query")[:, :, None]
    if source is None:
        first = torch.arange(size) == real.int().argmax(1)[:, None]
        pairs &= ~first[:, None]
    else:
        pairs &= _at(source, n, size, "source")[:, None]
    if not (some := pairs.any((1, 2))).all():
        raise HookbookError(
            f"In prompt {int((~some).nonzero()[0])} no source comes before the query: both are columns of its own "
            "tokens, the source not after the query."
        )
    return pairs


def _at(where: Tensor, n: int, size: int, what: str) -> Bool[Tensor, "prompt pos"]:
    where = torch.as_tensor(where).cpu()
    if where.dtype == torch.bool and where.shape == (n, size):
        return where
    if where.is_floating_point() or where.dtype == torch.bool or where.shape != (n,):
        raise HookbookError(f"{what}: give one column for each of the {n} prompts, not {tuple(where.shape)}.")
    if ((where < 0) | (where >= size)).any():
        raise HookbookError(f"{what}: columns are 0 to {size - 1}.")
    return torch.arange(size) == where[:, None]


def _marks(tokens: Int[Tensor, "1 pos"]) -> dict[str, Bool[Tensor, "q s"]]:
    """By role, which query should attend to which source; the same for all `repeated_tokens` of one length."""
    marks = {role: pattern(tokens).bool() for role, pattern in _MARKS.items()}
    for where in marks.values():
        where[:, 0] = False
    return marks


def _empty(model: TransformerBridge, n_prompts: int) -> Scores:
    return np.zeros((model.cfg.n_layers, model.cfg.n_heads, n_prompts), np.float32)


def _batches(n: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, n, size))


def _run(
    model: TransformerBridge,
    tokens: Int[Tensor, "prompt pos"],
    real: Bool[Tensor, "prompt pos"] | None,
    readers: Mapping[str, Callable[[int, Tensor], None]],
) -> None:
    """One forward pass in which readers see, layer by layer, what they ask for; nothing else is kept."""
    hooks = []
    for part, read in readers.items():
        in_blocks = part.startswith("attn.")
        names = [f"blocks.{layer}.{part}" for layer in range(model.cfg.n_layers)] if in_blocks else [part]
        for layer, target in enumerate(find_targets(model, names)):
            hooks.append((target.point, _observer(read, layer)))
    options = {} if real is None or real.all() else {"attention_mask": real.long().to(device_of(model))}
    with torch.no_grad(), attached(hooks):
        model(tokens.to(device_of(model)), return_type=None, **options)


def _observer(read: Callable[[int, Tensor], None], layer: int) -> Callable:
    def observe(value: Tensor, *, hook: object) -> None:
        read(layer, value.detach())

    return observe


def _require_direct_path(model: TransformerBridge) -> None:
    """Refuse where head output, final scale and unembedding are not all there is between a head and a logit."""
    weight = getattr(model.ln_final, "weight", None)
    neutral = 0 if getattr(model.cfg, "rmsnorm_uses_offset", False) else 1
    if not getattr(model, "compatibility_mode", False) or (weight is not None and (weight != neutral).any()):
        raise HookbookError('Direct logits need folded weights: load the model with processing="folded".')
    if hasattr(model.blocks[0], "ln1_post"):
        raise HookbookError("This model normalises what attention adds: heads have no direct logits of their own.")
    some = torch.tensor([[-50.0, 50.0]])
    if not torch.equal(model.adapter.apply_output_logits_transform(some.clone()), some):
        raise HookbookError("This model bends its logits after the unembedding: heads have no direct logits.")
