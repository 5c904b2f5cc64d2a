"""A sweep that is interrupted, or killed with all that belongs to it: nothing goes on, and nothing is done twice."""

import os
import signal
import time

import pytest
from toy_sweeps import again, alive, family, marks, records, start, toy, until


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


def waiting(folder, also=""):
    """A toy whose seeds from 2 on wait for a file called `go`."""
    code = f"import time\n{also}\nwhile seed > 1 and not os.path.exists({str(folder / 'go')!r}):\n    time.sleep(.05)"
    return toy(folder / "toy.ipynb", code, "print(label)")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_kernels_and_the_same_command_goes_on(tmp_path, runs, number):
    path = waiting(tmp_path)
    process = start(tmp_path, "sweep", path, "--grid", "seed=0:6", "--workers", 2, "--runs", runs)
    until(lambda: len(marks(tmp_path)) == 4)
    time.sleep(0.5)
    everybody = family(process.pid)
    os.kill(process.pid, number)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "2 done\n" in output and "2 interrupted\n" in output and "2 never ran\n" in output
    assert "Interrupted: nothing new starts." in output and "interrupted: toy(seed=2) in C2 the claim" in output
    assert "Traceback" not in errors
    until(lambda: not any(map(alive, everybody)), 10)
    assert sorted(record["status"] for record in records(runs).values()) == ["done"] * 2 + ["interrupted"] * 2
    (tmp_path / "go").touch()
    code, output = again(runs, path, "seed=0:6")
    assert code == 0 and "6 done (2 of them before)" in output
    assert sorted(marks(tmp_path)) == [0, 1, 2, 2, 3, 3, 4, 5]


def test_a_terminals_ctrl_c_reaches_all_and_counts_once(tmp_path, runs):
    """The whole process group gets it; the workers, idle or not, leave it to the supervisor to say what it means."""
    process = start(tmp_path, "sweep", waiting(tmp_path), "--grid", "seed=1:3", "--workers", 2, "--runs", runs)
    until(lambda: len(marks(tmp_path)) == 2 and "done" in [record["status"] for record in records(runs).values()])
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 130 and "1 done\n" in output and "1 interrupted\n" in output, (output, errors)
    assert [log.read_text() for log in runs.glob("sweeps/*/workers.log")] == [""]


def test_a_second_interrupt_does_not_wait(tmp_path, runs):
    stubborn = "while seed > 1:\n    try:\n        time.sleep(600)\n    except KeyboardInterrupt:\n        pass"
    process = start(tmp_path, "sweep", waiting(tmp_path, stubborn), "--grid", "seed=2:4", "--runs", runs)
    until(lambda: len(marks(tmp_path)) == 2)
    time.sleep(0.5)
    everybody = family(process.pid)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 130 and "2 interrupted\n" in output, (output, errors)
    until(lambda: not any(map(alive, everybody)), 10)


@pytest.mark.parametrize("whole_group", [True, False])
def test_kill_9_leaves_no_orphan_and_the_same_command_executes_just_the_missing(tmp_path, runs, whole_group):
    child = "import subprocess\nchild = subprocess.Popen(['sleep', '600']) if seed > 1 else None"
    path = waiting(tmp_path, child)
    process = start(tmp_path, "sweep", path, "--grid", "seed=0:6", "--workers", 2, "--runs", runs)
    until(lambda: len(marks(tmp_path)) == 4)
    time.sleep(1.5)  # long enough for a worker to have told what its kernel started
    everybody = family(process.pid)
    assert sum("sleep" in one.cmdline() for one in everybody) == 2
    (os.killpg if whole_group else os.kill)(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    until(lambda: not any(map(alive, everybody)), 10)
    assert sorted(record["status"] for record in records(runs).values()) == ["done"] * 2 + ["running"] * 2
    (tmp_path / "go").touch()
    code, output = again(runs, path, "seed=0:6", dry_run=True)
    assert code == 0 and "2 done already, 2 not begun, 2 killed" in output
    code, output = again(runs, path, "seed=0:6")
    assert code == 0 and "6 done (2 of them before)" in output
    assert sorted(marks(tmp_path)) == [0, 1, 2, 2, 3, 3, 4, 5]
    assert sorted(record["status"] for record in records(runs).values()) == ["done"] * 6 + ["killed"] * 2
