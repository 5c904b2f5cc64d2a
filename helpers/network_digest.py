"""What a network computes, as text for a key: weights, architecture, code of one's own; and when no key can say it."""

import importlib.metadata
import json
from hashlib import sha256
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint
from transformer_lens.model_bridge import TransformerBridge

from helpers.hooks import HookedModel, some

_LIBRARIES = ("torch", "transformers", "transformer_lens")
# What TransformerLens keeps on modules, a bridge's last attention pattern among it: none of it changes the function
_STATE = {"training", "is_caching", "context_level", "name", "_pattern"}


def network_digest(model: HookedModel) -> str:
    """A SHA-256 that changes with the function that the network computes.

    Over every parameter, buffer and other tensor bit by bit (so folding, expanded heads, dtype and edits of weights
    count; about half a second per gigabyte), the classes and simple attributes of its modules, the configuration of a
    bridge, the byte code of classes from outside torch, transformers and TransformerLens, the kind of device and the
    versions of those three. It does not see functions that such a class calls and does not contain.
    """
    modules = list(model.named_modules())
    parts = {
        "tensors": _tensor_digests(modules),
        "modules": {name: f"{type(module).__module__}.{type(module).__qualname__}" for name, module in modules},
        "code": {name: _code_of_class(type(module)) for name, module in modules if not _of_libraries(type(module))},
        "attributes": {name: _attributes(module) for name, module in modules if _home(type(module)) != _LIBRARIES[2]},
        "configuration": _configuration(model) if isinstance(model, TransformerBridge) else {},
        "device": device_of(model).type,
        "precision": torch.get_float32_matmul_precision(),
        "versions": {name: importlib.metadata.version(name.replace("_", "-")) for name in _LIBRARIES},
    }
    return text_digest(parts)


def indescribable(model: HookedModel) -> str:
    """Why the digest would not say what the network computes now; empty where it does."""
    modules = list(model.named_modules())
    hooked = [
        name or "the network itself"
        for name, module in modules
        for hook in [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        if isinstance(module, HookPoint) or _home(hook) not in _LIBRARIES  # these leave hooks that only look
    ]
    if torch.nn.modules.module._has_any_global_hook():
        return "a global hook of torch is attached"
    if hooked:
        return f"hooks are attached at {some(list(dict.fromkeys(hooked)))}"
    patched = [name for name, module in modules if not _of_libraries(vars(module).get("forward"))]
    if patched:
        return f"the forward function of {some(patched)} was replaced"
    if training := [name or "the network" for name, module in modules if module.training]:
        return f"{some(training[:1])} is in training mode (call its eval())"
    if torch.is_autocast_enabled(device_of(model).type):
        return "autocast is on"
    return ""


def tensor_digest(value: Tensor) -> str:
    """A SHA-256 over type, shape and bits."""
    data = value.detach().cpu().contiguous()
    head = f"{data.dtype} {tuple(data.shape)} ".encode()
    flat = data.reshape(-1).view(torch.uint8) if data.numel() else torch.zeros(0, dtype=torch.uint8)
    digest = sha256(head)
    digest.update(np.ascontiguousarray(flat.numpy()))
    return digest.hexdigest()


def text_digest(parts: Any) -> str:
    """A SHA-256 over plain data; what JSON does not know counts by its `repr`."""
    return sha256(json.dumps(parts, sort_keys=True, default=repr).encode()).hexdigest()


def device_of(model: nn.Module) -> torch.device:
    """Where the first parameter is; the CPU without parameters."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def _tensor_digests(modules: list[tuple[str, nn.Module]]) -> dict[str, str]:
    """Of every tensor that a module holds; a bridge's own `named_parameters` leaves some out."""
    digests, seen = {}, {}
    for path, module in modules:
        for name, value in {**module._parameters, **module._buffers, **vars(module)}.items():
            if isinstance(value, Tensor) and name not in _STATE:
                same = (value.data_ptr(), value.dtype, value.shape, value.stride())  # tied, or under two names
                digests[f"{path}.{name}"] = seen[same] if same in seen else tensor_digest(value)
                seen[same] = digests[f"{path}.{name}"]
    return digests


def _configuration(model: TransformerBridge) -> dict[str, Any]:
    config = model.original_model.config.to_dict()
    config.pop("_name_or_path", None)  # where it was loaded from
    return {"compatibility": model.compatibility_mode, "bridge": vars(model.cfg), "model": config}


def _code_of_class(own: type) -> dict[str, list]:
    """Byte code of the functions of a class and of its bases."""
    return {
        f"{cls.__qualname__}.{name}": _code(function.__code__) + [repr(function.__defaults__)]
        for cls in own.__mro__
        if cls is not object and not _of_libraries(cls)
        for name, value in vars(cls).items()
        if isinstance(function := getattr(value, "__func__", getattr(value, "fget", value)), FunctionType)
    }


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Numbers and texts that a module holds; those of TransformerLens's modules count forward passes and the like."""
    simple = str | int | float | tuple | list
    return {name: value for name, value in vars(module).items() if name not in _STATE and isinstance(value, simple)}


def _code(code: CodeType) -> list:
    constants = [_code(constant) if isinstance(constant, CodeType) else repr(constant) for constant in code.co_consts]
    return [code.co_code.hex(), code.co_names, constants]


def _of_libraries(thing: type | FunctionType | None) -> bool:
    return thing is None or _home(thing) in _LIBRARIES


def _home(thing: Any) -> str:
    """The package that a class or function was defined in."""
    return (getattr(thing, "__module__", None) or "").split(".")[0]
