"""The shortcut: patched copies of a run start behind their patch and take only what it can change along.

A copy's residual stream is kept for the positions from the first changed one on. Copies patched in layer 0 go first;
in each layer those patched there join, so that every weight is read once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from helpers.hooks import foreign_hooks
from helpers.interventions import plain
from helpers.interventions.blocks import SUPPORTED, Blocks, NoShortcut, Surroundings, rotate, surroundings
from helpers.interventions.copies import Copies, Piece, bundles, kept, plan, waves
from helpers.interventions.resume import Resume, at, hooks, stage
from helpers.interventions.sites import Grid, hook_name
from helpers.metrics import Metric

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

    from helpers.interventions.batch import Batch

# Logits of a whole vocabulary at a time
_LOGITS = 256


def require(model: TransformerBridge) -> None:
    """Raise NoShortcut for a model that the engine does not compute: another architecture, or one with hooks on."""
    architecture = getattr(model.cfg, "architecture", None)
    if architecture not in SUPPORTED:
        raise NoShortcut(f"the blocks of {architecture or 'this model'} are not known")
    for name, module in model.named_modules():
        if module.has_hooks("fwd") if isinstance(module, HookPoint) else foreign_hooks(module):
            raise NoShortcut(f"there are hooks on the model, the first at {name}")


class Shortcut:
    """Fills in the values of a batch of prompts from the activations of their unpatched run."""

    def __init__(self, model: TransformerBridge, metric: Metric, memory_mb: int) -> None:
        require(model)
        self.model, self.metric = model, metric
        self.blocks = Blocks(model)
        self.width = model.cfg.d_model
        self.max_rows = memory_mb * 2**20 // (self.width * next(model.parameters()).element_size())
        self.around: dict[int, Surroundings] = {}
        self.checked = False

    def capture(
        self, grid: Grid, tokens: Int[Tensor, "unit pos"], mask: Bool[Tensor, "unit pos"]
    ) -> tuple[Float[Tensor, "unit pos token"], dict[str, Tensor]]:
        """Logits and activations of the unpatched run."""
        names = dict.fromkeys([*map(grid.hook, grid.layers), *hooks(self.blocks, grid.site)])
        with surroundings(self.model) as self.around:
            return plain.capture(self.model, tokens, mask, names)

    def run(self, batch: Batch, advance: Callable[[float], object]) -> None:
        """Fill in the values of the sites that change something.

        Raises:
            NoShortcut: the engine does not reproduce this model's unpatched run.
        """
        self.batch = batch
        self.past = [self._past(layer) for layer in range(self.blocks.n_layers)]
        if not self.checked:
            self._check()
        for columns in waves(batch, self.max_rows):
            copies = plan(batch, columns, self.blocks.n_layers, self.width)
            self._forward(copies, advance)
            self._measure(copies)

    def _past(self, layer: int) -> tuple[Tensor, Tensor]:
        """Rotated keys, and values, of the unpatched run."""
        around = self.around[layer]
        k, v = (self.batch.base[hook_name(name, layer)] for name in ("k", "v"))
        if around.cos is None:
            return k, v
        return torch.stack([rotate(k[unit], *at(around, unit)[:2]) for unit in range(len(k))]), v

    def _check(self) -> None:
        """Send the unpatched run itself through the engine, whole, and compare its logits."""
        batch, copies = self.batch, []
        first = batch.mask.int().argmax(1).tolist()
        for unit, start in enumerate(first):
            rows = slice(start, int(batch.reads[unit].max()) + 1)
            stream = batch.base[hook_name("resid_pre", 0)][unit, rows][None].clone()
            joined = [1] * (self.blocks.n_layers + 1)
            sites = torch.empty(0, 3, dtype=torch.long)
            copies.append(Copies(unit, rows, kept(batch.reads[unit], rows), sites, joined, stream))
        self._forward(copies, lambda _: None)
        for one in copies:
            expected = batch.logits[one.unit, one.keep + one.rows.start].float()
            error = (self.blocks.logits(one.stream[0]) - expected).abs().max() / expected.abs().max()
            tolerance = 2e-4 if batch.logits.dtype == torch.float32 else 5e-2
            if not error < tolerance:
                raise NoShortcut(f"its logits came out differently by {error:.1e} of the largest")
        self.checked = True

    def _forward(self, copies: list[Copies], advance: Callable[[float], object]) -> None:
        """Take the copies through all layers; afterwards their streams hold the rows to be read."""
        joins = stage(self.batch.grid.site, self.blocks.parallel)
        share = sum(len(one.sites) for one in copies) / self.blocks.n_layers
        for layer in range(self.blocks.n_layers):
            last = layer == self.blocks.n_layers - 1
            attending = layer + 1 if joins == "before" else layer
            reading = layer if joins == "after" else layer + 1
            if joins == "before":
                self._join(copies, layer, whole=True)
            pieces = [(one, one.joined[attending]) for one in copies]
            for bundle in bundles(pieces):
                self._attention(layer, bundle, last)
            if last:
                for one in copies:
                    one.stream = one.stream[:, : len(one.keep)]
            if joins == "between":
                self._join(copies, layer, whole=not last)
            if not self.blocks.parallel:
                for bundle in bundles([(one, one.joined[reading]) for one in copies]):
                    rows = torch.cat([one.stream[part].flatten(0, 1) for one, part in bundle])
                    self._write(bundle, rows + self.blocks.mlp_out(layer, rows))
            if joins == "after":
                self._join(copies, layer, whole=not last)
            advance(share)

    def _join(self, copies: list[Copies], layer: int, whole: bool) -> None:
        for one in copies:
            part = slice(one.joined[layer], one.joined[layer + 1])
            if part.start == part.stop or not len(one.sites):
                continue
            _, places, heads = one.sites[part].T
            masks = self.batch.grid.places[places, self.batch.units[one.unit]][:, one.rows].to(one.stream.device)
            resume = Resume(self.blocks, self.batch, layer, one.unit, one.rows, self.around[layer])
            rows = resume.stream(masks, heads)
            one.stream[part] = rows if whole else rows[:, one.keep]

    def _attention(self, layer: int, bundle: list[Piece], last: bool) -> None:
        """Attention of some copies; with it the MLP where both read the same stream, and in the last layer only of the
        rows that are read, which then come first."""
        block = self.model.blocks[layer]
        stream = torch.cat([one.stream[part].flatten(0, 1) for one, part in bundle])
        normed = block.ln1(stream)
        sizes = [(part.stop - part.start, one.stream.shape[1]) for one, part in bundle]
        k, v = (self._split(self.blocks.project(layer, normed, name), sizes) for name in "kv")
        if last:
            index = torch.arange(len(stream), device=stream.device)
            read = torch.cat([
                rows[:, one.keep].flatten() for (one, _), rows in zip(bundle, self._split(index, sizes), strict=True)
            ])  # fmt: skip
            stream, normed = stream[read], normed[read]
            sizes = [(n_copies, len(one.keep)) for (one, _), (n_copies, _) in zip(bundle, sizes, strict=True)]
        q = self._split(self.blocks.project(layer, normed, "q"), sizes)
        z = [self._attend(layer, one, last, *parts) for (one, _), *parts in zip(bundle, q, k, v, strict=True)]
        out = stream + self.blocks.attn_out(layer, torch.cat([part.flatten(0, 1).flatten(1) for part in z]))
        if self.blocks.parallel:
            out = out + self.blocks.mlp_out(layer, stream)
        self._write(bundle, out, sizes)

    def _attend(self, layer: int, one: Copies, last: bool, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        cos, sin, allowed = at(self.around[layer], one.unit)
        rows = torch.arange(one.rows.start, one.rows.stop, device=q.device)
        queries = rows[one.keep] if last else rows
        if cos is not None:
            q, k = rotate(q, cos[queries], sin[queries]), rotate(k, cos[rows], sin[rows])
        past_k, past_v = (part[one.unit, : one.rows.start] for part in self.past[layer])
        return self.blocks.attend(layer, q, k, v, past_k, past_v, allowed[queries, : one.rows.stop])

    @staticmethod
    def _split(rows: Float[Tensor, "row *rest"], sizes: list[tuple[int, int]]) -> list[Tensor]:
        parts = rows.split([n_copies * n_rows for n_copies, n_rows in sizes])
        return [part.unflatten(0, size) for part, size in zip(parts, sizes, strict=True)]

    def _write(self, bundle: list[Piece], rows: Tensor, sizes: list[tuple[int, int]] | None = None) -> None:
        sizes = sizes or [(part.stop - part.start, one.stream.shape[1]) for one, part in bundle]
        for (one, part), new in zip(bundle, self._split(rows, sizes), strict=True):
            one.stream[part, : new.shape[1]] = new

    def _measure(self, copies: list[Copies]) -> None:
        if self.metric.position is None:
            self._measure_whole(copies)
            return
        batch = self.batch
        final = batch.base[hook_name("resid_post", self.blocks.n_layers - 1)]
        for one in copies:
            units = batch.units[[one.unit]]
            reads = batch.reads[one.unit]
            tokens = self.metric.token_ids(units)
            fixed = reads < one.rows.start
            place = torch.searchsorted(one.keep + one.rows.start, reads).clamp(max=len(one.keep) - 1)
            for part, sites in zip(one.stream.split(_LOGITS), one.sites.split(_LOGITS), strict=True):
                rows = torch.where(fixed[:, None].to(final.device), final[one.unit, reads], part[:, place])
                logits = self.blocks.logits(rows, None if tokens is None else tokens[0].to(final.device))
                batch.values[(*sites.T, one.unit)] = self.metric.reduce(logits[:, None], units)[:, 0].cpu()

    def _measure_whole(self, copies: list[Copies]) -> None:
        """The metric of all logits of all prompts, site by site."""
        batch = self.batch
        by_site: dict[tuple[int, ...], list[tuple[Copies, int]]] = {}
        for one in copies:
            for index, site in enumerate(one.sites.tolist()):
                by_site.setdefault(tuple(site), []).append((one, index))
        for site, changed in by_site.items():
            logits = batch.logits.float().clone()
            for one, index in changed:
                logits[one.unit, one.rows] = self.blocks.logits(one.stream[index])
            values = self.metric.reduce(logits[None], batch.units)[0].cpu()
            units = [one.unit for one, _ in changed]
            batch.values[(*site, units)] = values[units]
