"""Where a patched run departs from the unpatched one: the residual stream right behind the patch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from helpers.interventions.blocks import Blocks, Surroundings, rotate
from helpers.interventions.sites import HEAD_SITES, Site, hook_name

if TYPE_CHECKING:
    from helpers.interventions.batch import Batch

# Before the block, between its attention and its MLP, or after it
Stage = Literal["before", "between", "after"]


def stage(site: Site, parallel: bool) -> Stage:
    """Where the stream of a run patched at this site goes on."""
    if site == "resid_pre":
        return "before"
    return "after" if site == "mlp_out" or parallel else "between"


def hooks(blocks: Blocks, site: Site) -> Iterator[str]:
    """The hooks of the unpatched run that a patched one starts from or attends to."""
    for layer in range(blocks.n_layers):
        yield from (hook_name(part, layer) for part in ("resid_pre", "k", "v"))
        if stage(site, blocks.parallel) == "between":
            yield hook_name("resid_mid", layer)
        if site in HEAD_SITES:
            yield from (hook_name(part, layer) for part in ("q", "z"))
            if blocks.post_norms:
                yield from (f"blocks.{layer}.attn.hook_out", hook_name("attn_out", layer))
    yield f"blocks.{blocks.n_layers - 1}.hook_resid_post"


class Resume:
    """The rows of the residual stream with which patched runs of one layer and prompt go on."""

    def __init__(
        self, blocks: Blocks, batch: Batch, layer: int, unit: int, rows: slice, surroundings: Surroundings
    ) -> None:
        self.blocks, self.batch, self.layer, self.unit, self.rows = blocks, batch, layer, unit, rows
        self.around = surroundings
        self.site = batch.grid.site
        self.old = self._base(batch.grid.hook(layer))
        self.new = batch.new[layer][unit, rows]

    def stream(self, places: Bool[Tensor, "copy pos"], heads: Int[Tensor, "copy"]) -> Float[Tensor, "copy pos d_model"]:
        """One copy for each place, with the set of heads of that index, where the site has any."""
        if self.site in HEAD_SITES:
            out = self._departure().repeat(len(places), 1, 1)
            for index in heads.unique().tolist():
                ours = (heads == index).nonzero()[:, 0]
                out[ours] += self._through_heads(places[ours], self.batch.grid.heads[index])
            return out
        where = places[..., None]
        if self.site in ("resid_pre", "resid_mid"):
            return torch.where(where, self.new, self.old)
        return self._departure() + torch.where(where, self.new - self.old, 0)

    def _base(self, name: str) -> Tensor:
        return self.batch.base[name][self.unit, self.rows]

    def _departure(self) -> Float[Tensor, "pos d_model"]:
        if stage(self.site, self.blocks.parallel) == "between":
            return self._base(hook_name("resid_mid", self.layer))
        if self.layer + 1 < self.blocks.n_layers:
            return self._base(hook_name("resid_pre", self.layer + 1))
        return self._base(f"blocks.{self.layer}.hook_resid_post")

    def _through_heads(self, places: Bool[Tensor, "copy pos"], heads: list[int]) -> Float[Tensor, "copy pos d_model"]:
        """How attention's output changes: the change of z through W_O of the heads concerned."""
        group = self.blocks.group
        queries = [head * group + i for head in heads for i in range(group)] if self.site in "kv" else heads
        z = self._base(hook_name("z", self.layer))[:, queries]
        if self.site == "z":
            change = torch.where(places[..., None, None], self.new[:, heads] - z, 0)
        else:
            change = self._attention(places, heads, queries) - z
        weights = self.blocks.output_weights(self.layer)[queries]
        out = change.flatten(2) @ weights.flatten(0, 1)
        if not self.blocks.post_norms:
            return out
        whole = self._base(f"blocks.{self.layer}.attn.hook_out") + out
        return self.blocks.after_attention(self.layer, whole) - self._base(hook_name("attn_out", self.layer))

    def _attention(
        self, places: Bool[Tensor, "copy pos"], heads: list[int], queries: list[int]
    ) -> Float[Tensor, "copy pos head d_head"]:
        """Z of these query heads after patching q, k or v at these places."""
        layer, rows = self.layer, self.rows
        group = self.blocks.group
        # queries that do not belong to whole groups get their own copy of the keys and values
        kv = heads if self.site in "kv" else [head // group for head in queries]
        past = slice(0, rows.stop)
        parts = {
            "q": self._base(hook_name("q", layer))[:, queries],
            "k": self.batch.base[hook_name("k", layer)][self.unit, past][:, kv],
            "v": self.batch.base[hook_name("v", layer)][self.unit, past][:, kv],
        }
        own = {name: part[-len(self.old) :].expand(len(places), -1, -1, -1) for name, part in parts.items()}
        own[self.site] = torch.where(places[..., None, None], self.new[:, heads], self.old[:, heads])
        cos, sin, allowed = at(self.around, self.unit)
        angles = (None, None) if cos is None else (cos[past], sin[past])
        here = (None, None) if cos is None else (cos[rows], sin[rows])
        return self.blocks.attend(
            layer,
            rotate(own["q"], *here),
            rotate(own["k"], *here),
            own["v"],
            rotate(parts["k"], *angles)[: rows.start],
            parts["v"][: rows.start],
            allowed[rows, past],
        )


def at(around: Surroundings, unit: int) -> tuple[Tensor | None, Tensor | None, Bool[Tensor, "query key"]]:
    """The rotary angles and the mask of one prompt."""

    def of(rows: Tensor | None) -> Tensor | None:
        return None if rows is None else rows[unit if len(rows) > 1 else 0]

    return of(around.cos), of(around.sin), of(around.allowed)
