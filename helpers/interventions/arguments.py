"""What edits are told, made ready for an activation: values by hook, directions, positions and heads."""

from collections.abc import Mapping, Sequence
from numbers import Real

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from helpers.errors import HookbookError
from helpers.hooks import Target, some

Array = Tensor | np.ndarray
Values = float | Array | Mapping[str, float | Array]  # for every hook, or by hook name (a dict, an ActivationCache)
Positions = int | Sequence[int] | Bool[Array, "batch pos"] | None


def by_target(values: Values, targets: list[Target], own: bool = False) -> dict[str, float | Array]:
    """What belongs to each hook; `own` refuses one array for several hooks."""
    if isinstance(values, Real | Tensor | np.ndarray | list | tuple):
        if own and len(targets) > 1:
            raise HookbookError("One array is given for several hooks: give a dict, by hook name.")
        return {target.name: values for target in targets}
    found = {
        target.name: next((values[name] for name in target.spellings if name in values), None) for target in targets
    }
    if missing := [name for name, value in found.items() if value is None]:
        raise HookbookError(f"Nothing is given for {some(missing)}.")
    return found


def tensor(given: float | Array, what: str, nan: bool = False) -> Tensor:
    """As a floating-point tensor; numbers of another kind, and NaN unless it may be there, are refused."""
    if not isinstance(given, Tensor):
        given = torch.tensor(np.asarray(given, dtype=None if isinstance(given, np.ndarray) else float))
    if not given.is_floating_point():
        raise HookbookError(f"`{what}` is of {given.dtype}: give floating-point numbers.")
    if not nan and given.isnan().any():
        raise HookbookError(f"`{what}` holds NaN (padding is NaN in stored activations).")
    return given


def directions_of(given: float | Array, most_axes: int) -> Float[Tensor, "direction feature"]:
    """One direction, or with two axes several; nothing of length zero."""
    directions = tensor(given, "direction")
    if not 1 <= directions.ndim <= most_axes:
        raise HookbookError(f"A direction of the shape {tuple(directions.shape)} is no vector [feature].")
    directions = directions[None] if directions.ndim == 1 else directions
    if not directions.isfinite().all() or (directions.norm(dim=-1) == 0).any() or not directions.numel():
        raise HookbookError("A direction is zero, infinite or empty: nothing points along it.")
    return directions


def basis_of(directions: Float[Tensor, "direction feature"]) -> Float[Tensor, "direction feature"]:
    """One direction at unit length; several must be orthonormal."""
    if len(directions) == 1:
        return directions / directions.norm()
    overlap = directions @ directions.T - torch.eye(len(directions)).to(directions)
    if overlap.abs().max() > 1e-3:
        raise HookbookError("These directions are not orthonormal: pass `torch.linalg.qr(directions.T).Q.T`.")
    return directions


def fitting_features(directions: Tensor, value: Tensor, target: Target) -> Tensor:
    """The directions, if they are as long as the activation is wide."""
    if directions.shape[-1] != value.shape[-1]:
        raise HookbookError(
            f"The direction has {directions.shape[-1]} numbers, and an activation at {target.name} {value.shape[-1]}."
        )
    return directions


def fitting(new: Tensor, value: Tensor, target: Target, what: str) -> Tensor:
    """What is written, expanded to the shape of the activation."""
    try:
        return new.expand_as(value)
    except RuntimeError:
        raise misfit(new, value, target, what) from None


def misfit(new: Tensor, value: Tensor, target: Target, what: str) -> HookbookError:
    """The complaint about a shape."""
    return HookbookError(
        f"`{what}` has the shape {tuple(new.shape)} for {target.name}, where the model computes {tuple(value.shape)}."
    )


def mean_of(values: Tensor, target: Target) -> Tensor:
    """Over prompts and, where there are some, positions; NaN is padding."""
    axes = [0] if values.ndim < 3 else [0, target.position_axis(values)]
    mean = (values.float() if values.dtype.itemsize < 4 else values).nanmean(dim=axes, keepdim=True)
    return tensor(mean, "values")


def draw(values: Tensor, value: Tensor, target: Target, seed: int) -> Tensor:
    """For each prompt of the run the activation of one of the prompts in `values`, with replacement."""
    if values.shape[1:] != value.shape[1:] or not len(values):
        raise misfit(values, value, target, "values")
    draws = torch.randint(len(values), (len(value),), generator=torch.Generator().manual_seed(seed))
    return values[draws.to(values.device)]


def where_to_write(
    value: Tensor, target: Target, positions: Positions, heads: int | Sequence[int] | None = None
) -> Bool[Tensor, "..."]:
    """Where to write, in a shape that broadcasts to the activation."""
    where = torch.ones((1,) * value.ndim, dtype=torch.bool, device=value.device)
    if positions is not None:
        axis = target.position_axis(value)
        size, given = value.shape[axis], torch.as_tensor(positions)
        if given.dtype == torch.bool:
            if given.shape != (len(value), size):
                raise HookbookError(
                    f"The mask of positions has the shape {tuple(given.shape)}, and {target.name} has {len(value)} "
                    f"prompts of {size} positions."
                )
            mask = given.to(value.device)
        else:
            mask = _chosen(given, size, f"positions at {target.name}")[None].to(value.device)
        if not mask.any():
            raise HookbookError("The positions are an empty choice: there is nothing to edit.")
        where = where & mask.reshape([len(mask) if i == 0 else size if i == axis else 1 for i in range(value.ndim)])
    if heads is not None:
        axis = target.head_axis(value)
        chosen = _chosen(torch.as_tensor(heads), value.shape[axis], f"heads at {target.name}").to(value.device)
        where = where & chosen.reshape([-1 if i == axis else 1 for i in range(value.ndim)])
    return where


def _chosen(indices: Tensor, size: int, what: str) -> Bool[Tensor, "size"]:
    if indices.ndim > 1 or indices.is_floating_point() or not indices.numel():
        raise HookbookError(f"The {what} are whole numbers, at least one, in one list.")
    if (indices < -size).any() or (indices >= size).any():
        raise HookbookError(f"There are {size} {what}: {indices.tolist()} is out of range.")
    mask = torch.zeros(size, dtype=torch.bool)
    mask[indices.long()] = True
    return mask
