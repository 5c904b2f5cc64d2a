"""Runs one after another in one kernel, as where CUDA has started: reset, never called fresh, ended where that fails.

CUDA itself is not needed for it: what stands for it here is a mark in an installed library, which only the process that
set it can show.
"""

import json
import os
import signal
import time

import psutil
import pytest
from toy_sweeps import again, alive, records, start, toy, until

from helpers import notebooks
from helpers.batch.kept import Kept
from helpers.batch.planned import planned
from helpers.batch.single import carry_out
from helpers.warm.client import ADDRESS

CHANGES = """
import builtins, logging, random, signal, sys, warnings
import matplotlib as mpl, numpy as np, pandas as pd, torch
from helpers import notebooks
import own
found = {
    "cuda": hasattr(torch, "cuda_has_started"),
    "name": "mine" in globals(),
    "builtin": hasattr(builtins, "mine"),
    "environment": os.environ.get("MINE"),
    "path": "mine" in sys.path,
    "filters": warnings.filters[0] == ("ignore", None, Warning, None, 0),
    "level": logging.getLogger().level,
    "alarm": str(signal.getsignal(signal.SIGALRM)),
    "rc": mpl.rcParams["lines.linewidth"],
    "open": len(plt_figures()),
    "pandas": pd.get_option("display.max_rows"),
    "numpy": np.get_printoptions()["precision"],
    "error": np.geterr()["divide"],
    "dtype": str(torch.get_default_dtype()),
    "grad": torch.is_grad_enabled(),
    "hooks": len(torch.nn.modules.module._global_forward_hooks),
    "device": str(torch.empty(0).device),
    "helpers": hasattr(notebooks, "mine"),
    "own": own.count,
    "events": len(get_ipython().events.callbacks["pre_run_cell"]),
    "cwd": os.getcwd(),
    "rows": os.environ["HOOKBOOK_ROWS"],
}
drawn = [random.random(), float(np.random.rand()), float(torch.rand(()))]
torch.cuda_has_started = True
mine = builtins.mine = notebooks.mine = 1
own.count += 1
os.environ["MINE"] = "1"
sys.path.insert(0, "mine")
warnings.simplefilter("ignore")
logging.getLogger().setLevel("DEBUG")
signal.signal(signal.SIGALRM, lambda *_: None)
mpl.rcParams["lines.linewidth"] = 9
mpl.pyplot.figure()
pd.set_option("display.max_rows", 3)
np.set_printoptions(precision=1)
np.seterr(divide="raise")
torch.set_default_dtype(torch.float64)
torch.set_default_device("meta")
torch.set_grad_enabled(False)
torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
get_ipython().events.register("pre_run_cell", lambda *_: None)
random.seed(0); np.random.seed(0); torch.manual_seed(0)
"""
PRINTS = """
import json
print(json.dumps({"pid": os.getpid(), "found": found, "drawn": drawn}))
"""


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def kept(monkeypatch):
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    kept = Kept()
    yield kept
    kept.end()


def play(path, seed, folder, kept):
    """One run of a toy; returns its record and what its last cell printed, read as JSON."""
    (folder / str(seed)).mkdir(parents=True)
    record = carry_out(planned(path, {"seed": seed}, "quick"), folder / str(seed), pages=False, kept=kept)
    outputs = notebooks.code_cells(notebooks.read(record.notebook))[-1].outputs
    text = "".join(output.get("text", "") for output in outputs)
    return record, json.loads(text) if text.startswith("{") else text


def runs_on(pid):
    return psutil.pid_exists(int(pid)) and alive(psutil.Process(int(pid)))


def stored(record):
    return json.loads((record.folder / "run.json").read_text())


def test_what_a_run_changed_is_put_back_for_the_next(tmp_path, runs, kept):
    (tmp_path / "own.py").write_text("count = 0\n")
    own = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
    figures = "import matplotlib.pyplot\ndef plt_figures():\n    return matplotlib.pyplot.get_fignums()\n"
    path = toy(tmp_path / "toy.ipynb", own + figures + CHANGES, "import os\nos.write(2, b'of the system')", PRINTS)
    (first, one), (second, two), (third, three) = (play(path, seed, runs, kept) for seed in (1, 2, 3))
    assert [record.status for record in (first, second, third)] == ["done"] * 3
    assert one["pid"] == two["pid"] == three["pid"] and psutil.pid_exists(one["pid"])
    for told, record in ((one, first), (two, second), (three, third)):
        assert told["found"].pop("cwd") == told["found"].pop("rows") == str(record.folder)
    assert [told["found"].pop("cuda") for told in (one, two, three)] == [False, True, True], "what it is kept for"
    assert one["found"] == two["found"] == three["found"]
    for drawn in zip(one["drawn"], two["drawn"], three["drawn"], strict=True):
        assert len(set(drawn)) == 3, "a generator is seeded anew, and not alike"
    counts = [
        [cell.execution_count for cell in notebooks.code_cells(notebooks.read(record.notebook))]
        for record in (first, second, third)
    ]
    assert counts[0] == counts[1] == counts[2]
    for record in (first, second, third):
        assert (record.folder / "kernel.log").read_text() == "of the system"
    # and the records say what it was
    assert "state" not in stored(first)
    assert stored(second)["state"] == "reset, not fresh: 1 run(s) before it in the same process"
    assert stored(third)["state"] == "reset, not fresh: 2 run(s) before it in the same process"
    stamped = notebooks.read(third.notebook).metadata["hookbook"]["provenance"]
    assert stamped["state"] == stored(third)["state"]


@pytest.mark.parametrize(
    "ending",
    [
        "import threading, time\nif seed == 0:\n    threading.Timer(600, print).start()",
        "import subprocess\nif seed == 0:\n    child = subprocess.Popen(['sleep', '600'])",
        "if seed == 0:\n    1 / 0",
        "import os, signal\nif seed == 0:\n    os.kill(os.getpid(), signal.SIGKILL)",
    ],
    ids=["thread", "process", "failed", "killed"],
)
def test_what_cannot_be_reset_is_ended_and_the_next_run_is_fresh(tmp_path, runs, kept, ending):
    path = toy(tmp_path / "toy.ipynb", "import os\nopen('pid', 'w').write(str(os.getpid()))", ending)
    (first, _), (second, _) = (play(path, seed, runs, kept) for seed in range(2))
    pids = [int((record.folder / "pid").read_text()) for record in (first, second)]
    assert pids[0] != pids[1] and not runs_on(pids[0]) and runs_on(pids[1])
    assert second.status == "done" and "state" not in stored(second)
    kept.end()
    until(lambda: not runs_on(pids[1]), 10)


def test_a_sweep_that_stays_has_a_kernel_per_worker_and_leaves_none(tmp_path, runs, monkeypatch):
    monkeypatch.delenv(ADDRESS, raising=False)
    note = f"with open({str(tmp_path / 'pids')!r}, 'a') as file:\n    print(os.getpid(), file=file)"
    handler = f"import atexit\natexit.register(lambda: open({str(tmp_path / 'handler')!r}, 'w').write('ran'))"
    code, output = again(runs, toy(tmp_path / "toy.ipynb", note, handler), "seed=0:5", workers=1, stay=True)
    assert code == 0, output
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 5 and len(set(pids)) == 1 and not runs_on(pids[0])
    assert (tmp_path / "handler").read_text() == "ran", "it ended in order"
    assert sum("state" in record for record in records(runs).values()) == 4
    code, output = again(runs, tmp_path / "toy.ipynb", "seed=0:5", workers=1)
    assert "5 done (5 of them before)" in output


@pytest.mark.parametrize("whole_group", [True, False])
def test_kill_9_leaves_no_kernel_that_stayed(tmp_path, runs, whole_group):
    wait = "import time\nwhile seed == 1:\n    time.sleep(.05)"
    note = f"with open({str(tmp_path / 'pids')!r}, 'a') as file:\n    print(os.getpid(), file=file)"
    path = toy(tmp_path / "toy.ipynb", note, wait, "print(seed)")
    process = start(tmp_path, "sweep", path, "--grid", "seed=0:2", "--workers", 1, "--runs", runs, "--stay")
    until(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2, 120)
    time.sleep(1.5)  # the worker has told which processes it has
    first, second = (tmp_path / "pids").read_text().split()
    assert first == second and runs_on(first)
    (os.killpg if whole_group else os.kill)(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    until(lambda: not runs_on(first), 10)
