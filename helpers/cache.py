"""The folder for what can be fetched again: what is in it is whole or absent, and one process makes it, others wait."""

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_cache_dir

from helpers.errors import HookbookError

_DISK_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}


def cache_dir() -> Path:
    """The folder for what Hookbook can fetch again: HOOKBOOK_CACHE, else the user's cache folder."""
    chosen = os.environ.get("HOOKBOOK_CACHE")
    return Path(chosen).expanduser().resolve() if chosen else Path(user_cache_dir("hookbook"))


def sha256_file(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ensure(place: Path, is_whole: Callable[[Path], bool], make: Callable[[Path], Path], megabytes: float) -> Path:
    """A file or folder in the cache, made first if it is not there whole; one process makes it, others wait.

    Args:
        place: where it stands, or will.
        is_whole: whether what stands there can be used as it is.
        make: gets an empty folder beside the place, to work in, and returns what in it gets the place's name.
        megabytes: what making it takes on the disk.

    Raises:
        HookbookError: a full disk, a cache that cannot be written, and what `make` raises.
    """
    if is_whole(place):
        return place
    with writing_to(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
        with _lock(place):
            if not is_whole(place):  # another process may have finished while this one waited
                _make(place, make, megabytes)
    return place


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
            raise disk_full(folder) from error
        raise


def require_free(folder: Path, megabytes: float) -> None:
    """Refuse early what would fill the disk that holds `folder`."""
    free = shutil.disk_usage(folder).free / 1e6
    if free < megabytes:
        raise HookbookError(
            f"About {megabytes:.0f} MB are needed and {free:.0f} MB are free on the disk that holds {folder}: "
            "free some space, or set HOOKBOOK_CACHE (for models of the hub HF_HOME) to a folder on another disk."
        )


def disk_full(folder: Path) -> HookbookError:
    """What to tell the user when there is no more space for `folder`."""
    return HookbookError(
        f"The disk that holds {folder} is full: free some space, or set HOOKBOOK_CACHE (for models of the hub "
        "HF_HOME) to a folder on another disk."
    )


def sync(path: Path) -> None:
    """Flush a file or folder to the disk; Windows opens no folders, there the rename has to do."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refusal(folder: Path, code: int, text: str) -> HookbookError:
    if code in _DISK_FULL:
        return disk_full(folder)
    return HookbookError(
        f"Cannot write to the cache {folder} ({text}): set HOOKBOOK_CACHE (for models of the hub HF_HOME) to a folder "
        "that you can write to."
    )


@contextmanager
def _lock(place: Path) -> Iterator[None]:
    """Hold the place's lock; the operating system frees it when its holder dies, so it cannot go stale."""
    lock = FileLock(place.with_name(place.name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"Another process is preparing {place.name}: waiting for it ...", flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _make(place: Path, make: Callable[[Path], Path], megabytes: float) -> None:
    """Make it beside its place, and give it its name last."""
    for left in place.parent.glob(f"{place.name}.part-*"):  # by a killed process: the lock is ours
        shutil.rmtree(left, ignore_errors=True)
    require_free(place.parent, megabytes)
    work = Path(tempfile.mkdtemp(prefix=f"{place.name}.part-", dir=place.parent))
    try:
        made = make(work)
        if place.exists():  # damaged, or it would have been taken as it is
            place.rename(work / "damaged")
        made.rename(place)
        sync(place.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)
