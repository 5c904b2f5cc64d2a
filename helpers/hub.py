"""Folders of safetensors: the user's own, and the hub's as its cache keeps them; nothing else is ever loaded."""

import difflib
import json
from pathlib import Path

import huggingface_hub as hf  # loads its parts when they are asked for; all of them are 10 MB in each worker of a sweep

from helpers.cache import require_free, writing_to
from helpers.errors import HookbookError

_CONFIG = "config.json"
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "tokenizer.model", "spiece.model", "vocab.txt")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def is_path(name: str) -> bool:
    """Whether the name means a folder on this machine rather than a model of the hub."""
    return name.startswith((".", "~")) or "\\" in name or Path(name).is_absolute() or Path(name).is_dir()


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that hold the folder's model, in order; empty where one is absent."""
    if (folder / _SINGLE).exists():
        return [folder / _SINGLE]
    try:
        shards = sorted(set(json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return []
    files = [folder / shard for shard in shards if Path(shard).name == shard]
    return files if len(files) == len(shards) and all(file.exists() for file in files) else []


def local_folder(name: str, *, weights: bool = True) -> Path:
    """The user's own folder, once it is clear that it can be loaded.

    Raises:
        HookbookError: no such folder, no config or tokenizer, weights that are absent or pickled.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise HookbookError(f"There is no folder {name}: give a folder with {_CONFIG}, {_SINGLE} and tokenizer files.")
    names = [path.name for path in folder.iterdir()]
    if weights and not weight_files(folder):
        raise _no_weights(name, names)
    if _CONFIG not in names:
        raise HookbookError(f"{name} has no {_CONFIG}: save the model there with transformers' save_pretrained.")
    if not set(names) & set(_TOKENIZER):
        raise HookbookError(f"{name} has no tokenizer files: save the tokenizer there with its save_pretrained.")
    return folder


def cached_folder(name: str, revision: str | None, *, weights: bool = True) -> Path | None:
    """The hub's model in the hub's cache on this machine if it is complete there; asks no network."""
    try:
        config = hf.try_to_load_from_cache(name, _CONFIG, revision=revision)
    except ValueError:  # huggingface_hub's HFValidationError: no name that the hub could have
        return None
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    with_tokenizer = any((folder / file).exists() for file in _TOKENIZER)
    return folder if with_tokenizer and (weight_files(folder) or not weights) else None


def hub_folder(name: str, revision: str | None, *, known: list[str], weights: bool = True) -> Path:
    """The hub's model on this machine: from the cache where it is complete, else downloaded.

    Args:
        name: as the hub writes it.
        revision: branch, tag or commit; None for the main branch.
        known: names to suggest where this one leads nowhere.
        weights: False fetches config and tokenizer alone.

    Raises:
        HookbookError: unknown or gated model, unknown revision, pickles alone, no network, full disk.
    """
    folder = cached_folder(name, revision, weights=weights)
    if folder:
        return folder
    try:
        with writing_to(Path(hf.constants.HF_HUB_CACHE)):
            return _download(name, revision, weights)
    except HookbookError:
        raise
    except Exception as error:  # the hub's client, its transport and the token's file each have errors of their own
        raise _hub_refusal(name, revision, known, error) from error


def _download(name: str, revision: str | None, weights: bool) -> Path:
    listing = hf.HfApi().model_info(name, revision=revision, files_metadata=True)
    sizes = {file.rfilename: file.size or 0 for file in listing.siblings or [] if "/" not in file.rfilename}
    if _CONFIG not in sizes:
        raise HookbookError(f"{name} has no {_CONFIG} on the hub: it is not a model that transformers can load.")
    wanted = [file for file in sizes if _is_wanted(file, weights, single=_SINGLE in sizes)]
    if weights and not any(file.endswith(".safetensors") for file in wanted):
        raise _no_weights(name, list(sizes))
    megabytes = sum(sizes[file] for file in wanted) / 1e6
    cache = Path(hf.constants.HF_HUB_CACHE)
    cache.mkdir(parents=True, exist_ok=True)
    require_free(cache, megabytes)
    print(f"Fetching {name} ({megabytes:.0f} MB) from the hub, once ...", flush=True)
    return Path(hf.snapshot_download(name, revision=revision, allow_patterns=wanted))


def _is_wanted(file: str, weights: bool, single: bool) -> bool:
    """Whether to fetch this file of the repository's top folder: what transformers reads, in one format only."""
    if file.endswith(".safetensors"):
        return weights and (file == _SINGLE if single else file.startswith("model-"))
    return file.endswith((".json", ".txt", ".model", ".jinja"))


def _no_weights(name: str, files: list[str]) -> HookbookError:
    if any(file.endswith(_PICKLES) for file in files):
        return HookbookError(
            f"{name} holds its weights only as pickles, which can run any code when they are opened and are never "
            "loaded here: use a revision or a model with safetensors, or convert it where you trust it "
            "(save_pretrained writes safetensors)."
        )
    if "adapter_config.json" in files:
        return HookbookError(f"{name} is an adapter, not a whole model: merge it into its base model and save that.")
    return HookbookError(f"{name} has no complete safetensors ({_SINGLE}, or {_INDEX} and all of its parts).")


def nearest(name: str, known: list[str]) -> str:
    """A hint `; did you mean ...?` with the known names most like this one, or nothing."""
    short = {candidate.split("/")[-1].lower(): candidate for candidate in known}
    full = {candidate.lower(): candidate for candidate in known}
    found = [
        table[match]
        for table, asked in ((full, name.lower()), (short, name.split("/")[-1].lower()))
        for match in difflib.get_close_matches(asked, table, n=3, cutoff=0.6)
    ]
    others = [match for match in dict.fromkeys(found) if match != name]
    return f"; did you mean {' or '.join(others)}?" if others else ""


def _hub_refusal(name: str, revision: str | None, known: list[str], error: Exception) -> HookbookError:
    """Say in one sentence what the hub or the network said."""
    from huggingface_hub import errors  # with the hub's client, see above

    hint = nearest(name, known)
    if isinstance(error, errors.GatedRepoError):
        return HookbookError(
            f"{name} is gated: accept its licence on its page of the hub, then log in with `hf auth login` or set "
            "HF_TOKEN."
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return HookbookError(f"{name} has no revision {revision!r}: its page of the hub lists branches and commits.")
    if isinstance(error, (errors.RepositoryNotFoundError, errors.HFValidationError)):
        return HookbookError(
            f"There is no model or folder {name!r} here, nor a model on the hub that this account may see{hint}"
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        return HookbookError(f"{name} is not in this machine's cache and HF_HUB_OFFLINE is set: unset it once{hint}")
    return HookbookError(
        f"{name} is not in this machine's cache and the hub cannot be reached ({type(error).__name__}): connect once, "
        f"or give the path of a folder that holds the model{hint}"
    )
