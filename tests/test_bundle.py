"""The bundle for a classroom: it holds what it should, and its script installs and starts without a network."""

import importlib.util
import os
import platform
import subprocess
import sys
import tarfile

import pytest

from helpers.papers import ROOT

_SPEC = importlib.util.spec_from_file_location("bundle", ROOT / "tools" / "bundle.py")
bundle = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(bundle)


@pytest.fixture
def small(monkeypatch):
    """A bundle of few files, whose packages cost nothing to fetch."""
    if (ROOT / ".git").exists() is False:
        pytest.skip("not a git checkout")
    few = [
        ROOT / name for name in ("Makefile", "requirements.lock", "notebooks/representations/sentiment-direction.ipynb")
    ]
    monkeypatch.setattr(bundle, "files", lambda: few)
    monkeypatch.setattr(
        bundle, "fetch_wheels", lambda folder, lock: (folder.mkdir(), (folder / "a.whl").write_text("x"))
    )
    monkeypatch.setattr(bundle, "fetch_cache", lambda folder: (folder / "models").mkdir(parents=True))
    monkeypatch.setattr(
        bundle, "build_book", lambda folder: (folder.mkdir(parents=True), (folder / "index.html").write_text("x"))
    )


def test_the_archive_holds_all_parts_and_leaves_nothing_else(small, tmp_path):
    out = tmp_path / "build" / "some.tar"
    bundle.main(["--out", str(out)])
    with tarfile.open(out) as tar:
        names = set(tar.getnames())
    wanted = ("start.sh", "Makefile", "requirements.lock", "wheels/a.whl", "cache/models", "book/_build/index.html",
              "notebooks/representations/sentiment-direction.ipynb")  # fmt: skip
    assert {f"hookbook/{name}" for name in wanted} <= names
    assert [path.name for path in out.parent.iterdir()] == ["some.tar"]


def test_parts_can_be_left_out(small, tmp_path):
    bundle.main(["--out", str(tmp_path / "some.tar"), "--without", "cache", "book"])
    with tarfile.open(tmp_path / "some.tar") as tar:
        assert not {name for name in tar.getnames() if "cache" in name or "_build" in name}


def test_every_file_of_the_repository_is_listed():
    listed = {path.relative_to(ROOT).as_posix() for path in bundle.files()}
    assert {"Makefile", "helpers/papers.py", "book/conf.py", "data/papers.yaml", "NOTICE"} <= listed
    assert not any(name.startswith(("runs/", ".venv/", "build/", "book/_build/")) for name in listed)


def start(folder, *arguments, **given):
    command = ["sh", str(folder / "start.sh"), *arguments]
    return subprocess.run(command, env={**os.environ, **given}, capture_output=True, text=True, timeout=120)


def test_start_refuses_another_python_in_a_sentence(small, tmp_path):
    bundle.copy_files(tmp_path)
    (tmp_path / "other").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "other").chmod(0o755)
    said = start(tmp_path, PYTHON=str(tmp_path / "other"))
    assert said.returncode == 1 and f"Python {'.'.join(platform.python_version_tuple()[:2])}" in said.stderr


def test_start_installs_once_from_its_own_wheels_and_runs(small, tmp_path):
    """With a python that only notes what it is asked to do, in a folder whose name has a space."""
    tmp_path = tmp_path / "a b"
    bundle.copy_files(tmp_path)
    (tmp_path / "wheels").mkdir()
    log = tmp_path / "log"
    fake = tmp_path / "python"
    fake.write_text(
        '#!/bin/sh\ntest -d "$PIP_FIND_LINKS" || exit 1\n'
        f'echo "$@ [$PIP_NO_INDEX $PIP_FIND_LINKS $HOOKBOOK_CACHE]" >> "{log}"\n'
        f'if [ "$2" = venv ]; then mkdir -p .venv/bin; cp "$0" .venv/bin/python; cp "$0" .venv/bin/hookbook; fi\n'
    )
    fake.chmod(0o755)
    for _ in range(2):
        said = start(tmp_path, "run", PYTHON=str(fake))
        assert said.returncode == 0, said.stderr
    lines = log.read_text().splitlines()
    place = f"[1 wheels {tmp_path}/cache]"
    assert sum("-r requirements.lock" in line for line in lines) == 1, "a second start installs nothing"
    assert all(place in line for line in lines if "pip install" in line)
    assert sum(line == f"run sentiment-direction {place}" for line in lines) == 2


def test_wheels_are_asked_of_pip_for_the_lock_and_for_the_build(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(bundle.subprocess, "run", lambda command, check: asked.append(command))
    bundle.fetch_wheels(tmp_path, tmp_path / "some.lock")
    assert [command[:3] for command in asked] == [[sys.executable, "-m", "pip"]] * 2
    assert asked[0][-2:] == ["-r", str(tmp_path / "some.lock")] and "setuptools>=77" in asked[1]
