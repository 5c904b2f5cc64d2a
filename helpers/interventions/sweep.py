"""`patch_sweep`: what every layer, position or head does to a metric when its activation is replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from tqdm.auto import tqdm

from helpers.errors import HookbookError
from helpers.interventions import plain
from helpers.interventions.batch import Batch, Patch, Patches
from helpers.interventions.blocks import NoShortcut
from helpers.interventions.engine import Shortcut
from helpers.interventions.prompts import Pair, Prompts, pair
from helpers.interventions.sites import Axis, Grid, Place, Site, grid
from helpers.metrics import Metric

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

Mode = Literal["denoising", "noising"]
# Tokens of a forward pass whose activations are kept at a time
_ROWS = 512


@dataclass(frozen=True, eq=False)
class Sweep:
    """The metric of every patched run, with its baselines.

    Attributes:
        values: the metric by the axes of the sweep and, last, by prompt.
        axes: the names of those axes, in order, with their labels.
        base: the metric of the unpatched run that patches went into, by prompt.
        source: the metric of the run that they came from; None if there was only one.
        unchanged: true where the patch was what stood there already, so that the value is that of the base run.
        how: by the shortcut or the plain way, and why.
    """

    values: Float[np.ndarray, "*site unit"]
    axes: dict[str, list[int]]
    base: Float[np.ndarray, "unit"]
    source: Float[np.ndarray, "unit"] | None
    unchanged: Bool[np.ndarray, "*site unit"]
    how: str

    @property
    def effect(self) -> Float[np.ndarray, "*site unit"]:
        """How much each patch changed the metric."""
        return self.values - self.base

    @property
    def recovered(self) -> Float[np.ndarray, "*site"]:
        """Each patch's share of the way from the base run to the source run: sum over prompts over sum over prompts.

        Raises:
            HookbookError: there is no source run, or it does not differ from the base run.
        """
        if self.source is None or not (whole := (self.source - self.base).sum()):
            raise HookbookError("There is no difference between two runs to recover: read `effect` instead.")
        return self.effect.sum(-1) / whole


@torch.no_grad()
def patch_sweep(
    model: TransformerBridge,
    corrupted: Prompts,
    clean: Prompts | None = None,
    *,
    site: Site,
    over: Sequence[Axis] = ("layer", "position"),
    metric: Metric | Callable[[Float[Tensor, "unit pos token"]], Float[Tensor, "unit"]] | Sequence[Metric],
    mode: Mode = "denoising",
    patch: Patch = "other",
    layers: Sequence[int] | None = None,
    positions: Sequence[Place] | None = None,
    heads: Sequence[int] | None = None,
    mask: Bool[Tensor, "unit pos"] | None = None,
    prepend_bos: bool | None = None,
    seed: int = 0,
    shortcut: bool = True,
    memory_mb: int = 256,
    progress: bool = True,
) -> Sweep | list[Sweep]:
    """Patch every site of a grid, one at a time, and measure what the model then says; exact.

    Denoising puts activations of the clean run into the corrupted one (which suffice to restore the answer?), noising
    those of the corrupted run into the clean one (which are needed?). Only what a patch can change is computed: later
    layers, later positions, the logits that the metric reads. Where the architecture, the metric or hooks that you
    attached allow no such shortcut, every site takes a full forward pass, and `how` says so.

    Args:
        model: from `load_model`, in evaluation mode.
        corrupted: prompts, as texts or token ids; one is a batch of one.
        clean: their counterparts, token by token; without them `patch` must be mean, zero or resample, of the
            corrupted run itself.
        site: what is patched. k and v have as many heads as the model has key and value heads.
        over: the axes of the grid, "layer" among them. Without "position" all positions are patched at once, or all
            those of `positions`; without "head" all heads, or all those of `heads`.
        metric: a `Metric`, or a function of the full logits that returns one number per prompt; or several metrics,
            which all read the same runs, for a list of sweeps.
        mode: which of the two runs is patched.
        patch: the activations of the other run, their mean over its prompts, zero, or those of another of its prompts.
        layers: which layers; all by default.
        positions: which positions, each an index, an index per prompt (the comma of each), or a mask of several.
        heads: which heads; all by default.
        mask: true at the tokens of padded token ids, left or right; texts are padded here.
        prepend_bos: whether texts start with the BOS token; the model's own habit by default.
        seed: of resampling.
        shortcut: false for the plain way.
        memory_mb: what the residual streams of the patched copies may take at a time.
        progress: whether to show a bar when it takes more than five seconds.

    Raises:
        HookbookError: a mistake in the arguments, prompts that do not match, or a sweep that changes nothing.
    """
    for what, value, allowed in (("mode", mode, Mode), ("patch", patch, Patch)):
        if value not in get_args(allowed):
            raise HookbookError(f"{what}={value!r} is not one of {', '.join(get_args(allowed))}.")
    if clean is None and (patch == "other" or mode == "noising"):
        raise HookbookError("There is no clean run to patch from: give clean=, or patch with mean, zero or resample.")
    if model.training:
        raise HookbookError("The model is in training mode, where dropout changes every run: call model.eval().")
    together = not isinstance(metric, Metric) and isinstance(metric, Sequence)
    metric = Metric.several(metric) if together else Metric.of(metric)
    prompts = (corrupted, clean) if mode == "denoising" else (clean, corrupted)
    both = pair(model, *prompts, mask=mask, prepend_bos=prepend_bos)
    sites = grid(model, both.mask, site, over, layers=layers, positions=positions, heads=heads)
    reads = metric.reads(both.mask)
    way, how = _way(model, metric, memory_mb) if shortcut else (plain.Plain(model, metric), "plain: as asked")
    patches = Patches(model, both, sites, patch, seed, _ROWS)

    n_units, n_pos = both.base.shape
    starts = torch.empty(*sites.shape, n_units, dtype=torch.long)
    values, base, source = [], [], []
    at_a_time = n_units if metric.position is None else max(1, _ROWS // n_pos)
    layout = "{desc} {percentage:3.0f}%|{bar}| {elapsed} of about {remaining} more"
    with tqdm(total=starts.numel(), desc=site, bar_format=layout, leave=False, delay=5, disable=not progress) as bar:
        for units in torch.arange(n_units).split(at_a_time):
            try:
                batch = _run(way, both, sites, patches, metric, reads, units, bar.update)
            except NoShortcut as reason:
                way, how = plain.Plain(model, metric), f"plain: {reason}"
                batch = _run(way, both, sites, patches, metric, reads, units, bar.update)
            starts[..., units] = batch.starts
            values.append(batch.values)
            base.append(batch.measured)
            if clean is not None:
                logits = batch.source_logits
                if logits is None:
                    logits = plain.forward(model, both.source[units], both.mask[units], [])
                source.append(plain.measure(metric, logits, batch.reads, units).cpu())
    unchanged = starts == n_pos
    if unchanged.all():
        raise HookbookError(
            f"Patching {site} changes nothing anywhere: what is patched in equals what is there already."
        )
    unchanged = sites.ordered(unchanged).numpy()

    def sweep(values: Tensor, base: Tensor, source: Tensor | None) -> Sweep:
        runs = base.numpy(), None if source is None else source.numpy()
        return Sweep(sites.ordered(values).numpy(), sites.axes, *runs, unchanged, how)

    runs = torch.cat(values, dim=3), torch.cat(base), torch.cat(source) if source else None
    if not together:
        return sweep(*runs)
    n_metrics = runs[0].shape[-1]
    return [sweep(*(None if run is None else run[..., i] for run in runs)) for i in range(n_metrics)]


def _run(
    way: Shortcut | plain.Plain,
    both: Pair,
    sites: Grid,
    patches: Patches,
    metric: Metric,
    reads: Int[Tensor, "all_units read"],
    units: Int[Tensor, "unit"],
    advance: Callable[[float], object],
) -> Batch:
    """Some prompts, unpatched and then patched at every site."""
    logits, base = way.capture(sites, both.base[units], both.mask[units])
    new, source_logits = patches.of(units, base)
    measured = plain.measure(metric, logits, reads[units], units).cpu()
    batch = Batch(
        sites, units, both.base[units], both.mask[units], reads[units], base, new, logits, source_logits, measured
    )
    way.run(batch, advance)
    return batch


def _way(model: TransformerBridge, metric: Metric, memory_mb: int) -> tuple[Shortcut | plain.Plain, str]:
    try:
        return Shortcut(model, metric, memory_mb), "shortcut: from the patched layer and position on"
    except NoShortcut as reason:
        return plain.Plain(model, metric), f"plain: {reason}"
