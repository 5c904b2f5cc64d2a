"""The plain way: a full forward pass for every site, with a hook that puts the patch in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from helpers.errors import HookbookError
from helpers.interventions.sites import hook_name
from helpers.metrics import Metric

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

    from helpers.interventions.batch import Batch
    from helpers.interventions.sites import Grid

Hook = tuple[str, Callable[..., Tensor | None]]


def forward(
    model: TransformerBridge, tokens: Int[Tensor, "unit pos"], mask: Bool[Tensor, "unit pos"], hooks: Iterable[Hook]
) -> Float[Tensor, "unit pos token"]:
    """Logits of a full forward pass with hooks beside those that the user has attached; padding is masked."""
    padded = {} if mask.all() else {"attention_mask": mask.long().to(tokens.device)}
    return model.run_with_hooks(tokens, fwd_hooks=list(hooks), **padded)


def capture(
    model: TransformerBridge,
    tokens: Int[Tensor, "unit pos"],
    mask: Bool[Tensor, "unit pos"],
    names: Iterable[str],
) -> tuple[Float[Tensor, "unit pos token"], dict[str, Float[Tensor, "unit pos *site"]]]:
    """Logits, and the activations at the named hooks as the user's own hooks leave them.

    Raises:
        HookbookError: one of the hooks did not run.
    """
    kept: dict[str, Tensor] = {}

    def keeper(name: str) -> Callable[..., None]:
        def keep(activation: Tensor, hook: object) -> None:
            kept[name] = activation.clone()

        return keep

    names = list(names)
    logits = forward(model, tokens, mask, [(name, keeper(name)) for name in names])
    silent = [name for name in names if name not in kept]
    if silent:
        raise HookbookError(f"The model has the hook {silent[0]} but never runs it: choose another site.")
    return logits, kept


def measure(
    metric: Metric, logits: Float[Tensor, "unit pos token"], reads: Int[Tensor, "unit read"], units: Int[Tensor, "unit"]
) -> Float[Tensor, "unit"]:
    """The metric of one run from its full logits."""
    if metric.position is not None:
        logits = logits[torch.arange(len(logits))[:, None], reads]
        tokens = metric.token_ids(units)
        if tokens is not None:
            tokens = tokens.to(logits.device)[:, None].expand(-1, logits.shape[1], -1)
            logits = logits.gather(-1, tokens)
    return metric.reduce(logits[None].float(), units)[0]


class Plain:
    """Fills in the values of a batch of prompts by full forward passes."""

    def __init__(self, model: TransformerBridge, metric: Metric) -> None:
        self.model, self.metric = model, metric

    def capture(
        self, grid: Grid, tokens: Int[Tensor, "unit pos"], mask: Bool[Tensor, "unit pos"]
    ) -> tuple[Float[Tensor, "unit pos token"], dict[str, Tensor]]:
        """Logits and activations of the unpatched run."""
        return capture(self.model, tokens, mask, map(grid.hook, grid.layers))

    def run(self, batch: Batch, advance: Callable[[float], object]) -> None:
        """Fill in the values of the sites that change something."""
        for site in product(*map(range, batch.grid.shape)):
            changes = batch.starts[site] < batch.mask.shape[1]
            if changes.any():
                logits = forward(self.model, batch.tokens, batch.mask, [self._patch(batch, *site)])
                values = measure(self.metric, logits, batch.reads, batch.units).cpu()
                batch.values[site][changes] = values[changes]
                advance(int(changes.sum()))

    @staticmethod
    def _patch(batch: Batch, i_layer: int, i_place: int, i_heads: int) -> Hook:
        layer, heads = batch.grid.layers[i_layer], batch.grid.heads[i_heads]
        name, new = batch.grid.hook(layer), batch.new[layer]
        where = batch.grid.places[i_place, batch.units].to(new.device)[..., None]

        def patch(activation: Tensor, hook: object) -> Tensor:
            if batch.grid.site == "resid_mid":
                return activation + torch.where(where, new - batch.base[name], 0)
            if not heads:
                return torch.where(where, new, activation)
            patched = activation.clone()
            patched[:, :, heads] = torch.where(where[..., None], new[:, :, heads], activation[:, :, heads])
            return patched

        # What reaches hook_resid_mid goes to the MLP alone, past the residual stream: add to attention's output instead
        return (hook_name("attn_out", layer) if batch.grid.site == "resid_mid" else name), patch
