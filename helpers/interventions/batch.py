"""A few prompts of a sweep with what both ways need: their activations, the patches, and what those change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from helpers.errors import HookbookError
from helpers.interventions import plain
from helpers.interventions.prompts import Pair
from helpers.interventions.sites import Grid

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge


Patch = Literal["other", "mean", "zero", "resample"]

# Runs of the same tokens in other batches differ in the last bits: below this many units in the last place of the
# largest activation of a layer, a patch changes nothing.
_ROUNDING = 32


@dataclass(eq=False)
class Batch:
    """Some prompts of a sweep.

    Attributes:
        grid: the whole sweep's grid.
        units: which of the sweep's prompts these are.
        tokens, mask, reads: of the run that is patched, as in `prompts.Pair` and `Metric.reads`.
        base: the run's activations by hook name.
        new: the activations to patch in, by layer.
        logits: the run's logits, of all positions.
        source_logits: those of the run that patches come from, where it was made for these prompts.
        starts: the first position that a site changes, or the number of positions where it changes none.
        measured: the metric of the unpatched run by unit; of several metrics, those along a last axis.
        values: the metric by site, at first that of the unpatched run; filled in by one of the ways.
    """

    grid: Grid
    units: Int[Tensor, "unit"]
    tokens: Int[Tensor, "unit pos"]
    mask: Bool[Tensor, "unit pos"]
    reads: Int[Tensor, "unit read"]
    base: dict[str, Float[Tensor, "unit pos *site"]]
    new: dict[int, Float[Tensor, "unit pos *site"]]
    logits: Float[Tensor, "unit pos token"]
    source_logits: Float[Tensor, "unit pos token"] | None
    measured: Float[Tensor, "unit *metric"]
    starts: Int[Tensor, "layer place head unit"] = field(init=False)
    values: Float[Tensor, "layer place head unit *metric"] = field(init=False)

    def __post_init__(self) -> None:
        n_pos = self.mask.shape[1]
        changed = torch.stack([self._changed(layer) for layer in self.grid.layers])
        where = self.grid.places[:, self.units]
        columns = torch.arange(n_pos)
        first = []
        for heads in self.grid.heads:
            rows = changed[..., heads].any(-1) if heads else changed[..., 0]
            hit = rows[:, None] & where
            first.append(torch.where(hit, columns, n_pos).amin(-1))
        self.starts = torch.stack(first, dim=2)
        self.values = self.measured.expand(*self.grid.shape, *self.measured.shape).clone()

    def _changed(self, layer: int) -> Bool[Tensor, "unit pos head"]:
        old, new = self.base[self.grid.hook(layer)], self.new[layer]
        smallest = _ROUNDING * torch.finfo(old.dtype).eps * old.abs().amax()
        changed = (new - old).abs().amax(-1) > smallest
        return (changed if self.grid.heads[0] else changed[..., None]).cpu()


class Patches:
    """What is patched in: the activations of the other prompt, their mean over prompts, zero, or of another prompt.

    The mean is over the prompts of the source run that have a token at the position; resampling draws for each prompt
    another one of them, without fixed points.
    """

    def __init__(self, model: TransformerBridge, pair: Pair, grid: Grid, patch: Patch, seed: int, n_rows: int) -> None:
        self.model, self.pair, self.grid, self.patch = model, pair, grid, patch
        n_units = len(pair.source)
        self.order = torch.arange(n_units)
        if patch == "resample":
            self.order = _derangement(pair, seed)
        if patch == "mean":
            self.mean = self._mean(max(1, n_rows // pair.mask.shape[1]))

    def of(
        self, units: Int[Tensor, "unit"], base: dict[str, Tensor]
    ) -> tuple[dict[int, Float[Tensor, "unit pos *site"]], Float[Tensor, "unit pos token"] | None]:
        """The patches for these prompts by layer, shaped as the activations that they replace.

        With them the logits of the source run of these prompts, if that was needed.
        """
        names = {layer: self.grid.hook(layer) for layer in self.grid.layers}
        if self.patch == "zero":
            return {layer: torch.zeros_like(base[name]) for layer, name in names.items()}, None
        if self.patch == "mean":
            return {layer: self.mean[name].to(base[name]).expand_as(base[name]) for layer, name in names.items()}, None
        rows = self.order[units]
        logits, kept = plain.capture(self.model, self.pair.source[rows], self.pair.mask[rows], names.values())
        return {layer: kept[name] for layer, name in names.items()}, logits if self.patch == "other" else None

    def _mean(self, n_units: int) -> dict[str, Float[Tensor, "pos *site"]]:
        names = [self.grid.hook(layer) for layer in self.grid.layers]
        total: dict[str, Tensor] = {}
        for units in torch.arange(len(self.pair.source)).split(n_units):
            mask = self.pair.mask[units]
            _, kept = plain.capture(self.model, self.pair.source[units], mask, names)
            for name, value in kept.items():
                weights = mask.to(value).view(*mask.shape, *[1] * (value.ndim - 2))
                total[name] = total.get(name, 0) + (value * weights).sum(0, dtype=torch.float32)
        count = self.pair.mask.sum(0).clamp(min=1)
        return {name: value / count.to(value).view(-1, *[1] * (value.ndim - 1)) for name, value in total.items()}


def _derangement(pair: Pair, seed: int) -> Int[Tensor, "unit"]:
    """For each prompt another one: a random cycle through all of them."""
    n_units = len(pair.source)
    if n_units < 2:
        raise HookbookError("Resampling takes the activations of another prompt: give at least two.")
    if not (pair.mask == pair.mask[0]).all():
        raise HookbookError("Resampling exchanges prompts position by position: give prompts of the same length.")
    cycle = torch.randperm(n_units, generator=torch.Generator().manual_seed(seed))
    order = torch.empty_like(cycle)
    order[cycle] = cycle.roll(1)
    return order
