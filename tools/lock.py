"""Write requirements.lock: `make lock` runs this with the Python of a fresh, empty environment.

The environment receives what pyproject.toml names, with its extras and without Hookbook itself, and its
`pip freeze` becomes the lock. Three things make that lock fit other machines: torch is pinned without the suffix of its
CPU build, what only some platforms install is left to pip, and releases too new for the oldest Python are passed over.
"""

import platform
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements.lock"
SOME_PLATFORMS_ONLY = re.compile(r"(nvidia|cuda|triton|setuptools|appnope|colorama|pywin)", re.IGNORECASE)


def pip(*arguments: str) -> str:
    """Run pip in this environment and return what it prints."""
    return subprocess.run(
        [sys.executable, "-m", "pip", *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def too_new(oldest_python: str) -> list[str]:
    """Return `name<version` for every installed release that does not run on `oldest_python`."""
    from packaging.specifiers import SpecifierSet  # one of the packages that were just installed

    return [
        f"{found.name}<{found.version}"
        for found in distributions()
        if oldest_python not in SpecifierSet(found.metadata["Requires-Python"] or "")
    ]


def main(torch: str) -> None:
    """Install everything, torch first at version `torch`, and write the lock."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    oldest = re.search(r">=\s*([\d.]+)", project["requires-python"])[1]

    pip("install", "--quiet", f"torch=={torch}")  # first, so that no other package chooses its version
    pip("install", "--quiet", *wanted)
    passed_over: list[str] = []
    while refused := too_new(oldest):
        passed_over += refused
        print("too new for Python", oldest, *refused)
        pip("install", "--quiet", *wanted, *passed_over)

    pins = [line.split("+")[0] for line in pip("freeze").splitlines() if not SOME_PLATFORMS_ONLY.match(line)]
    header = (
        f"# The versions that Hookbook is tested with, on Python {platform.python_version()}. Made by `make lock`:\n"
        "# pip freeze of a fresh environment with what pyproject.toml names, less what only some platforms install.\n"
    )
    LOCK.write_text(header + "\n".join(sorted(pins, key=str.lower)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
