"""Activations of a network on prompts: computed once, then read from a cache that notebooks and runs share."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from transformer_lens.hook_points import HookPoint
from transformer_lens.model_bridge import TransformerBridge

from helpers import array_cache
from helpers.errors import HookbookError
from helpers.hooks import HookedModel, HookNames, Target, attached, find_targets
from helpers.network_digest import device_of, indescribable, network_digest, tensor_digest, text_digest
from helpers.padding import refuse_hidden_padding

_Batches = Iterator[dict[str, Float[np.ndarray, "prompt ..."]]]

_said: set[str] = set()


def activations(
    model: HookedModel,
    tokens: Shaped[Tensor | np.ndarray, "prompt ..."],
    hook_names: HookNames,
    *,
    mask: Bool[Tensor | np.ndarray, "prompt pos"] | None = None,
    positions: int | Sequence[int] | Int[Tensor | np.ndarray, "prompt k"] | None = None,
    batch_size: int = 16,
    name: str = "",
) -> dict[str, Float[np.ndarray, "prompt ..."]]:
    """Activations at some hooks for every prompt, as read-only arrays [prompt, pos, ...] that may be memory-mapped.

    Each hook is stored on its own, under a key of the network (see `network_digest`), the tokens, mask and positions:
    asking for one more hook computes just that one. While hooks or edits are attached, in training mode and under
    autocast the network is no longer what its key says: then everything is computed and nothing stored, which is said
    once, as is a cache that cannot be written. A hit still reads all weights, to be sure that they are the same.

    Args:
        model: a hooked model; runs without gradients.
        tokens: token ids [prompt, pos], or whatever a network that is no language model takes, prompts first.
        hook_names: a name, several, or a filter on names; they are the keys of the result.
        mask: true at tokens, false at padding, left or right; activations at padding are NaN (query positions in
            patterns). Without it all positions are tokens, and prompts that look padded are refused.
        positions: the positions to keep, the same for all prompts or by prompt [prompt, k] (for last tokens
            `mask.sum(1, keepdim=True) - 1`), negative from the end; the axis stays. They may not be padding.
        batch_size: prompts in one forward pass.
        name: a label that goes into the key, for what a digest cannot see.

    Raises:
        HookbookError: a hook that does not exist or fire, inputs that do not fit each other, HOOKBOOK_CACHE_GB.
    """
    targets = find_targets(model, hook_names)
    inputs = torch.as_tensor(tokens)
    inputs = inputs if inputs.is_floating_point() else inputs.long()
    if inputs.ndim < 2 or not len(inputs) or batch_size < 1:
        raise HookbookError(
            f"Tokens have the shape {tuple(inputs.shape)}: give [prompt, position], and batches of 1 up."
        )
    real = _mask(mask, inputs)
    if mask is None:
        refuse_hidden_padding(model, inputs)
    kept = None if positions is None else _positions(positions, inputs, real)
    compute = partial(_batches, model, inputs, real, kept, batch_size)

    reason = indescribable(model)
    if reason:
        _say_once(f"Activations are computed without the cache: {reason}.")
    if reason or not array_cache.limit_bytes():
        return _by_name(targets, _in_memory(targets, compute(targets)))
    asked = [network_digest(model), *map(tensor_digest, (inputs, real)), None if kept is None else tensor_digest(kept)]
    keys = {target.name: text_digest([*asked, name, target.spellings]) for target in targets}
    found = {target.name: array_cache.load(keys[target.name]) for target in targets}
    missing = [target for target in targets if found[target.name] is None]
    if missing:
        try:
            found |= _stored(missing, compute(missing), keys, len(inputs))
        except OSError as error:
            why = error.strerror or error
            _say_once(f"Activations are computed without the cache ({why}): see HOOKBOOK_CACHE and HOOKBOOK_CACHE_GB.")
            found |= _in_memory(missing, compute(missing))
    return _by_name(targets, found)


def _by_name(targets: list[Target], arrays: dict[str, np.ndarray]) -> dict[str, Float[np.ndarray, "prompt ..."]]:
    """Under every name that was asked for: two may be of the same hook."""
    return {name: arrays[target.name] for target in targets for name in target.asked}


def _in_memory(targets: list[Target], batches: _Batches) -> dict[str, Float[np.ndarray, "prompt ..."]]:
    pieces = list(batches)
    arrays = {target.name: np.concatenate([piece[target.name] for piece in pieces]) for target in targets}
    for array in arrays.values():
        array.setflags(write=False)
    return arrays


def _stored(
    targets: list[Target], batches: _Batches, keys: dict[str, str], n_prompts: int
) -> dict[str, Float[np.ndarray, "prompt ..."]]:
    """Write batch by batch, so that what does not fit into memory fits into the cache, and map the result."""
    first = next(batches)
    shapes = {keys[name]: ((n_prompts, *rows.shape[1:]), rows.dtype) for name, rows in first.items()}
    with closing(batches), array_cache.writing(shapes) as writers:
        for piece in chain([first], batches):
            for name, rows in piece.items():
                writers[keys[name]].write(rows)
    arrays = {target.name: array_cache.load(keys[target.name]) for target in targets}
    if any(array is None for array in arrays.values()):
        raise OSError("another process needed the room")
    return arrays


def _batches(
    model: HookedModel,
    inputs: Shaped[Tensor, "prompt ..."],
    real: Bool[Tensor, "prompt pos"],
    kept: Int[Tensor, "prompt k"] | None,
    batch_size: int,
    targets: list[Target],
) -> _Batches:
    for rows in torch.arange(len(inputs)).split(batch_size):
        seen: dict[str, Tensor] = {}
        hooks = [(target.point, _recorder(target, seen)) for target in targets]
        with torch.no_grad(), attached(hooks):
            _forward(model, inputs[rows], real[rows], targets)
        batch = {}
        for target in targets:
            if target.name not in seen:
                raise HookbookError(f"{target.name} never fired: this network does not use that hook.")
            value = seen[target.name]
            if len(value) != len(rows):
                raise HookbookError(f"{target.name} has the shape {tuple(value.shape)}, not one row per prompt.")
            value = _selected(value, target, real[rows], None if kept is None else kept[rows])
            batch[target.name] = (value.float() if value.dtype == torch.bfloat16 else value).cpu().numpy()
        yield batch


def _recorder(target: Target, seen: dict[str, Tensor]):
    def record(value: Tensor, *, hook: HookPoint) -> None:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise HookbookError(f"{target.name} carries no floating-point tensor: ask for another hook.")
        if target.name in seen:
            raise HookbookError(f"{target.name} fires more than once in a forward pass: which one is meant?")
        seen[target.name] = value.detach()

    return record


def _forward(model: HookedModel, inputs: Tensor, real: Bool[Tensor, "prompt pos"], targets: list[Target]) -> None:
    device = device_of(model)
    options = {} if real.all() else {"attention_mask": real.long().to(device)}
    if isinstance(model, TransformerBridge):
        options |= {"return_type": None, "stop_at_layer": _last_layer(model, targets)}
    elif options and "attention_mask" not in inspect.signature(model.forward).parameters:
        raise HookbookError(
            "This network takes no attention_mask, so it cannot tell padding from tokens: leave it out."
        )
    model(inputs.to(device), **options)


def _last_layer(model: TransformerBridge, targets: list[Target]) -> int | None:
    """The layer before which a forward pass may stop; None where it must run to its end."""
    layers = []
    for target in targets:
        start, _, rest = (target.point.name or "").partition(".")
        if start != "blocks":
            return None
        layers.append(int(rest.partition(".")[0]))
    return max(layers) + 1 if max(layers) + 1 < model.cfg.n_layers else None


def _selected(
    value: Tensor, target: Target, real: Bool[Tensor, "prompt pos"], kept: Int[Tensor, "prompt k"] | None
) -> Tensor:
    """The positions that are kept, and NaN at padding."""
    if kept is None and real.all():
        return value
    axis = target.position_axis(value)
    if value.shape[axis] != real.shape[1]:
        raise HookbookError(
            f"{target.name} has the shape {tuple(value.shape)}: its positions are not those of the tokens."
        )
    shape = [len(value) if i == 0 else -1 if i == axis else 1 for i in range(value.ndim)]
    if kept is None:
        return value.masked_fill(~real.to(value.device).reshape(shape), float("nan"))
    index = kept.to(value.device).reshape(shape)
    return value.gather(axis, index.expand([-1 if i in (0, axis) else size for i, size in enumerate(value.shape)]))


def _mask(mask: Bool[Tensor | np.ndarray, "prompt pos"] | None, inputs: Tensor) -> Bool[Tensor, "prompt pos"]:
    if mask is None:
        return torch.ones(inputs.shape[:2], dtype=torch.bool)
    real = torch.as_tensor(mask).bool().cpu()
    if real.shape != inputs.shape[:2] or not real.any(dim=1).all():
        raise HookbookError(
            f"The mask has the shape {tuple(real.shape)} for tokens of {tuple(inputs.shape)}: give one of the same "
            "shape that has a token in each prompt."
        )
    return real


def _positions(
    positions: int | Sequence[int] | Int[Tensor | np.ndarray, "prompt k"],
    inputs: Tensor,
    real: Bool[Tensor, "prompt pos"],
) -> Int[Tensor, "prompt k"]:
    given, (n, size) = torch.as_tensor(positions).cpu(), real.shape
    given = given.reshape(1, -1).expand(n, -1) if given.ndim < 2 else given
    if given.dtype.is_floating_point or given.dtype == torch.bool or given.shape[0] != n or not given.numel():
        raise HookbookError(
            f"Positions are whole numbers, [k] or [prompt, k] for {n} prompts, not {tuple(given.shape)}."
        )
    if (given < -size).any() or (given >= size).any():
        raise HookbookError(
            f"There are {size} positions: {given[(given < -size) | (given >= size)][0]} is out of range."
        )
    kept = given.long() % size
    if not (there := real.gather(1, kept)).all():
        prompt = int((~there).any(1).nonzero()[0])
        raise HookbookError(f"A position of prompt {prompt} ({kept[prompt].tolist()}) is padding.")
    return kept


def _say_once(sentence: str) -> None:
    if sentence not in _said:
        _said.add(sentence)
        print(sentence, flush=True)
