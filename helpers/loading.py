"""A folder of safetensors becomes a TransformerLens bridge; what cannot be loaded is said in a sentence."""

import contextlib
import ctypes
import gc
import mmap
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors import SafetensorError
from torch import nn
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.sources._hf_format import determine_architecture_from_hf_config
from transformer_lens.model_bridge.sources.transformers.helpers import get_hf_model_class_for_architecture
from transformer_lens.utilities import get_device
from transformers import AutoConfig, AutoTokenizer, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as hf_logging

from helpers import null_weights
from helpers.errors import HookbookError

# TransformerLens generates with the cache under its old name, which works until the release that the warning names
warnings.filterwarnings("ignore", message=".*`past_key_values` is deprecated", category=FutureWarning)

# Bytes per parameter at the peak of folding, which TransformerLens computes in float32 whatever the model's type
# (measured: 15.6 with float32 weights, 18 with bfloat16)
_FOLDING_BYTES = 18


# models that a warm process holds for the kernels it forks, by the arguments of `load` and the state of their files
_held: dict[tuple, TransformerBridge] = {}


def load(
    folder: Path,
    *,
    shown: str,
    device: str,
    dtype: str,
    folded: bool,
    expand_kv_heads: bool,
    null: str | None,
    seed: int | None,
) -> TransformerBridge:
    """Load the model in `folder`, or hand out the one that was preloaded; see `helpers.models.load_model`.

    A preloaded model is handed out once: its weights then belong to the caller, in memory of this process alone as soon
    as either writes to it. A second call reads a copy of its own.

    Args:
        folder: config, tokenizer and, unless the null needs none, safetensors.
        shown: the name that the model goes by, in messages and in its configuration.
        device: cpu, cuda, mps or auto.
        dtype: float32, bfloat16 or float16.
        folded: whether to process the weights as HookedTransformer does.
        expand_kv_heads: whether each query head gets its own key and value head.
        null: the name in `helpers.nulls` of what is made of the model; None for the trained weights.
        seed: of what the null draws; None without one.
    """
    place, kind = _device(device), getattr(torch, dtype)
    key = _key(folder, shown, place, dtype, folded, expand_kv_heads, null, seed) if _held else None
    if key in _held:
        return _held.pop(key)
    config, model_class = _architecture(folder, shown)
    _require_memory(shown, config, model_class, kind, folded, null, place)
    with _no_progress_bars():  # of reading local files, which takes a second
        trained = partial(_trained, folder, shown, model_class)
        if null is None:
            model = trained(kind)
        else:
            model = null_weights.make(null, config, model_class, trained, dtype=kind, seed=seed)
        tokenizer = _tokenizer(folder, shown)
    if expand_kv_heads:
        expand(model, shown)
    bridge = TransformerBridge.boot_transformers(
        shown, hf_model=model.to(place), tokenizer=tokenizer, device=place, dtype=kind
    )
    if folded:
        try:
            bridge.enable_compatibility_mode(disable_warnings=True)
        except RuntimeError as error:
            raise HookbookError(
                f'TransformerLens cannot fold {shown} ({_first_line(error)}): load it with processing="raw".'
            ) from error
        _return_memory()
    return bridge


def preload(folder: Path, *, device: str, **arguments: Any) -> None:
    """Load a model now and hand it out at the first call of `load` with these arguments, here or in a fork.

    Only on the CPU: what is on another device does not survive a fork, so there this does nothing.

    Args:
        folder: as for `load`.
        device: as for `load`.
        arguments: the others of `load`, all of them.
    """
    if device != "cpu":
        return
    key = _key(folder, device=device, **arguments)
    if key not in _held:
        _held[key] = load(folder, device=device, **arguments)
        _touch(_held[key])


def _touch(model: nn.Module) -> None:
    """Read a number of every page: weights are mapped from their file, and what only a fork has read is its own."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.flatten()[:: max(1, mmap.PAGESIZE // tensor.element_size())].sum()


def _key(
    folder: Path,
    shown: str,
    device: str,
    dtype: str,
    folded: bool,
    expand_kv_heads: bool,
    null: str | None,
    seed: int | None,
) -> tuple:
    """What two calls of `load` must share to mean one model, its files included: they may have been written anew."""
    files = ((file.name, file.stat()) for file in folder.iterdir() if file.is_file())
    state = sorted((name, status.st_size, status.st_mtime_ns) for name, status in files)
    return (folder.resolve(), *state, shown, device, dtype, folded, expand_kv_heads, null, seed)


def _device(device: str) -> str:
    if device == "auto":
        return get_device()
    if device == "cuda" and not torch.cuda.is_available():
        raise HookbookError('No CUDA device is available here: use device="cpu", or device="auto" to take what is.')
    if device == "mps" and not torch.backends.mps.is_available():
        raise HookbookError('No Apple GPU (mps) is available here: use device="cpu", or device="auto".')
    return device


def _architecture(folder: Path, shown: str) -> tuple[PretrainedConfig, type]:
    """The model's configuration, and the transformers class that loads it; code in the folder is never run."""
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        architecture = determine_architecture_from_hf_config(config)
    except (ValueError, KeyError, OSError) as error:
        raise HookbookError(
            f"transformers and TransformerLens cannot load {shown} without running code from its repository, which is "
            f"never done here ({_first_line(error)}): choose a model of an architecture that they know."
        ) from error
    model_class = get_hf_model_class_for_architecture(architecture)
    if not model_class.__name__.endswith("LM"):
        raise HookbookError(f"{shown} ({architecture}) is not a language model: only those are loaded here.")
    return config, model_class


def _require_memory(
    shown: str,
    config: PretrainedConfig,
    model_class: type,
    dtype: torch.dtype,
    folded: bool,
    null: str | None,
    device: str,
) -> None:
    """Refuse a model that does not fit, before the machine starts to swap or kills the kernel."""
    with torch.device("meta"):  # the shapes alone
        parameters = sum(p.numel() for p in model_class.from_config(config).parameters())
    made = dtype.itemsize if null is None else null_weights.bytes_per_parameter(null, dtype)
    width = _FOLDING_BYTES if folded else made
    free = torch.cuda.mem_get_info()[0] if device == "cuda" else psutil.virtual_memory().available
    if parameters * width <= free:
        return
    advice = [] if not folded else ['processing="raw"']
    advice += ['dtype="bfloat16"'] if dtype == torch.float32 and not folded else []
    raise HookbookError(
        f"Loading {shown} takes about {parameters * width / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free: "
        f"use {' or '.join([*advice, 'a smaller model'])}, or close other programs."
    )


def _trained(folder: Path, shown: str, model_class: type, dtype: torch.dtype) -> PreTrainedModel:
    try:
        model, report = model_class.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=dtype,
            attn_implementation="eager",  # the one that shows attention patterns to hooks
            output_loading_info=True,
        )
    except (SafetensorError, OSError) as error:
        raise HookbookError(
            f"The weights in {folder} cannot be read ({_first_line(error)}): delete it and fetch it again."
        ) from error
    absent = sorted([*report["missing_keys"], *report["mismatched_keys"]], key=str)
    if absent:  # transformers fills such gaps with random numbers
        raise HookbookError(
            f"The weights of {shown} are incomplete ({len(absent)} tensors absent or misshapen, first {absent[0]}): "
            "it is not a whole language model, or its config belongs to another one."
        )
    return model


def _tokenizer(folder: Path, shown: str) -> PreTrainedTokenizerBase:
    """The tokenizer, set to put BOS first where it has one (TransformerLens would load it a second time for that)."""
    try:
        try:
            return AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, add_bos_token=True
            )
        except ValueError:  # it has no BOS token
            return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, OSError) as error:
        raise HookbookError(
            f"The tokenizer of {shown} cannot be read without running code or packages that are not here "
            f"({_first_line(error)})."
        ) from error


def expand(model: PreTrainedModel, shown: str) -> None:
    """Give each query head its own copy of the key and value head that it shares, in place; the same function.

    Grouped-query attention lets `num_attention_heads / num_key_value_heads` neighbouring query heads read one key and
    value head; repeating that head's rows makes plain multi-head attention of it, which head-level methods need.

    Raises:
        HookbookError: the model keeps its keys and values in another layout.
    """
    config = model.config
    n_heads = config.num_attention_heads
    n_groups = getattr(config, "num_key_value_heads", None) or n_heads
    if n_groups == n_heads:
        return
    layers = [module for module in model.modules() if hasattr(module, "k_proj") and hasattr(module, "v_proj")]
    if not isinstance(n_groups, int) or len(layers) != config.num_hidden_layers:
        raise HookbookError(f"expand_kv_heads does not know how {shown} ({config.model_type}) keeps keys and values.")
    for attention in layers:
        for name in ("k_proj", "v_proj"):
            setattr(attention, name, _repeated(getattr(attention, name), n_groups, n_heads // n_groups))
        attention.num_key_value_groups = 1
    config.num_key_value_heads = n_heads


def _repeated(projection: nn.Linear, n_groups: int, times: int) -> nn.Linear:
    """The projection with each head's block of output rows `times` times in a row."""

    def repeat(rows: torch.Tensor) -> nn.Parameter:
        return nn.Parameter(rows.unflatten(0, (n_groups, -1)).repeat_interleave(times, dim=0).flatten(0, 1).detach())

    wide = nn.Linear(1, 1, bias=projection.bias is not None, device="meta")
    wide.in_features, wide.out_features = projection.in_features, projection.out_features * times
    wide.weight = repeat(projection.weight)
    if projection.bias is not None:
        wide.bias = repeat(projection.bias)
    return wide


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".:")


@contextlib.contextmanager
def _no_progress_bars() -> Iterator[None]:
    shown = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            hf_logging.enable_progress_bar()


def _return_memory() -> None:
    """Have glibc give back what folding used (0.4 GB for the default model); elsewhere there is no such call."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
