"""Pack all that a classroom without a network needs: `make bundle` writes build/hookbook-bundle.tar.

The archive holds the repository's files, the packages of requirements.lock as wheels, the default model and the fetched
data in a cache of their own, the built book, and start.sh. It fits machines with the same system and Python as its own.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
NAME = "hookbook"
BUILD = ("setuptools>=77", "wheel")  # what installing Hookbook itself needs, and a lock does not name

START = """#!/bin/sh
# Installs Hookbook from this folder alone, without a network, and opens JupyterLab; `sh start.sh run` runs a notebook.
set -e
cd "$(dirname "$0")"
export HOOKBOOK_CACHE="$PWD/cache" HF_HUB_OFFLINE=1 OMP_WAIT_POLICY=passive
export PIP_NO_INDEX=1 PIP_FIND_LINKS=wheels  # from here: pip takes a space in a path for the end of it
PYTHON=${PYTHON:-python3}
if [ "$(cat .venv/.ready 2>/dev/null)" != "$PWD" ]; then
  "$PYTHON" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "@PYTHON@")' || {
    echo "This bundle was made for Python @PYTHON@ on @SYSTEM@: PYTHON=python@PYTHON@ sh start.sh" >&2
    exit 1
  }
  rm -rf .venv
  "$PYTHON" -m venv .venv
  echo "Installing from wheels/, some minutes ..."
  .venv/bin/python -m pip install --quiet setuptools wheel
  .venv/bin/python -m pip install --quiet -r requirements.lock
  .venv/bin/python -m pip install --quiet --no-deps --no-build-isolation -e .
  echo "$PWD" > .venv/.ready
fi
if [ "$1" = run ]; then shift; exec .venv/bin/hookbook run "${@:-sentiment-direction}"; fi
echo "To read: book/_build/index.html"
exec .venv/bin/python -m jupyterlab notebooks "$@"
"""


def files() -> list[Path]:
    """The files of the repository, without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = [name for name in listed.stdout.decode().split("\0") if name]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def copy_files(folder: Path) -> None:
    """Copy the repository's files, and write start.sh beside them."""
    for path in files():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    python = ".".join(platform.python_version_tuple()[:2])
    script = START.replace("@PYTHON@", python).replace("@SYSTEM@", f"{platform.system()} {platform.machine()}")
    (folder / "start.sh").write_text(script, encoding="utf-8", newline="\n")


def fetch_wheels(folder: Path, lock: Path) -> None:
    """Fetch every package of the lock for this machine's system and Python, built where there is no wheel."""
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(folder)]
    subprocess.run([*wheel, "-r", str(lock)], check=True)
    subprocess.run([*wheel, *BUILD], check=True)


def fetch_cache(folder: Path) -> None:
    """Fetch the default model, and the data that notebooks fetch."""
    environment = {**os.environ, "HOOKBOOK_CACHE": str(folder)}
    fetch = "from helpers import datasets, models; models.fetch('smollm2-135m'); datasets.rotten_tomatoes()"
    subprocess.run([sys.executable, "-c", fetch], cwd=ROOT, env=environment, check=True)


def build_book(folder: Path) -> None:
    """Build the book."""
    subprocess.run([sys.executable, "-m", "book", str(folder)], cwd=ROOT, check=True)


def pack(folder: Path, archive: Path) -> Path:
    """One archive of the folder, whose name in it is `hookbook`; an older one is replaced by a whole one."""
    unfinished = archive.with_suffix(".unfinished")
    with tarfile.open(unfinished, "w") as tar:  # wheels and weights do not get smaller
        tar.add(folder, NAME)
    return unfinished.replace(archive)


def main(arguments: list[str]) -> None:
    """Make the parts and pack them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "hookbook-bundle.tar")
    parser.add_argument("--lock", type=Path, default=ROOT / "requirements.lock", help="of the packages to take along")
    parser.add_argument("--without", nargs="*", default=[], choices=["cache", "book"], help="leave these out")
    chosen = parser.parse_args(arguments)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    folder = chosen.out.parent / "bundle"
    shutil.rmtree(folder, ignore_errors=True)
    print("files ...", flush=True)
    copy_files(folder)
    print("packages ...", flush=True)
    fetch_wheels(folder / "wheels", chosen.lock)
    if "cache" not in chosen.without:
        print("model and data ...", flush=True)
        fetch_cache(folder / "cache")
    if "book" not in chosen.without:
        print("book ...", flush=True)
        build_book(folder / "book" / "_build")
    pack(folder, chosen.out)
    shutil.rmtree(folder)
    print(f"{chosen.out} ({chosen.out.stat().st_size / 1e9:.1f} GB): tar -xf it there, then sh hookbook/start.sh")


if __name__ == "__main__":
    main(sys.argv[1:])
