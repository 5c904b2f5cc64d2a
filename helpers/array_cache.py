"""Arrays on the disk, by key: whole or absent, memory-mapped, and the least recently used first to go.

Files lie in `cache_dir()/activations`, up to HOOKBOOK_CACHE_GB (5; 0 turns the cache off). A file is written beside its
place and renamed, so processes need no lock: two that compute the same write the same. Nothing but files with names
made here is ever deleted.
"""

import errno
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
import psutil
from jaxtyping import Shaped

from helpers.cache import cache_dir
from helpers.errors import HookbookError

_HOST = sha256(platform.node().encode()).hexdigest()[:8]
_WHOLE = re.compile(r"[0-9a-f]{64}\.npy")
_PART = re.compile(r"part-([0-9a-f]{8})-(\d+)-\w+")
_DAY = 86400


def folder() -> Path:
    """Where the arrays lie, or will."""
    return cache_dir() / "activations"


def limit_bytes() -> int:
    """How much the arrays may take together.

    Raises:
        HookbookError: HOOKBOOK_CACHE_GB is no number.
    """
    text = os.environ.get("HOOKBOOK_CACHE_GB") or "5"
    try:
        return int(float(text) * 1e9)
    except (ValueError, OverflowError):
        raise HookbookError(
            f"HOOKBOOK_CACHE_GB={text} is no number of gigabytes: set one, or 0 for no cache."
        ) from None


def load(key: str) -> Shaped[np.ndarray, "..."] | None:
    """The array of a key (64 hexadecimal digits), memory-mapped and read-only; None where there is no whole one."""
    path = folder() / f"{key}.npy"
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    try:
        os.utime(path)  # used just now
    except OSError:
        pass  # a cache that is read-only, or another process that made room: the array stays mapped
    return array


class Writer:
    """An array that arrives in pieces along its first axis."""

    def __init__(self, key: str, shape: tuple[int, ...], dtype: np.dtype):
        self._path = folder() / f"{key}.npy"
        self._shape, self._dtype, self._left = shape, np.dtype(dtype), int(np.prod(shape))
        handle, name = tempfile.mkstemp(prefix=f"part-{_HOST}-{os.getpid()}-", dir=folder())
        self._part, self._file = Path(name), os.fdopen(handle, "wb")
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_2_0(self._file, header)

    def write(self, rows: Shaped[np.ndarray, "..."]) -> None:
        """Append rows; written, not mapped, so that a full disk is an error and no bus error."""
        if rows.shape[1:] != self._shape[1:] or rows.dtype != self._dtype:
            raise ValueError(f"rows of {rows.shape} {rows.dtype} in an array of {self._shape} {self._dtype}")
        self._file.write(np.ascontiguousarray(rows).data)
        self._left -= rows.size

    def finish(self) -> None:
        """Have it all on the disk, then give it its name."""
        assert self._left == 0, "the array is not complete"
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._part, self._path)

    def discard(self) -> None:
        """Leave nothing of an unfinished array."""
        try:
            self._file.close()
        except OSError:
            pass  # what it could not flush is thrown away
        finally:
            self._part.unlink(missing_ok=True)


@contextmanager
def writing(arrays: dict[str, tuple[tuple[int, ...], np.dtype]]) -> Iterator[dict[str, Writer]]:
    """Writers by key for arrays of these shapes and types, after making room; they are kept if the block ends well.

    Raises:
        OSError: they cannot be stored.
    """
    writers: dict[str, Writer] = {}
    try:
        folder().mkdir(parents=True, exist_ok=True)
        _make_room(sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in arrays.values()))
        for key, (shape, dtype) in arrays.items():
            writers[key] = Writer(key, shape, dtype)
        yield writers
        for writer in writers.values():
            writer.finish()
    finally:
        for writer in writers.values():
            writer.discard()


def _make_room(needed: int) -> None:
    """Delete what was used longest ago until `needed` bytes fit under the limit, and what killed processes left."""
    files = {path: stat for path in folder().iterdir() if (stat := _own_file(path)) is not None}
    for path in [path for path, stat in files.items() if _is_orphan(path, stat)]:
        path.unlink(missing_ok=True)
        del files[path]
    if needed > limit_bytes():
        raise OSError(errno.EFBIG, f"{needed / 1e9:.2g} GB are more than HOOKBOOK_CACHE_GB allows")
    whole = sorted((path for path in files if _WHOLE.fullmatch(path.name)), key=lambda path: files[path].st_mtime_ns)
    total = sum(stat.st_size for stat in files.values())
    for path in whole:
        if total + needed <= limit_bytes():
            break
        try:
            path.unlink(missing_ok=True)  # who has it mapped keeps it
        except PermissionError:
            continue  # Windows, where a mapped file stays
        total -= files[path].st_size
    if shutil.disk_usage(folder()).free < needed:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _own_file(path: Path) -> os.stat_result | None:
    """Size and time of a regular file with a name made here."""
    if not (_WHOLE.fullmatch(path.name) or _PART.fullmatch(path.name)) or path.is_symlink() or not path.is_file():
        return None
    try:
        return path.stat()
    except OSError:
        return None


def _is_orphan(path: Path, stat: os.stat_result) -> bool:
    """Whether the process that was writing this part is gone (on another machine: for a day)."""
    part = _PART.fullmatch(path.name)
    if part is None:
        return False
    dead = part[1] == _HOST and not psutil.pid_exists(int(part[2]))
    return dead or time.time() - stat.st_mtime > _DAY
