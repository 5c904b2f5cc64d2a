"""pyproject.toml, requirements.lock, environment.yml, Makefile and CI agree, and nothing of one machine got in."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from helpers.papers import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
REQUIREMENTS = [Requirement(text) for text in PROJECT["dependencies"] + EXTRAS["book"] + EXTRAS["dev"]]
LOCK_LINES = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
PIN_LINES = [line for line in LOCK_LINES if not line.startswith("#")]
PINS = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in PIN_LINES)}
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
OLDEST_PYTHON = re.search(r">=\s*([\d.]+)", PROJECT["requires-python"])[1]


# the lock


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.name)
def test_lock_satisfies_pyproject(requirement: Requirement) -> None:
    version = PINS.get(canonicalize_name(requirement.name))
    assert version, "not in requirements.lock: make lock"
    assert requirement.specifier.contains(version, prereleases=True), f"the lock has {version}: make lock"


def test_lock_is_nothing_but_pins_that_any_machine_can_install() -> None:
    strange = [line for line in PIN_LINES if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.!]*", line)]
    assert not strange, "no suffix of a local build ('+'), no address, no hash, no marker, no option"
    assert not {"hookbook", "pip", "setuptools"} & set(PINS)
    assert not [name for name in PINS if name.startswith(("nvidia", "cuda", "triton"))], "only on some platforms"
    assert [line.lower() for line in PIN_LINES] == sorted(line.lower() for line in PIN_LINES)
    assert len(PINS) == len(PIN_LINES)


def test_pinned_releases_run_on_the_oldest_python() -> None:
    installed = {canonicalize_name(found.name): found for found in importlib.metadata.distributions()}
    assert not set(PINS) - set(installed), "in the lock and not installed: make setup"
    too_new = [
        f"{name}=={version} needs Python {needs}"
        for name, version in PINS.items()
        if installed[name].version.split("+")[0] == version  # of other releases the requirement is not known here
        and OLDEST_PYTHON not in SpecifierSet(needs := installed[name].metadata["Requires-Python"] or "")
    ]
    assert not too_new, "make lock passes them over"


def test_nothing_that_the_lock_needs_is_missing_from_it() -> None:
    absent = {
        f"{requirement.name}, needed by {name}"
        for name in PINS
        for requirement in map(Requirement, importlib.metadata.requires(name) or [])
        if requirement.marker is None and canonicalize_name(requirement.name) not in {*PINS, "setuptools"}
    }
    assert not absent, "make lock"


# the doors


def test_conda_installs_the_lock_and_the_project_and_nothing_else() -> None:
    python, pip, piped = CONDA["dependencies"]
    assert piped == {"pip": ["-r requirements.lock", "-e ."]} and pip == "pip"
    conda_python = python.removeprefix("python=")
    assert conda_python in SpecifierSet(PROJECT["requires-python"])
    assert f"on Python {conda_python}." in LOCK_LINES[0], "conda takes the Python that the lock was tested with"


def test_python_range_is_the_one_that_make_checks() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert PROJECT["requires-python"] == f">={OLDEST_PYTHON}"
    assert f"sys.version_info < ({OLDEST_PYTHON.replace('.', ', ')})" in makefile
    assert set(re.findall(r"needs Python ([\d.]+\d)", makefile)) == {OLDEST_PYTHON}


def test_waiting_threads_sleep_everywhere() -> None:
    assert CONDA["variables"]["OMP_WAIT_POLICY"] == "passive"
    for name in ("Makefile", ".ci/run", "README.md"):
        assert "OMP_WAIT_POLICY" in (ROOT / name).read_text(encoding="utf-8"), name


def test_listed_packages_are_the_folders() -> None:
    folders = {str(path.parent.relative_to(ROOT)).replace(os.sep, ".") for path in ROOT.glob("helpers/**/__init__.py")}
    assert set(PYPROJECT["tool"]["setuptools"]["packages"]) == folders


def test_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["version"] == PROJECT["version"] == importlib.metadata.version("hookbook")
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]


# make


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with what make reads, in which nothing is installed yet."""
    if not shutil.which("make"):
        pytest.skip("there is no make here")
    folder = tmp_path / "a clone"
    folder.mkdir()
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return folder


def _make(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    # without what an outer `make test` hands down
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


def _finish(folder: Path) -> None:
    """What a complete install leaves, as far as make looks at it."""
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/python").symlink_to(sys.executable)
    (folder / ".venv/.ready").write_text(f"{folder.resolve()}\n")


def test_make_takes_torch_from_the_lock_and_first(clone: Path) -> None:
    assert f'"torch=={PINS["torch"]}"' in _make(clone, "-n", "setup").stdout
    (clone / "requirements.lock").write_text("numpy==1.0\ntorch==9.8.7\n")
    commands = _make(clone, "-n", "setup").stdout
    assert commands.index('"torch==9.8.7"') < commands.index("-r requirements.lock")
    assert "Installing 2 packages" in commands


def test_make_installs_once(clone: Path) -> None:
    _finish(clone)
    assert "pip install" not in _make(clone, "-n", "run").stdout
    assert (
        _make(clone, "-n", "run", "PAPER=other", "ARGS=-p seed 1").stdout == ".venv/bin/hookbook run other -p seed 1\n"
    )


def test_make_evidence_is_about_all_papers_unless_some_are_named(clone: Path) -> None:
    _finish(clone)
    assert _make(clone, "-n", "evidence").stdout == ".venv/bin/hookbook evidence \n"
    assert _make(clone, "-n", "evidence", "PAPER=one two").stdout == ".venv/bin/hookbook evidence one two\n"


def test_make_updates_after_a_change_of_the_lock(clone: Path) -> None:
    _finish(clone)
    later = (clone / ".venv/.ready").stat().st_mtime + 10
    os.utime(clone / "requirements.lock", (later, later))
    commands = _make(clone, "-n", "run").stdout
    assert "pip install" in commands and "-m venv" not in commands
    assert commands.index("mv .venv/.ready .venv/.unfinished") < commands.index("pip install"), "it may be cut short"


@pytest.mark.parametrize("accident", ["cut short", "moved", "python gone"])
def test_make_begins_anew_after(accident: str, clone: Path) -> None:
    _finish(clone)
    if accident == "cut short":
        (clone / ".venv/.ready").rename(clone / ".venv/.unfinished")
    elif accident == "moved":
        clone = clone.rename(clone.with_name("elsewhere"))
    else:
        (clone / ".venv/bin/python").unlink()
    assert "-m venv .venv" in _make(clone, "-n", "run").stdout


def test_make_spares_an_environment_that_it_did_not_make(clone: Path) -> None:
    _finish(clone)
    (clone / ".venv/.ready").unlink()
    answer = _make(clone, "run")
    assert answer.returncode and "make did not make" in answer.stderr
    assert (clone / ".venv/bin/python").exists()


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (None, "there is no"),
        ('[ "$1" = -V ] && echo Python 3.9.1 || exit 1', "is Python 3.9.1: name a newer one: make setup"),
        ('case "$2" in *venv*) exit 1;; esac', "python3-venv"),
    ],
    ids=["absent", "old", "without venv"],
)
def test_make_says_which_python_it_needs(body: str | None, sentence: str, clone: Path) -> None:
    python = clone / "python-under-test"
    if body is not None:
        python.write_text(f"#!/bin/sh\n{body}\n")
        python.chmod(0o755)
    answer = _make(clone, "setup", f"PYTHON={python}")
    assert answer.returncode and sentence in answer.stderr
    assert not (clone / ".venv").exists()


def test_make_alone_lists_every_target() -> None:
    listed = set(re.findall(r"^  (\w+) ", _make(ROOT).stdout, re.MULTILINE))
    assert {"setup", "run", "test", "lint", "refresh", "evidence", "lock", "clean", "help"} <= listed


# nothing of one machine

FORBIDDEN = {
    "the address of a package registry": re.compile(
        r"(pypi|pythonhosted|npmjs|anaconda|download\.pytorch|deb\.debian)\.(org|io|com)"
    ),
    "a path of one machine": re.compile(
        r"(?<![\w.~])/(work|root|farm|home|Users)/\w|[A-Z]:\\Users|/opt/(wheels|pypi)|/tmp/ipy[k]ernel"
    ),
}


def _published() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = [name for name in listed.stdout.split("\0") if name and not name.startswith("tests/bad")]  # bad on purpose
    return [ROOT / name for name in names if (ROOT / name).is_file()]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str) -> None:
    found = []
    for path in _published():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}:{n}" for n, line in enumerate(lines, 1) if FORBIDDEN[what].search(line)]
    assert not found, f"{what} in {', '.join(found)}"


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("the address of a package registry", "https://files.python" + "hosted.org/x"),
        ("a path of one machine", 'File "/home' + '/ann/x.py"'),
        ("a path of one machine", "/wo" + "rk/main"),
    ],
)
def test_the_patterns_find(what: str, text: str) -> None:
    assert FORBIDDEN[what].search(text)
    assert not FORBIDDEN[what].search("https://example.org/home/page, ../work/x, ./root/y, and/or work/home")
