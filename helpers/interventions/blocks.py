"""The parts of a transformer block, called one by one on whatever rows need them.

Norms, projections and MLP are the bridge's own modules, so folded and raw weights are used alike. Attention is computed
here: its prefix is the same for all patched copies of a prompt and is read once for them all, not once per copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

# Architectures whose blocks are put together as below, each tested against the full forward pass
SUPPORTED = (
    "GPT2LMHeadModel",
    "GPTNeoXForCausalLM",
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Gemma2ForCausalLM",
)


class NoShortcut(Exception):
    """Why a sweep must go the plain way; a clause."""


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What attention of a layer depends on beside its input: rotary angles, and who may look at whom."""

    cos: Float[Tensor, "unit pos rotary"] | None
    sin: Float[Tensor, "unit pos rotary"] | None
    allowed: Bool[Tensor, "unit query key"]


class Blocks:
    """The blocks of a bridge, taken apart; `layer` is an index throughout."""

    def __init__(self, model: TransformerBridge) -> None:
        self.model = model
        self.cfg = model.cfg
        self.n_layers, self.n_heads, self.d_head = self.cfg.n_layers, self.cfg.n_heads, self.cfg.d_head
        self.n_kv_heads = getattr(self.cfg, "n_key_value_heads", None) or self.n_heads
        self.group = self.n_heads // self.n_kv_heads
        self.parallel = bool(getattr(self.cfg, "parallel_attn_mlp", False))
        self.post_norms = "ln1_post" in model.blocks[0].submodules

    def project(self, layer: int, rows: Float[Tensor, "row d_model"], name: str) -> Float[Tensor, "row head d_head"]:
        """Queries, keys or values (`name` is q, k or v) of normalised rows, before any rotation."""
        return getattr(self.model.blocks[layer].attn, name)(rows).unflatten(-1, (-1, self.d_head))

    def attn_out(self, layer: int, z: Float[Tensor, "row head_x_d_head"]) -> Float[Tensor, "row d_model"]:
        """What attention adds to the residual stream."""
        return self.after_attention(layer, self.model.blocks[layer].attn.o(z))

    def after_attention(self, layer: int, out: Float[Tensor, "*row d_model"]) -> Float[Tensor, "*row d_model"]:
        """The norm that some models put behind attention."""
        return self.model.blocks[layer].ln1_post(out) if self.post_norms else out

    def mlp_out(self, layer: int, stream: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
        """What the MLP adds to the residual stream."""
        block = self.model.blocks[layer]
        out = block.mlp(block.ln2(stream))
        return block.ln2_post(out) if self.post_norms else out

    def output_weights(self, layer: int) -> Float[Tensor, "head d_head d_model"]:
        """W_O, head by head."""
        projection = self.model.blocks[layer].attn.o.original_component
        weight = projection.weight.T if isinstance(projection, nn.Linear) else projection.weight
        return weight.unflatten(0, (self.n_heads, self.d_head))

    def attend(
        self,
        layer: int,
        q: Float[Tensor, "copy query head d_head"],
        k: Float[Tensor, "copy own kv_head d_head"],
        v: Float[Tensor, "copy own kv_head d_head"],
        past_k: Float[Tensor, "past kv_head d_head"],
        past_v: Float[Tensor, "past kv_head d_head"],
        allowed: Bool[Tensor, "query past_and_own"],
    ) -> Float[Tensor, "copy query head d_head"]:
        """Z of rotated queries over a prefix that all copies share and the keys and values of their own."""
        attention = self.model.blocks[layer].attn.original_component
        (n_copies, n_queries, n_heads, d_head), n_groups, n_past = q.shape, k.shape[2], len(past_k)
        q = (
            q.reshape(n_copies, n_queries, n_groups, -1, d_head)
            .permute(2, 0, 3, 1, 4)
            .reshape(n_groups, n_copies, -1, d_head)
        )
        scores = q @ k.permute(2, 0, 3, 1)
        if n_past:
            past = q.reshape(n_groups, -1, d_head) @ past_k.permute(1, 2, 0)
            scores = torch.cat([past.reshape(*scores.shape[:3], n_past), scores], dim=-1)
        scores *= self._scale(layer, attention)
        softcap = getattr(attention, "attn_logit_softcapping", None)
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        by_query = scores.reshape(n_groups, n_copies, -1, n_queries, scores.shape[-1])
        pattern = by_query.masked_fill(~allowed, -torch.inf).softmax(-1, dtype=torch.float32).to(v.dtype)
        pattern = pattern.reshape(scores.shape)
        z = pattern[..., n_past:] @ v.permute(2, 0, 1, 3)
        if n_past:
            z += (pattern[..., :n_past].reshape(n_groups, -1, n_past) @ past_v.transpose(0, 1)).reshape(z.shape)
        z = z.reshape(n_groups, n_copies, -1, n_queries, d_head).permute(1, 3, 0, 2, 4)
        return z.reshape(n_copies, n_queries, n_heads, d_head)

    def _scale(self, layer: int, attention: Any) -> float:
        scale = self.d_head**-0.5
        if self.cfg.architecture == "GPT2LMHeadModel":
            return scale / (layer + 1) if getattr(self.cfg, "scale_attn_by_inverse_layer_idx", False) else scale
        return getattr(attention, "scaling", scale)

    def logits(self, stream: Float[Tensor, "row d_model"], tokens: Tensor | None = None) -> Float[Tensor, "row token"]:
        """Logits of rows of the last residual stream, for some tokens or the whole vocabulary."""
        rows, unembed = self.model.ln_final(stream), self.model.unembed
        if tokens is None:
            logits = unembed(rows)
        else:
            logits = rows @ unembed.W_U[:, tokens] + unembed.b_U[tokens]
        return self.model.adapter.apply_output_logits_transform(logits).float()


def rotate(x: Float[Tensor, "*copy pos head d_head"], cos: Tensor | None, sin: Tensor | None) -> Tensor:
    """Rotary positions of the leading dimensions of each head, halves against halves; cos and sin are [pos, rotary]."""
    if cos is None:
        return x
    turned, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    half = turned.shape[-1] // 2
    quarter = torch.cat([-turned[..., half:], turned[..., :half]], dim=-1)
    return torch.cat([turned * cos[:, None] + quarter * sin[:, None], rest], dim=-1)


@contextmanager
def surroundings(model: TransformerBridge) -> Iterator[dict[int, Surroundings]]:
    """Within it, a forward pass leaves what each layer's attention was called with: padding, windows, rotary angles.

    Taken from the model's own calls, it needs no knowledge of how the architecture makes them.
    """
    seen: dict[int, Surroundings] = {}
    made: dict[tuple[int, ...], Surroundings] = {}  # most layers share their masks and angles

    def listen(layer: int):
        def before(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
            hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
            cos, sin = kwargs.get("position_embeddings") or (None, None)
            mask = kwargs.get("attention_mask")
            key = tuple(map(id, (cos, sin, mask)))
            if key not in made:
                made[key] = Surroundings(cos, sin, _allowed(mask, hidden.shape[1], hidden.device))
            seen[layer] = made[key]

        return before

    with ExitStack() as stack:
        for layer, block in enumerate(model.blocks):
            handle = block.attn.register_forward_pre_hook(listen(layer), with_kwargs=True)
            stack.callback(handle.remove)
        yield seen


def _allowed(mask: Tensor | None, n_pos: int, device: torch.device) -> Bool[Tensor, "unit query key"]:
    if mask is None:
        return torch.ones(1, n_pos, n_pos, dtype=torch.bool, device=device).tril()
    if mask.ndim != 4 or mask.shape[1] != 1:
        raise NoShortcut("its attention masks differ between heads")
    mask = mask[:, 0, :, :n_pos]
    if mask.dtype == torch.bool:
        return mask
    if bool(((mask != 0) & (mask > -1e4)).any()):
        raise NoShortcut("its attention adds a bias to the scores")
    return mask == 0
