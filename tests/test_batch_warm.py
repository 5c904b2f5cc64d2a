"""A sweep of a notebook with slow imports forks its kernels from one warm process, and ends it."""

import psutil
import pytest
from toy_sweeps import again, start, toy, until

from helpers.errors import HookbookError
from helpers.warm.client import ADDRESS, impossible

pytestmark = pytest.mark.skipif(impossible() is not None, reason=f"no warm process here: {impossible()}")


def parents(folder):
    file = folder / "parents"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def noting(folder, *imports):
    """A toy that notes its kernel's parent."""
    note = f"with open({str(folder / 'parents')!r}, 'a') as file:\n    print(os.getppid(), file=file)"
    return toy(folder / "toy.ipynb", "\n".join([*imports, note]), "print(seed)")


def test_kernels_have_one_parent_that_ends_with_the_sweep(tmp_path, monkeypatch):
    monkeypatch.delenv(ADDRESS, raising=False)
    code, output = again(tmp_path / "runs", noting(tmp_path, "import torch"), "seed=0:4")
    assert code == 0, output
    assert len(parents(tmp_path)) == 4 and len(set(parents(tmp_path))) == 1
    assert not psutil.pid_exists(parents(tmp_path)[0])


def test_light_notebooks_and_few_runs_start_cold(tmp_path, monkeypatch):
    monkeypatch.delenv(ADDRESS, raising=False)
    monkeypatch.setattr("helpers.batch.forks.Warm.start", lambda *_: pytest.fail("a warm process was started"))
    path = noting(tmp_path)
    assert again(tmp_path / "runs", path, "seed=0:3")[0] == 0
    assert again(tmp_path / "runs", noting(tmp_path, "import helpers"), "seed=0:1")[0] == 0
    assert len(parents(tmp_path)) == 4


def test_many_light_runs_are_worth_a_warm_process_and_a_failed_start_costs_nothing(tmp_path, monkeypatch):
    asked = []

    def start(models):
        asked.append(models)
        raise HookbookError("not today")

    monkeypatch.delenv(ADDRESS, raising=False)
    monkeypatch.setattr("helpers.batch.forks._MANY", 3)
    monkeypatch.setattr("helpers.batch.forks.Warm.start", start)
    assert again(tmp_path / "runs", noting(tmp_path), "seed=0:3")[0] == 0
    assert asked == [[]] and len(parents(tmp_path)) == 3


def test_kill_9_takes_the_forked_kernels_too(tmp_path, monkeypatch):
    monkeypatch.delenv(ADDRESS, raising=False)
    path = noting(tmp_path, "import pandas, time, subprocess", "child = subprocess.Popen(['sleep', '600'])")
    toy_waits = path.read_text().replace("print(seed)", "time.sleep(600)")
    path.write_text(toy_waits)
    process = start(tmp_path, "sweep", path, "--grid", "seed=0:4", "--workers", 2, "--runs", tmp_path / "runs")
    until(lambda: len(parents(tmp_path)) == 2, 120)
    warm = psutil.Process(parents(tmp_path)[0])
    everybody = [warm, *warm.children(recursive=True), *psutil.Process(process.pid).children(recursive=True)]
    process.kill()
    process.communicate(timeout=30)
    until(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in everybody), 15)
