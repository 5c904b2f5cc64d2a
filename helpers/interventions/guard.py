"""The `with` block around an edit: attaches hooks, takes off just those, and refuses an edit that did nothing."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

import torch
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from helpers.errors import HookbookError
from helpers.hooks import HookedModel, Target, attached, is_attached, some

Change = Callable[[Tensor, Target, int], Tensor]  # activation, where it is, how often the hook fired before


class Edit(AbstractContextManager):
    """What the functions below return; `with` attaches it and gives the model."""

    def __init__(self, model: HookedModel, targets: list[Target], change: Change, kind: str, must_change: bool = True):
        self._model, self._targets, self._change = model, targets, change
        self._kind, self._must_change = kind, must_change
        self._entered: list[tuple[_Watch, AbstractContextManager]] = []

    def __enter__(self) -> HookedModel:
        watch = _Watch(self._targets, self._change, self._kind, self._must_change)
        hooks = attached(watch.hooks)
        self._entered.append((watch, hooks))
        try:
            hooks.__enter__()
        except BaseException:
            self._entered.pop()
            raise
        return self._model

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        watch, hooks = self._entered.pop()
        try:
            lost = watch.lost()
        finally:
            hooks.__exit__(None, None, None)
        if error_type is None:
            watch.check(lost)


class _Watch:
    """The hooks of one entry of an edit, and what they saw."""

    def __init__(self, targets: list[Target], change: Change, kind: str, must_change: bool):
        self._targets, self._change, self._kind, self._must_change = targets, change, kind, must_change
        self._fired, self._changed = Counter(), False
        self.hooks = [(target.point, self._hook(target)) for target in targets]

    def _hook(self, target: Target) -> Callable:
        def run(value: Tensor, *, hook: HookPoint) -> Tensor:
            if not isinstance(value, Tensor) or not value.is_floating_point():
                raise HookbookError(f"{target.name} carries no floating-point tensor: edit another hook.")
            new = self._change(value, target, self._fired[target.name])
            if not isinstance(new, Tensor):
                raise HookbookError(f"The edit of {target.name} gave {type(new).__name__}: return the edited tensor.")
            if new.shape != value.shape or new.dtype != value.dtype:
                raise HookbookError(
                    f"The edit of {target.name} gave {tuple(new.shape)} of {new.dtype}, where the model computes with "
                    f"{tuple(value.shape)} of {value.dtype}: return a tensor like the activation."
                )
            self._fired[target.name] += 1
            self._changed = self._changed or not torch.equal(new.detach(), value.detach())
            return new

        return run

    def lost(self) -> list[str]:
        """Where a hook of this edit is attached no longer."""
        pairs = zip(self._targets, self.hooks, strict=True)
        return [target.name for target, (point, hook) in pairs if not is_attached(point, hook)]

    def check(self, lost: list[str]) -> None:
        """Complain of an edit that did nothing."""
        silent = [target.name for target in self._targets if not self._fired[target.name]]
        if lost:
            raise HookbookError(
                f"The hooks of `{self._kind}` at {some(lost)} were removed inside it: do not reset hooks there."
            )
        if silent:
            raise HookbookError(
                f"`{self._kind}` did nothing: no forward pass inside it reached {some(silent)} (run the model inside "
                "the `with` block; some hook points are never used by an architecture)."
            )
        if self._must_change and not self._changed:
            names = some([target.name for target in self._targets])
            raise HookbookError(
                f"`{self._kind}` changed no activation at {names}, not by a bit: look at what it writes."
            )
