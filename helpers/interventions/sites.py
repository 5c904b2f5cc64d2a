"""Where a sweep patches: the names of the sites, and the grid of layers, places and heads that it visits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from helpers.errors import HookbookError

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

Site = Literal["resid_pre", "resid_mid", "attn_out", "mlp_out", "z", "q", "k", "v"]
Axis = Literal["layer", "position", "head"]
Place = int | Int[Tensor, "unit"] | Bool[Tensor, "unit pos"]
HEAD_SITES = ("z", "q", "k", "v")


def hook_name(site: Site, layer: int) -> str:
    """TransformerLens's name of the hook at a site."""
    return f"blocks.{layer}.{'attn.' if site in HEAD_SITES else ''}hook_{site}"


@dataclass(frozen=True, eq=False)
class Grid:
    """The sites of a sweep: each layer with each place with each set of heads.

    Attributes:
        site: what is patched.
        layers: the layers.
        places: the positions that are patched together, by prompt.
        heads: the heads that are patched together; a single empty set for a site without heads. For k and v they are
            key and value heads, of which grouped-query attention has fewer.
        axes: the axes that the caller asked for, in that order, and their labels.
    """

    site: Site
    layers: list[int]
    places: Bool[Tensor, "place unit pos"]
    heads: list[list[int]]
    axes: dict[str, list[int]]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Layers, places, sets of heads."""
        return len(self.layers), len(self.places), len(self.heads)

    def hook(self, layer: int) -> str:
        """The name of the hook at the site in a layer."""
        return hook_name(self.site, layer)

    def ordered(self, values: Float[Tensor, "layer place head unit"]) -> Tensor:
        """The same values with the axes that the caller asked for, in that order, and units last."""
        known = ("layer", "position", "head")
        order = [known.index(axis) for axis in self.axes]
        single = [i for i in range(3) if i not in order]
        return values.permute(*order, 3, *single).reshape([values.shape[i] for i in [*order, 3]])


def grid(
    model: TransformerBridge,
    mask: Bool[Tensor, "unit pos"],
    site: Site,
    over: Sequence[Axis],
    *,
    layers: Sequence[int] | None,
    positions: Sequence[Place] | None,
    heads: Sequence[int] | None,
) -> Grid:
    """The grid that the arguments of `patch_sweep` describe.

    Raises:
        HookbookError: an unknown site, a site that this model does not have, an axis that is unknown, missing or does
            not fit the site, or an index outside the model or the prompts.
    """
    if site not in get_args(Site):
        raise HookbookError(f"There is no site {site!r}: choose one of {', '.join(get_args(Site))}.")
    if hook_name(site, 0) not in model.hook_dict:
        parallel = getattr(model.cfg, "parallel_attn_mlp", False)
        reason = "attention and MLP read the same residual stream there, so nothing lies between" if parallel else ""
        raise HookbookError(
            f"{model.cfg.model_name} has no {site}{f' ({reason})' if reason else ''}: choose another site."
        )
    over = [over] if isinstance(over, str) else list(over)
    unknown = [axis for axis in over if axis not in get_args(Axis)]
    if unknown or len(set(over)) < len(over) or "layer" not in over:
        raise HookbookError(f"over={over} must name 'layer' and, if wanted, 'position' and 'head', each once.")
    if site not in HEAD_SITES and ("head" in over or heads is not None):
        raise HookbookError(f"{site} has no heads: leave them out, or patch one of {', '.join(HEAD_SITES)}.")
    n_heads = model.cfg.n_heads
    if site in "kv":
        n_heads = getattr(model.cfg, "n_key_value_heads", None) or n_heads
    chosen = {
        "layer": _indices("layer", layers, model.cfg.n_layers),
        "head": _indices("head", heads, n_heads) if site in HEAD_SITES else [],
    }
    places = _places(positions, mask)
    if "position" in over:
        kept = places if positions is not None else torch.eye(mask.shape[1], dtype=torch.bool)[:, None] & mask
        given = positions if positions is not None and all(isinstance(p, int) for p in positions) else range(len(kept))
        chosen["position"] = list(given)
    else:
        kept = places.any(0, keepdim=True)
    sets = [[head] for head in chosen["head"]] if "head" in over else [chosen["head"]]
    return Grid(site, chosen["layer"], kept, sets, {axis: chosen[axis] for axis in over})


def _indices(what: str, given: Sequence[int] | None, n: int) -> list[int]:
    chosen = list(range(n)) if given is None else [int(i) for i in given]
    outside = [i for i in chosen if not -n <= i < n]
    chosen_once = list(dict.fromkeys(i % n for i in chosen))
    if outside or not chosen or len(chosen_once) < len(chosen):
        raise HookbookError(f"{what}s={chosen}: name at least one, each once and below {n}.")
    return chosen_once


def _places(positions: Sequence[Place] | None, mask: Bool[Tensor, "unit pos"]) -> Bool[Tensor, "place unit pos"]:
    """One row for each given position (an index, one per prompt, or a mask); without any, all tokens in one."""
    if positions is None:
        return mask[None]
    columns = torch.arange(mask.shape[1])
    places = []
    for position in positions:
        place = torch.as_tensor(position).cpu()
        if place.dtype != torch.bool:
            if bool(((place < -len(columns)) | (place >= len(columns))).any()):
                raise HookbookError(f"Position {position} lies outside the {len(columns)} columns of the prompts.")
            place = (place % len(columns)).reshape(-1, 1) == columns
        if place.shape not in (mask.shape, (1, len(columns))):
            raise HookbookError(
                f"A position is an index, one index per prompt, or a mask {list(mask.shape)}, not {list(place.shape)}."
            )
        places.append(place & mask)
    if not places:
        raise HookbookError("positions=[]: name at least one, or leave it out for all of them.")
    return torch.stack(places)
