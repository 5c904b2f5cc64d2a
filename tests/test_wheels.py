import json
import os
import random
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tiny_wheels import changed_copy, flip, pack

from helpers.cache import cache_dir
from helpers.errors import HookbookError
from helpers.wheels import ensure_file

DATA = random.Random(0).randbytes(600_000)

# What a second process runs; the pause stands for the minutes that a slow network takes
CHILD = """
import json, sys, time
from pathlib import Path
from helpers import wheels
pause = float(sys.argv[3])
if pause:
    extract = wheels._extract
    def slow(*arguments):
        print("paused", flush=True)
        time.sleep(pause)
        return extract(*arguments)
    wheels._extract = slow
print(wheels.ensure_file(wheels.Wheel(**json.loads(sys.argv[1])), Path(sys.argv[2])), flush=True)
"""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture(scope="module")
def wheel(shelf):
    return pack(shelf, "tiny_data", "table.csv.bz2", DATA)


@pytest.fixture
def folder(tmp_path, monkeypatch, shelf):
    """A folder of an empty cache, and a pip that knows one folder of wheels and no index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    return tmp_path / "cache" / "data"


def child(wheel, folder, pause=0.0):
    arguments = [sys.executable, "-c", CHILD, json.dumps(asdict(wheel)), str(folder), str(pause)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def contents(folder):
    """What the folder holds, lock files aside."""
    return sorted(path.name for path in folder.glob("*") if path.suffix != ".lock")


def refusal(wheel, folder):
    """The sentence that comes instead of the file, once it is clear that nothing is left behind."""
    with pytest.raises(HookbookError) as caught:
        ensure_file(wheel, folder)
    assert contents(folder) == []
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_first_fetch_brings_the_file_and_a_second_asks_nobody(folder, wheel, monkeypatch, capsys):
    file = ensure_file(wheel, folder)
    assert file.read_bytes() == DATA and file.name.endswith("-table.csv.bz2")
    assert contents(folder) == [file.name]
    assert capsys.readouterr().out == "Fetching table.csv.bz2 out of tiny-data==0.1 (0 MB), once ...\n"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("pip was asked again"))
    assert ensure_file(wheel, folder) == file
    assert capsys.readouterr() == ("", "")


def test_a_file_of_another_pin_is_left_alone(folder, wheel, tmp_path, monkeypatch):
    old = ensure_file(wheel, folder)
    newer = pack(tmp_path / "newer", "tiny_data", "table.csv.bz2", DATA[::-1])
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "newer"))
    assert ensure_file(newer, folder).read_bytes() == DATA[::-1]
    assert old.read_bytes() == DATA


@pytest.mark.parametrize("harm", ["one byte", "cut short", "a folder"])
def test_a_damaged_file_in_the_cache_is_fetched_again(folder, wheel, harm):
    file = ensure_file(wheel, folder)
    if harm == "a folder":
        file.unlink()
        file.mkdir()
    else:
        file.write_bytes(flip(DATA) if harm == "one byte" else DATA[:1000])
    assert ensure_file(wheel, folder) == file
    assert file.read_bytes() == DATA and contents(folder) == [file.name]


def test_two_processes_at_once_fetch_once(folder, wheel):
    first = child(wheel, folder, pause=3)
    assert first.stdout.readline().startswith("Fetching table.csv.bz2")
    assert first.stdout.readline() == "paused\n"
    assert len(contents(folder)) == 1 and ".part-" in contents(folder)[0]  # under another name until it is whole
    second = child(wheel, folder)
    outputs = [process.communicate(timeout=180)[0] for process in (first, second)]
    (name,) = contents(folder)
    assert [process.returncode for process in (first, second)] == [0, 0], outputs
    assert outputs[0] == f"{folder / name}\n"
    assert "waiting" in outputs[1] and "Fetching" not in outputs[1]
    assert (folder / name).read_bytes() == DATA


def test_a_kill_leaves_nothing_that_is_used(folder, wheel):
    victim = child(wheel, folder, pause=600)
    victim.stdout.readline()
    assert victim.stdout.readline() == "paused\n"
    victim.kill()
    victim.wait()
    file = ensure_file(wheel, folder)
    assert file.read_bytes() == DATA and contents(folder) == [file.name]


@pytest.mark.parametrize("change", [flip, lambda data: data[: len(data) // 2]], ids=["one byte", "half"])
def test_a_damaged_wheel_is_noticed(folder, wheel, shelf, tmp_path, monkeypatch, change):
    monkeypatch.setenv("PIP_FIND_LINKS", changed_copy(shelf, tmp_path / "shelf", change))
    assert "tiny-data==0.1 is damaged or not the pinned file" in refusal(wheel, folder)


def test_another_file_than_the_pinned_one_is_not_taken(folder, wheel):
    other = replace(wheel, member="tiny_data/__init__.py")
    assert "is damaged or not the pinned file" in refusal(other, folder)


def test_without_network_the_sentence_says_what_to_do(folder, wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    sentence = refusal(wheel, folder)
    assert "could not download tiny-data==0.1" in sentence and "connect this machine to a package index" in sentence
    assert f"copy {folder} here" in sentence and "model" not in sentence


def test_a_python_without_pip_is_told_how_to_get_it(folder, wheel, tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert f"has no pip: run {python} -m ensurepip" in refusal(wheel, folder)


def test_too_little_disk_is_said_before_anything_is_fetched(folder, wheel, capsys):
    assert "MB are free" in refusal(replace(wheel, wheel_mb=10**9), folder)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("kilobytes", [300, 900])  # too small for: the wheel, the file beside it
def test_a_disk_that_fills_up_is_said_in_a_sentence(folder, wheel, kilobytes):
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("NOT CHECKED: a full disk (this machine lets nobody mount a small one)")
    try:
        assert "is full" in refusal(wheel, folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # the caught error still holds a file open


def test_a_cache_that_cannot_be_written_names_the_variable(tmp_path, wheel):
    (tmp_path / "file").write_text("")
    with pytest.raises(HookbookError, match="Cannot write to the cache .* set HOOKBOOK_CACHE"):
        ensure_file(wheel, tmp_path / "file" / "data")


def test_a_whole_file_in_a_cache_that_cannot_be_written_is_used(folder, wheel, monkeypatch):
    file = ensure_file(wheel, folder)
    monkeypatch.setattr(os, "open", lambda *_, **__: pytest.fail("a lock was asked for"))
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: pytest.fail("a folder was made"))
    assert ensure_file(wheel, folder) == file


def test_the_cache_is_where_the_variable_says(monkeypatch, tmp_path):
    monkeypatch.setenv("HOOKBOOK_CACHE", str(tmp_path / "a" / ".." / "b"))
    assert cache_dir() == tmp_path / "b"
    monkeypatch.setenv("HOOKBOOK_CACHE", "")
    assert cache_dir().name == "hookbook"
