"""Forward passes from a layer on: the residual stream before it is given, and the blocks below are not computed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint
from transformer_lens.model_bridge import TransformerBridge

from helpers.errors import HookbookError
from helpers.hooks import foreign_hooks
from helpers.interventions.arguments import Array, tensor
from helpers.interventions.blocks import SUPPORTED

# Architectures whose blocks hand on the residual stream and nothing else, each tested against the full forward pass
STARTABLE = (*SUPPORTED, "PhiForCausalLM")


@contextmanager
def start_at(
    model: TransformerBridge, layer: int, resid_pre: Float[Array, "batch pos d_model"]
) -> Iterator[TransformerBridge]:
    """Within it, forward passes start at block `layer`; exact, for many interventions there over one recorded run.

    The blocks below are not computed. All else is the model's own forward pass over all positions, with its masks and
    rotary angles. Hooks at block `layer` and above fire as usual, the first of them its hook_resid_pre on a copy of the
    given stream. Gradients flow into the given stream, and stop there.

    Args:
        model: a bridge of one of the architectures in `STARTABLE`, which is what `with` gives.
        layer: of the first block that is computed.
        resid_pre: the residual stream before it, recorded at `blocks.{layer}.hook_resid_pre` in a run of the same
            tokens with the same attention mask, padding included.

    Raises:
        HookbookError: a model, layer or stream that does not fit; in the forward pass: tokens that are not those of the
            stream or of the pass before, a key-value cache, `start_at_layer`, a stop below `layer`, and hooks below it,
            which would never fire, or at the embedding, where they would change nothing.
    """
    start = _Start(model, layer, resid_pre)
    try:
        start.attach()
        yield model
    finally:
        try:
            start.detach()
        finally:
            start.detach()  # once more: it finishes what an interrupt cut short


class _Start:
    """One entry of `start_at`: what it puts on the model, and what it knows of the forward pass that is going on."""

    def __init__(self, model: TransformerBridge, layer: int, resid_pre: Array) -> None:
        architecture = getattr(getattr(model, "cfg", None), "architecture", None)
        if not isinstance(model, TransformerBridge) or architecture not in STARTABLE:
            raise HookbookError(
                f"`start_at` knows the blocks of {', '.join(STARTABLE)} and not those of "
                f"{architecture or type(model).__name__}: run the full forward pass."
            )
        blocks = list(model.blocks)
        if not 0 <= layer < len(blocks):
            raise HookbookError(f"The model has layers 0 to {len(blocks) - 1}: layer {layer} is out of range.")
        if any(_starts(block) for block in blocks):
            raise HookbookError("`start_at` is entered on this model already: leave it before you enter it again.")
        stream = tensor(resid_pre, "resid_pre")
        if stream.ndim != 3 or stream.shape[-1] != model.cfg.d_model:
            raise HookbookError(
                f"`resid_pre` has the shape {tuple(stream.shape)}: give [batch, pos, {model.cfg.d_model}], recorded at "
                f"blocks.{layer}.hook_resid_pre."
            )
        self.layer, self.stream = layer, stream
        self.network, self.block, self.skipped = model.original_model, blocks[layer], blocks[:layer]
        self.points, self.modules = _below(model, layer)
        self.forwards = [vars(block).get("forward") for block in self.skipped]  # none, unless somebody replaced one
        self.running = False  # between the start of a forward pass and its block `layer`
        self.passed: Tensor | None = None  # from one block to the next
        self.run: tuple[Tensor, Tensor | None] | None = None  # tokens and mask of the first pass

    def attach(self) -> None:
        """Hooks of torch, not of TransformerLens: those are the user's, who may reset them."""
        for block in self.skipped:
            vars(block)["forward"] = self.skip  # an assignment would reach the transformers block behind the bridge's
        # in front of hooks that are there already, so that they see what goes into the block
        for module, hook in ((self.network, self.begin), (self.block, self.enter)):
            module.register_forward_pre_hook(hook, prepend=True, with_kwargs=True)

    def detach(self) -> None:
        """By looking for them: an interrupt may come before a handle has a name."""
        for block, forward in zip(self.skipped, self.forwards, strict=True):
            if forward is None:
                vars(block).pop("forward", None)  # its class has one
            else:
                vars(block)["forward"] = forward
        for module in (self.network, self.block):
            for key, hook in list(module._forward_pre_hooks.items()):
                if getattr(hook, "__self__", None) is self:
                    module._forward_pre_hooks.pop(key, None)
                    module._forward_pre_hooks_with_kwargs.pop(key, None)

    def begin(self, _: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Before a forward pass: refuse one that would not be what the full one is, with the hooks that are there."""
        tokens = next(x for x in (*args[:1], kwargs.get("input_ids"), kwargs.get("inputs_embeds")) if x is not None)
        if tokens.shape[:2] != self.stream.shape[:2]:
            raise HookbookError(
                f"`resid_pre` has the shape {tuple(self.stream.shape)} and the tokens {tuple(tokens.shape)}: run those "
                "that it was recorded with."
            )
        self._refuse_options(kwargs)
        self._refuse_hooks()
        mask = kwargs.get("attention_mask")
        run = tokens.detach().clone(), mask != 0 if isinstance(mask, Tensor) and not mask.all() else None
        if self.run is not None and not all(map(_same, run, self.run)):
            raise HookbookError(
                "These are not the tokens, or not the attention mask, of the forward pass before: a stream belongs to "
                "one run, so enter `start_at` once for each."
            )
        self.run, self.running, self.passed = run, True, None
        return args, kwargs | {"use_cache": False}  # one without the blocks below would be no use to anybody

    def skip(self, *args: Any, **kwargs: Any) -> Tensor:
        """In place of a block below: hand on what comes, so that the model's own code finds what it expects."""
        if not self.running:
            raise HookbookError(f"The blocks below {self.layer} are not computed in `start_at`: call them outside.")
        return self._handed_on(args, kwargs)

    def enter(self, _: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]] | None:
        """Put the given stream in the place of what has been handed on to block `layer`."""
        if not self.running:  # a call of this block alone is none of our business
            return None
        handed = self._handed_on(args, kwargs)
        self.running, self.passed = False, None
        stream = self.stream.to(handed).clone()  # hooks may write into it
        if handed.requires_grad and not stream.requires_grad:
            # As in the full forward pass: gradients at hooks of this layer, of a tensor that may be edited in place
            stream = stream.requires_grad_().clone()
        if "hidden_states" in kwargs:
            return args, kwargs | {"hidden_states": stream}
        return (stream, *args[1:]), kwargs

    def _handed_on(self, args: tuple, kwargs: dict[str, Any]) -> Tensor:
        hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
        if self.passed is not None and hidden is not self.passed:
            raise HookbookError(
                "This version of transformers passes something other than the residual stream between blocks: run the "
                "full forward pass."
            )
        self.passed = hidden
        return hidden

    def _refuse_options(self, kwargs: dict[str, Any]) -> None:
        if kwargs.get("use_cache") or any(kwargs.get(name) is not None for name in ("past_key_values", "cache")):
            raise HookbookError(
                "A key-value cache needs the blocks that `start_at` leaves out: run whole prompts without a cache, and "
                "generate outside it."
            )
        if getattr(self.block, "_start_at_layer_idx", None) is not None:
            raise HookbookError("`start_at` is given the stream already: pass the tokens, without start_at_layer.")
        stop = getattr(self.block, "_stop_at_layer_idx", None)
        if stop is not None and 0 <= stop < self.layer:
            raise HookbookError(f"stop_at_layer={stop} lies below layer {self.layer}, where `start_at` starts.")

    def _refuse_hooks(self) -> None:
        hooked = [" = ".join(names) for names, point in self.points if point.has_hooks()]
        hooked += [name for name, module in self.modules if foreign_hooks(module)]
        if hooked:
            more = f" (and {len(hooked) - 1} more)" if len(hooked) > 1 else ""
            raise HookbookError(
                f"The hook at {hooked[0]}{more} comes before block {self.layer} and has no effect in `start_at`: take "
                "it off, record the stream with it, or name the hooks that you want (names_filter of run_with_cache)."
            )


def _starts(block: nn.Module) -> bool:
    """Whether an entered `start_at` has put something on this block."""
    placed = [*block._forward_pre_hooks.values(), vars(block).get("forward")]
    return any(isinstance(getattr(hook, "__self__", None), _Start) for hook in placed)


def _below(
    model: TransformerBridge, layer: int
) -> tuple[list[tuple[list[str], HookPoint]], list[tuple[str, nn.Module]]]:
    """Hook points, under all their names, and modules of the embedding and of the blocks below a layer."""
    points: dict[int, tuple[list[str], HookPoint]] = {}
    for name, point in model.hook_dict.items():
        if _is_below(name, layer):
            points.setdefault(id(point), ([], point))[0].append(name)
    # each wrapped module is found within the wrapped block first, and known to users by the bridge's name
    modules = [
        (n.replace("._original_component", ""), part) for n, part in model.named_modules() if _is_below(n, layer)
    ]
    return list(points.values()), modules


def _is_below(name: str, layer: int) -> bool:
    start, _, rest = name.partition(".")
    if start == "blocks":
        return rest != "" and int(rest.partition(".")[0]) < layer
    return start.removeprefix("hook_") in ("embed", "pos_embed", "tokens")


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.equal(one, other)
