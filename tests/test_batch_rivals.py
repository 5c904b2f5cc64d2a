"""What a sweep shares with others: runs with another sweep, notebooks with their author, the disk with everybody."""

import os
import subprocess
import sys
import textwrap

import pytest
from toy_sweeps import hookbook, marks, start, toy, until


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


def test_a_run_that_somebody_is_in_is_left_to_him(tmp_path, runs):
    """Another sweep, or `hookbook run`, executes it: wait for it instead of doing it twice."""
    wait = f"import time\nwhile not os.path.exists({str(tmp_path / 'go')!r}):\n    time.sleep(.05)"
    path = toy(tmp_path / "toy.ipynb", wait)
    single = start(tmp_path, "run", path, "-p", "seed", "1", "--runs", runs)
    until(lambda: marks(tmp_path))
    other = start(tmp_path, "sweep", path, "--grid", "seed=1,2", "--name", "other", "--runs", runs)
    until(lambda: len(marks(tmp_path)) == 2)
    (tmp_path / "go").touch()
    output, errors = other.communicate(timeout=120)
    single.communicate(timeout=60)
    assert (other.returncode, single.returncode) == (0, 0) and "2 done (1 of them before)" in output, errors
    assert sorted(marks(tmp_path)) == [1, 2]


def test_two_sweeps_that_share_runs_execute_each_once(tmp_path, runs):
    path = toy(tmp_path / "toy.ipynb", "import time\ntime.sleep(.3)")
    sweeps = [
        start(tmp_path, "sweep", path, "--grid", grid, "--name", name, "--runs", runs)
        for name, grid in (("one", "seed=0:4"), ("two", "seed=2:6"))
    ]
    ended = [process.communicate(timeout=120) for process in sweeps]
    assert [process.returncode for process in sweeps] == [0, 0], ended
    assert sorted(marks(tmp_path)) == [0, 1, 2, 3, 4, 5]


def test_a_full_disk_stops_the_sweep_and_keeps_what_is_done(tmp_path):
    """On a small file system of its own, mounted where nobody else sees it."""
    code, output = in_small_mount(
        tmp_path,
        f"""
        cd {tmp_path}
        {sys.executable} -m helpers.cli sweep toy.ipynb --grid seed=0:6 --name full --workers 1 --runs small/runs
        echo "exit code $?"
        grep -h '"status"' small/runs/toy/*/run.json
        rm small/fill
        {sys.executable} -m helpers.cli sweep toy.ipynb --grid seed=0:6 --name full --workers 1 --runs small/runs
        echo "exit code $?"
        grep -hc '"status": "done"' small/runs/toy/*/run.json | sort | uniq -c
        """,
        lambda: toy(
            tmp_path / "toy.ipynb",
            "if seed == 3 and not os.path.exists('../../../filled'):\n"
            "    open('../../../filled', 'w').close()\n"
            "    try:\n        open('../../../fill', 'wb', 0).write(b'x' * 50_000_000)\n"
            "    except OSError:\n        pass",
            "print('x' * 100_000)",
        ),
    )
    assert code == 0, output
    first, second = output.split("exit code 1\n")
    assert "The disk is full: free space under" in first and "3 done" in first and "2 never ran" in first
    assert "exit code 0" in second and "6 done (3 of them before)" in second
    assert sorted(marks(tmp_path)) == [0, 1, 2, 3, 3, 4, 5]


def in_small_mount(folder, script, prepare):
    """Run a script where `folder`/small is a file system of 4 MB that nobody else sees."""
    (folder / "small").mkdir()
    mount = f"mount -t tmpfs -o size=4m tmpfs {folder}/small"
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    try:
        possible = subprocess.run([*unshare, "sh", "-c", mount], capture_output=True, text=True)
        reason = possible.stderr.strip() if possible.returncode else ""
    except OSError as error:
        reason = str(error)
    if reason:
        pytest.skip(f"A FULL DISK IS NOT TESTED HERE: no file system can be mounted ({reason})")
    prepare()
    done = subprocess.run(
        [*unshare, "sh", "-c", f"{mount}\n{textwrap.dedent(script)}"],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"},
    )
    return done.returncode, done.stdout + done.stderr


def test_an_edit_while_the_sweep_runs_does_not_reach_its_kernels(tmp_path, runs):
    path = toy(
        tmp_path / "toy.ipynb", f"import time\nwhile not os.path.exists({str(tmp_path / 'go')!r}):\n    time.sleep(.05)"
    )
    process = start(tmp_path, "sweep", path, "--grid", "seed=0:2", "--workers", 1, "--runs", runs)
    until(lambda: marks(tmp_path))
    toy(path, "1 / 0")
    (tmp_path / "go").touch()
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0 and "2 done" in output, errors


def test_a_second_sweep_of_the_same_name_is_refused(tmp_path, runs):
    wait = f"import time\nwhile not os.path.exists({str(tmp_path / 'go')!r}):\n    time.sleep(.05)"
    path = toy(tmp_path / "toy.ipynb", wait)
    command = ("sweep", path, "--grid", "seed=0:2", "--runs", runs)
    first = start(tmp_path, *command)
    until(lambda: marks(tmp_path))
    code, output, errors = hookbook(tmp_path, *command)
    assert (code, output) == (2, "") and errors.count("\n") == 1
    assert f"is being run already by process {first.pid} on" in errors and "wait for it, or end it first" in errors
    code, output, errors = hookbook(tmp_path, *command, "--dry-run")  # looking is allowed
    assert code == 0 and "2 running" in output
    (tmp_path / "go").touch()
    first.communicate(timeout=120)
    assert first.returncode == 0 and sorted(marks(tmp_path)) == [0, 1]
