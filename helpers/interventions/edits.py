"""Edits of activations for the length of a `with` block: `ablate`, `steer`, `project_out`, `freeze`, and `edit`.

They work on a TransformerBridge and on any HookedRootModule, with and without gradients. Hooks on one point run in
the order in which they were attached: an edit sees what the user's own hooks and the edits around it have made of the
activation, and what is attached inside the block (a further edit, `run_with_cache`) sees its result. At its end exactly
the edit's own hooks come off. The same edit can be entered again, also inside itself.

An edit that does nothing is an error, since it looks like a result: no forward pass in the block, a hook that never
fired, or no activation that differs in any bit. All edits raise HookbookError for names, shapes, positions, heads and
types that do not fit.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from helpers.errors import HookbookError
from helpers.hooks import HookedModel, HookNames, Target, find_targets
from helpers.interventions.arguments import (
    Array,
    Positions,
    Values,
    basis_of,
    by_target,
    directions_of,
    draw,
    fitting,
    fitting_features,
    mean_of,
    misfit,
    tensor,
    where_to_write,
)
from helpers.interventions.guard import Edit

__all__ = ["Edit", "ablate", "edit", "freeze", "project_out", "steer"]


def edit(model: HookedModel, hook_names: HookNames, function: Callable[..., Tensor]) -> Edit:
    """Any edit by a function like a TransformerLens hook, `function(value, hook=point)`, that must return the tensor.

    The function gets a copy that it may write into. `hook_names` is a name, several, or a filter on names.
    """
    return Edit(
        model,
        find_targets(model, hook_names),
        lambda value, target, _: function(value.clone(), hook=target.point),
        "edit",
    )


def ablate(
    model: HookedModel,
    hook_names: HookNames,
    *,
    to: str | Values = "mean",
    values: Array | Mapping[str, Array] | None = None,
    positions: Positions = None,
    heads: int | Sequence[int] | None = None,
    seed: int = 0,
) -> Edit:
    """Replace activations, at some positions and heads or everywhere, by what says nothing about the prompt.

    Args:
        model: a hooked model.
        hook_names: a name, several, or a filter on names.
        to: `zero`; `mean` of `values` over prompts and positions, for each head and feature; `resample`: the activation
            of one of the prompts in `values`, drawn anew for each prompt and forward pass and the same at all hooks; or
            what to write, broadcast to the activation (a mean by position: `values.mean(0)`).
        values: for `mean` and `resample`, activations [prompt, pos, ...] of other prompts, by hook name if there are
            several hooks, as `helpers.activations.activations` gives them; their padding (NaN) does not count.
        positions: indices along the position axis (negative from the end, where padding may be), or a mask
            [batch, pos].
        heads: indices; at k and v of a grouped-query model they count key and value heads.
        seed: of the draws.
    """
    targets = find_targets(model, hook_names)
    reference = to in ("mean", "resample") if isinstance(to, str) else False
    if isinstance(to, str) and to not in ("zero", "mean", "resample"):
        raise HookbookError(f"to={to!r} is none of zero, mean, resample, and no tensor.")
    if reference != (values is not None):
        said = "needs `values`: activations of the prompts to take it from" if reference else "takes no `values`"
        raise HookbookError(f"to={to if isinstance(to, str) else 'a tensor'} {said}.")
    if reference:
        given = {
            name: tensor(value, "values", nan=True) for name, value in by_target(values, targets, own=True).items()
        }
        if to == "mean":
            given = {target.name: mean_of(given[target.name], target) for target in targets}
    else:
        given = {n: tensor(v, "to") for n, v in by_target(0.0 if to == "zero" else to, targets).items()}

    def change(value: Tensor, target: Target, passes: int) -> Tensor:
        where = where_to_write(value, target, positions, heads)
        new = given[target.name].to(value)
        if to == "resample" and reference:
            new = draw(new, value, target, seed + passes)
            if (new.isnan() & where).any():
                raise HookbookError(f"The `values` drawn for {target.name} are padding at positions that are replaced.")
        return torch.where(where, fitting(new, value, target, "to"), value)

    return Edit(model, targets, change, "ablate")


def steer(
    model: HookedModel,
    hook_names: HookNames,
    direction: Values,
    strength: float,
    *,
    positions: Positions = None,
) -> Edit:
    """Add `strength * direction` (a vector [feature], used at its own length) to activations.

    A strength of 0 is the base of a dose curve: the one edit that may change nothing.
    """
    targets = find_targets(model, hook_names)
    vectors = {name: directions_of(given, 1) for name, given in by_target(direction, targets).items()}

    def change(value: Tensor, target: Target, _: int) -> Tensor:
        vector = fitting_features(vectors[target.name], value, target).to(value)
        return torch.where(where_to_write(value, target, positions), value + strength * vector[0], value)

    return Edit(model, targets, change, "steer", must_change=strength != 0)


def project_out(
    model: HookedModel,
    hook_names: HookNames,
    directions: Values,
    *,
    to: Values | None = None,
    positions: Positions = None,
) -> Edit:
    """Directional ablation: take the component along a direction out, or put it at a given value.

    Args:
        model: a hooked model.
        hook_names: a name, several, or a filter on names.
        directions: a vector [feature] of any length, or an orthonormal basis [direction, feature].
        to: the component along the unit direction (for a basis one value each) that is written instead of 0, such as
            its mean over other prompts; by hook name if it differs.
        positions: as in `ablate`.
    """
    targets = find_targets(model, hook_names)
    bases = {name: basis_of(directions_of(given, 2)) for name, given in by_target(directions, targets).items()}
    means = {name: tensor(given, "to") for name, given in by_target(0.0 if to is None else to, targets).items()}
    for name, mean in means.items():
        if mean.ndim > 1 or mean.numel() not in (1, len(bases[name])):
            raise HookbookError(
                f"`to` has the shape {tuple(mean.shape)}, but {name} has {len(bases[name])} directions."
            )

    def change(value: Tensor, target: Target, _: int) -> Tensor:
        precise = value.float() if value.dtype.itemsize < 4 else value  # half precision would leave a remainder
        basis = fitting_features(bases[target.name], value, target).to(precise)
        new = precise + (means[target.name].to(precise) - precise @ basis.T) @ basis
        return torch.where(where_to_write(value, target, positions), new.to(value.dtype), value)

    return Edit(model, targets, change, "project_out")


def freeze(model: HookedModel, hook_names: HookNames, values: Array | Mapping[str, Array]) -> Edit:
    """Pin whole activations to `values` of the same shape (batch 1 serves all rows), by hook name if there are several.

    It may change nothing: pinned to what the run computes anyway, an activation passes on no gradient.
    """
    targets = find_targets(model, hook_names)
    given = {name: tensor(value, "values") for name, value in by_target(values, targets, own=True).items()}

    def change(value: Tensor, target: Target, _: int) -> Tensor:
        new = given[target.name].to(value)
        if new.shape[1:] != value.shape[1:] or new.ndim != value.ndim:
            raise misfit(new, value, target, "values")
        return fitting(new, value, target, "values")

    return Edit(model, targets, change, "freeze", must_change=False)
