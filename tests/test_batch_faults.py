"""What can happen to a run of a sweep: each ending has its name, costs nobody else anything, and is told at the end."""

import io
import json
import textwrap
import time

import pytest
from rich.console import Console
from toy_sweeps import alive, family, marks, records, start, toy, until

from helpers.batch import memory, store
from helpers.batch.spec import Spec
from helpers.batch.sweep import sweep

QUIET = Console(quiet=True)


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def swept(runs):
    """Sweeps in this process; returns what came of it, with the summary as `.text`."""

    def swept(notebook, grid, **more):
        text = io.StringIO()
        out = Console(file=text, width=200)
        spec = Spec(notebook=str(notebook), grid=grid, **more)
        found = sweep(spec, runs, out=out, err=QUIET)
        return found, text.getvalue()

    return swept


def by_seed(found):
    return {ending.plan.parameters["seed"]: ending for ending in found.endings}


def test_every_ending_has_its_name_and_stops_nobody_else(swept, runs, tmp_path):
    """One sweep for all of them: a run that fails, is killed, runs out of time or memory, or stops early."""
    path = toy(
        tmp_path / "toy.ipynb",
        "import signal, time",
        textwrap.dedent("""
            if seed == 1:
                1 / 0
            if seed == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            if seed == 3:
                held = [b"x" * 10_000_000 for _ in range(30)] and [bytearray(os.urandom(10_000_000)) for _ in range(40)]
                time.sleep(60)
            if seed == 4:
                time.sleep(60)
            if seed == 5:
                raise SystemExit(0)
            if seed == 6:
                raise MemoryError
        """).strip(),
        "print(label)",
        "print(label)",
    )
    found, text = swept(path, {"seed": "0:8"}, timeout=12.0, memory=300.0)
    expected = {
        0: "done",
        1: "failed",
        2: "killed",
        3: "out of memory",
        4: "timed out",
        5: "stopped early",
        6: "out of memory",
        7: "done",
    }
    assert {seed: ending.status for seed, ending in by_seed(found).items()} == expected and found.exit_code == 1
    # only what was killed is tried again, once
    assert sorted(marks(tmp_path)) == [0, 1, 2, 2, 3, 4, 5, 6, 7]
    for seed, ending in by_seed(found).items():
        record = json.loads((ending.folder / "run.json").read_text())
        assert (record["status"], record["parameters"]["seed"]) == (expected[seed], seed)
        assert (ending.folder / "toy.ipynb").is_file()
        assert (ending.folder / "toy.html").exists() == (expected[seed] != "done")
        assert not (ending.folder / ".lock").exists()
    assert by_seed(found)[2].folder.name.endswith("-2")
    assert "       2 done\n       1 failed\n       1 killed\n" in text and "       2 out of memory\n" in text
    assert "failed: toy(seed=1) in C3 the claim, code cell 5, line 2: 1 / 0\n    ZeroDivisionError" in text
    assert "killed: toy(seed=2) in C3 the claim, code cell 5\n    the kernel was killed by SIGKILL" in text
    assert text.count("toy.ipynb") == 6


def test_memory_within_the_limit_is_no_ending(swept, tmp_path):
    found, _ = swept(toy(tmp_path / "toy.ipynb", "x = bytearray(os.urandom(30_000_000))"), {"seed": [0]}, memory=300.0)
    assert found.exit_code == 0


def test_the_systems_own_kill_is_out_of_memory_and_tried_again(tmp_path, runs, monkeypatch):
    """The control group's count of kills goes up while the run lasts; a kill by hand leaves it as it is."""
    from helpers.batch import single

    counts = iter([3, 4, 4, 4])
    monkeypatch.setattr(memory, "kills", lambda: next(counts))
    path = toy(tmp_path / "toy.ipynb", "import signal\nos.kill(os.getpid(), signal.SIGKILL)")
    record = single.run(path, runs_dir=runs)
    assert (record.status, record.exit_code, record.by_system) == ("out of memory", 5, True)
    assert "the system killed the kernel because memory ran out" in record.failure.error
    assert single.run(path, runs_dir=runs).status == "killed"


def test_the_control_groups_file_is_read(tmp_path):
    own = tmp_path / "cgroup"
    own.write_text("12:cpu:/x\n0::/a/b\n")
    assert memory.kills(tmp_path, own) == 0
    events = tmp_path / "a" / "b" / "memory.events"
    events.parent.mkdir(parents=True)
    events.write_text("low 0\noom 9\noom_kill 7\noom_group_kill 0\n")
    assert memory.kills(tmp_path, own) == 7


def test_a_worker_that_dies_costs_its_run_alone(tmp_path, runs):
    wait = f"import time\nwhile seed == 1 and not os.path.exists({str(tmp_path / 'go')!r}):\n    time.sleep(.05)"
    toy(tmp_path / "toy.ipynb", "import subprocess\nchild = subprocess.Popen(['sleep', '600'])", wait)
    process = start(tmp_path, "sweep", "toy.ipynb", "--grid", "seed=1:4", "--workers", 1, "--runs", runs)
    until(lambda: marks(tmp_path))
    worker = until(
        lambda: next(
            (
                one
                for one in family(process.pid)
                if "helpers.batch.worker" in " ".join(one.cmdline()) and one.children()
            ),
            None,
        )
    )
    inside = until(lambda: len(kin := worker.children(recursive=True)) >= 2 and kin)
    time.sleep(1.5)  # the worker has told which processes it has
    worker.kill()
    until(lambda: not any(map(alive, inside)), 10)
    (tmp_path / "go").touch()
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "3 done" in output and marks(tmp_path) == [1, 2, 3, 1]
    killed = [record for record in records(runs).values() if record["status"] == "killed"]
    assert [record["failure"] for record in killed] == ["the worker that executed it died (SIGKILL)"]
    assert sorted(record["status"] for record in records(runs).values()) == ["done"] * 3 + ["killed"]


def test_workers_that_cannot_begin_end_the_sweep(swept, tmp_path, monkeypatch):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "psutil.py").write_text("raise ImportError('broken on purpose')")
    monkeypatch.setenv("PYTHONPATH", str(broken))
    found, text = swept(toy(tmp_path / "toy.ipynb", "1"), {"seed": "0:3"})
    assert found.exit_code == 1 and "3 never ran" in text and "The workers die before they can begin" in text
    assert "broken on purpose" in (found.folder / "workers.log").read_text()


def test_a_half_written_folder_is_corrected_and_its_run_repeated(swept, runs, tmp_path):
    path = toy(tmp_path / "toy.ipynb", "print(seed)")
    found, _ = swept(path, {"seed": [4]})
    first = found.endings[0].folder
    record = json.loads((first / "run.json").read_text())
    (first / "run.json").write_text(json.dumps(record | {"status": "running"}))
    (first / ".lock").touch()  # left by a process that nobody could tell to remove it
    again, text = swept(path, {"seed": [4]})
    assert again.exit_code == 0 and again.endings[0].folder.name == f"{first.name}-2"
    left = json.loads((first / "run.json").read_text())
    assert left["status"] == "killed" and left["failure"] == "the process that ran it ended before the run did"
    assert (first / "toy.ipynb").exists() and marks(tmp_path) == [4, 4]


def test_a_changed_notebook_has_new_runs_and_keeps_the_old_ones_as_stale(swept, tmp_path):
    path = toy(tmp_path / "toy.ipynb", "print(seed)")
    swept(path, {"seed": "0:2"}, name="mine")
    found, _ = swept(path, {"seed": "0:3"}, name="mine")
    plan = store.read(found.folder)
    assert sorted(marks(tmp_path)) == [0, 1, 2] and not any(run["stale"] for run in plan["runs"])
    toy(path, "print(seed + 1)")
    found, text = swept(path, {"seed": "0:2"}, name="mine")
    plan = store.read(found.folder)
    assert sorted(marks(tmp_path)) == [0, 0, 1, 1, 2] and "2 done\n" in text
    assert [(run["parameters"]["seed"], run["stale"]) for run in plan["runs"]] == [
        (0, False),
        (1, False),
        (0, True),
        (1, True),
        (2, True),
    ]
    # edited back: the old results count again
    toy(path, "print(seed)")
    found, text = swept(path, {"seed": "0:2"}, name="mine")
    assert "2 done (2 of them before)" in text and sum(run["stale"] for run in store.read(found.folder)["runs"]) == 2
