"""Hook points by name, and hooks that come off again: what edits and the cache of activations stand on."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches

import torch
from torch import Tensor
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint
from transformer_lens.model_bridge import TransformerBridge

from helpers.errors import HookbookError

HookedModel = TransformerBridge | HookedRootModule
HookNames = str | Sequence[str] | Callable[[str], bool]


@dataclass(frozen=True)
class Target:
    """A hook point under the names that were asked for; `spellings` are all the names that it has in the model."""

    asked: tuple[str, ...]
    spellings: tuple[str, ...]
    point: HookPoint

    @property
    def name(self) -> str:
        """The first name that was asked for."""
        return self.asked[0]

    def position_axis(self, value: Tensor) -> int:
        """The axis of an activation that counts positions (of queries in attention patterns and scores).

        Raises:
            HookbookError: the activation has no such axis (`[batch, feature]`).
        """
        if value.ndim < 3:
            raise HookbookError(f"{self.name} has the shape {tuple(value.shape)}, without an axis of positions.")
        if self.point.pos_dim is not None:
            return self.point.pos_dim % value.ndim
        of_pairs = any(name.endswith(("hook_pattern", "hook_attn_scores")) for name in self.spellings)
        return value.ndim - 2 if of_pairs else 1

    def head_axis(self, value: Tensor) -> int:
        """The axis of an activation that counts heads: of queries for q and z, of keys and values for k and v.

        Raises:
            HookbookError: the activation has no such axis.
        """
        if value.ndim != 4:
            raise HookbookError(
                f"{self.name} has the shape {tuple(value.shape)}, without an axis of heads: leave `heads` out, or name "
                "hook_z, hook_q, hook_k, hook_v, hook_result or hook_pattern."
            )
        return 3 - self.position_axis(value)  # after the batch come positions and heads, in either order


def find_targets(model: HookedModel, hook_names: HookNames) -> list[Target]:
    """The hook points that a name, several names or a filter on names stand for, each once.

    Two names of the same point (`blocks.0.hook_out` is also `blocks.0.hook_resid_post`) count once: TransformerLens
    hooks it twice. A filter leaves out points that a switch of the model turns off, a name of one is refused.

    Raises:
        HookbookError: nothing matches, or the point is turned off.
    """
    points: dict[str, HookPoint] = model.hook_dict
    by_filter = callable(hook_names)
    if by_filter:
        names = [name for name in points if hook_names(name)]
    else:
        names = [hook_names] if isinstance(hook_names, str) else list(hook_names)
    spellings: dict[int, list[str]] = {}
    for name, point in points.items():
        spellings.setdefault(id(point), []).append(name)
    asked: dict[int, list[str]] = {}
    for name in dict.fromkeys(names):
        if name not in points:
            near = get_close_matches(name, points, n=3, cutoff=0.4)
            raise HookbookError(f"{name} is no hook of this model{': did you mean ' if near else ''}{_or(near)}.")
        if not (reason := _turned_off(model, name, points[name])):
            asked.setdefault(id(points[name]), []).append(name)
        elif not by_filter:
            raise HookbookError(f"{name} is turned off in this model ({reason}).")
    if not asked:
        raise HookbookError(f"{'The filter' if by_filter else 'The list'} names no hook of this model.")
    return [Target(tuple(n), tuple(spellings[point]), points[n[0]]) for point, n in asked.items()]


@contextmanager
def attached(hooks: Sequence[tuple[HookPoint, Callable]]) -> Iterator[None]:
    """Forward hooks for a while: exactly these come off, whatever happens and whatever else is attached.

    `TransformerBridge.hooks` does the same; `HookedRootModule.hooks` takes off every hook of its nesting level, those
    of others too.
    """
    try:
        for point, hook in hooks:
            point.add_hook(hook)
        yield
    finally:
        try:
            _detach(hooks)
        finally:
            _detach(hooks)  # once more: it finishes what an interrupt cut short


def is_attached(point: HookPoint, hook: Callable) -> bool:
    """Whether this very hook is still on this point."""
    return any(handle.user_hook is hook for handle in point.fwd_hooks)


def foreign_hooks(module: torch.nn.Module) -> bool:
    """Whether there are hooks of torch beside those that transformers and TransformerLens put there for themselves."""
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    return any(not getattr(hook, "__module__", "").startswith("transformer") for hook in hooks)


def some(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _detach(hooks: Sequence[tuple[HookPoint, Callable]]) -> None:
    for point, hook in hooks:
        for handle in point.fwd_hooks:
            if handle.user_hook is hook:
                handle.hook.remove()
        point.fwd_hooks[:] = [handle for handle in point.fwd_hooks if handle.user_hook is not hook]


def _turned_off(model: HookedModel, name: str, point: HookPoint) -> str:
    """Why a hook at this point would never fire, as TransformerLens knows it; empty where it would."""
    try:
        model.check_hooks_to_add(point, name, torch.nn.Identity())
    except ValueError as error:
        return str(error).rstrip(".")
    return ""


def _or(names: Sequence[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
