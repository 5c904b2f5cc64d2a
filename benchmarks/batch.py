"""How many runs a minute, beside papermill one after another and in a process pool; start-up, memory, growth.

`make bench` writes results/batch.json. All sides run the same small notebooks with the same environment, one thread a
kernel and as many runs at a time as there are cores (papermill alone: one). Their times are of whole commands: ours
counts the plan, the warm process and the summary.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import nbformat
import psutil
from idle import machine, require_idle
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from helpers.errors import HookbookError

RESULTS = Path(__file__).parent / "results"
CORES = psutil.cpu_count()
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "TOKENIZERS_PARALLELISM": "false"}
IMPORTS = "import torch\nimport transformer_lens"
SECOND = """
import time
began = time.perf_counter()
while time.perf_counter() - began < 1:
    torch.ones(64, 64) @ torch.ones(64, 64)
"""
OWN_MB = 50  # what each run of the memory measurement makes for itself
HOLD = f"""
import time
from helpers.models import load_model
model = load_model(model_name, processing="raw")
model("The whole model is in memory once it has been used.")
own = bytearray({OWN_MB} * 2**20)
time.sleep(25)
"""
WORK = {"one second": [IMPORTS, SECOND], "empty": [IMPORTS], "noop": ["seed"], "hold": [HOLD]}


def notebook(folder: Path, name: str) -> Path:
    """A notebook that does one of the kinds of work."""
    parameters = "seed: int = 0  # 0..\nmodel_name: str = 'smollm2-135m'  # any"
    cells = [new_markdown_cell(f"# {name}\n\n## Parameters")]
    cells.append(new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    cells += [new_code_cell("seed, model_name"), *map(new_code_cell, WORK[name])]
    path = folder / f"{name.replace(' ', '-')}.ipynb"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel), path)
    return path


def with_papermill(source: str, seed: int) -> None:
    """One run as papermill does it."""
    from papermill import execute_notebook

    execute_notebook(source, f"{source}.{seed}.out.ipynb", parameters={"seed": seed}, progress_bar=False)


def papermill(source: Path, n: int) -> float:
    """Seconds for n runs one after another, in one Python process."""
    began = time.perf_counter()
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import batch\n"
    code += f"for seed in range({n}): batch.with_papermill({str(source)!r}, seed)"
    subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, check=True, capture_output=True)
    return time.perf_counter() - began


def papermill_pool(source: Path, n: int) -> float:
    """Seconds for n runs, as many at a time as there are cores."""
    began = time.perf_counter()
    with ProcessPoolExecutor(CORES) as pool:
        for future in [pool.submit(with_papermill, str(source), seed) for seed in range(n)]:
            future.result()
    return time.perf_counter() - began


def sweep(source: Path, n: int, *, watch: Watch | None = None) -> float:
    """Seconds for `hookbook sweep` over n seeds."""
    command = [sys.executable, "-m", "helpers.cli", "sweep", str(source), "--grid", f"seed=0:{n}"]
    command += ["--workers", str(CORES), "--runs", str(source.parent / "runs")]
    began = time.perf_counter()
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if watch:
        watch.of(process)
    if code := process.wait():
        raise HookbookError(f"The sweep of {source.name} ended with exit code {code}: nothing was measured.")
    return time.perf_counter() - began


class Watch:
    """The memory of a process and its descendants over time; PSS counts a shared page once."""

    def __init__(self, every: float = 1) -> None:
        self.every = every
        self.total_mb: list[float] = []
        self.standing_mb: list[float] = []  # without kernels: what is there for the whole sweep

    def of(self, process: subprocess.Popen) -> None:
        """Watch until it ends."""
        threading.Thread(target=self._look, args=(process,), daemon=True).start()

    def _look(self, process: subprocess.Popen) -> None:
        while process.poll() is None:
            total = standing = 0
            try:
                family = psutil.Process(process.pid)
                for one in [family, *family.children(recursive=True)]:
                    try:
                        memory = one.memory_full_info()
                        kernel = "ipykernel_launcher" in " ".join(one.cmdline()) or _forked(one)
                    except psutil.Error:
                        continue
                    total += memory.pss
                    standing += 0 if kernel else memory.uss
            except psutil.Error:
                break
            self.total_mb.append(total / 2**20)
            self.standing_mb.append(standing / 2**20)
            time.sleep(self.every)


def _forked(process: psutil.Process) -> bool:
    parent = process.parent()
    return parent is not None and "helpers.warm.server" in " ".join(parent.cmdline())


def alone_mb(source: Path) -> float:
    """The PSS of one plain process that has imported and loaded the same, without the run's own data."""
    code = "import matplotlib.pyplot, pandas, sklearn, torch, transformer_lens, ipykernel.kernelapp, psutil\n"
    code += "from helpers.models import load_model\nmodel = load_model('smollm2-135m', processing='raw')\n"
    code += "model('The whole model is in memory once it has been used.')\n"
    code += "print(psutil.Process().memory_full_info().pss)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, check=True, capture_output=True, text=True, cwd=source.parent
    )
    return int(done.stdout.split()[-1]) / 2**20


def startup() -> float:
    """Median seconds from asking for a kernel to the end of its first empty cell, on an idle machine."""
    from jupyter_client.manager import KernelManager

    from helpers.warm.client import Warm

    times = []
    with Warm.start() as warm:
        os.environ.update(warm.environment)
        for _ in range(15):
            began = time.perf_counter()
            manager = KernelManager(kernel_name="python3")
            manager.start_kernel(env=ENVIRONMENT | warm.environment)
            client = manager.blocking_client()
            client.start_channels()
            client.wait_for_ready(timeout=60)
            client.execute_interactive("pass", timeout=60)
            times.append(time.perf_counter() - began)
            client.stop_channels()
            manager.shutdown_kernel()
    return statistics.median(times[1:])


CASES = {"one second": "runs_per_minute", "empty": "empty_runs_per_minute"}
SIDES = {"papermill": papermill, "papermill_pool": papermill_pool, "hookbook": sweep}


def rates(source: Path, work: str, sides: list[str], n_peer: int, n_ours: int, busy: bool) -> dict[str, float]:
    """Runs a minute of each side."""
    found = {}
    for side in sides:
        if not busy:
            require_idle()
        n = n_ours if side == "hookbook" else n_peer
        found[side] = round(60 * n / SIDES[side](source, n), 1)
        print(work, side, found[side], "runs a minute", flush=True)
    return found


def memory(source: Path) -> dict[str, object]:
    """The most that a sweep holds at a time, against one process and what each run makes for itself."""
    watch = Watch()
    sweep(source, 2 * CORES, watch=watch)
    one = alone_mb(source)
    return {
        "memory_ratio": round(max(watch.total_mb) / (one + CORES * OWN_MB), 3),
        "memory_mb": {"sweep": round(max(watch.total_mb)), "one_process": round(one), "own": CORES * OWN_MB},
    }


def growth(source: Path, n: int) -> dict[str, object]:
    """How much what stands for the whole sweep grows over many runs."""
    watch = Watch(5)
    seconds = sweep(source, n, watch=watch)
    # the medians of the second and the last tenth: workers that are replaced make single values jump
    standing, tenth = watch.standing_mb, max(1, len(watch.standing_mb) // 10)
    grown = statistics.median(standing[-tenth:]) - statistics.median(standing[tenth : 2 * tenth] or standing)
    return {f"noop_{n}": {"seconds": round(seconds), "growth_mb": round(grown, 1)}}


def main() -> None:
    """Measure, print as it goes, write the results."""
    names = [*CASES, "start-up", "memory", "growth"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--even-if-busy", action="store_true", help="measure beside other work, and say so")
    parser.add_argument("--scale", type=float, default=1, help="share of the runs, for a trial; below 1 not saved")
    parser.add_argument("--noop", type=int, default=2000, help="runs that do nothing; the results name their number")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="some cases; the others stay as saved")
    parser.add_argument("--ours", action="store_true", help="without the peers, for a trial; not saved")
    given = parser.parse_args()
    n_peer, n_ours, n_noop = (max(2, round(given.scale * n)) for n in (20, 200, given.noop))
    file = RESULTS / "batch.json"
    results = json.loads(file.read_text(encoding="utf-8")) if file.exists() and given.only != names else {}
    results["machine"] = machine(("torch", "transformer-lens", "papermill", "ipykernel"))
    results["machine"]["busy"] = given.even_if_busy
    with tempfile.TemporaryDirectory(prefix="hookbook-bench") as name:
        folder = Path(name)
        for work, key in CASES.items():
            if work not in given.only:
                continue
            sides = ["hookbook"] if given.ours else list(SIDES)
            found = rates(notebook(folder, work), work, sides, n_peer, n_ours, given.even_if_busy)
            results[key] = found
            if not given.ours:
                results[key.replace("runs_per_minute", "ratio")] = round(found["hookbook"] / found["papermill"], 1)
        if "start-up" in given.only:
            results["startup_s"] = round(startup(), 2)
            print("start-up", results["startup_s"], flush=True)
        if "memory" in given.only:
            results |= memory(notebook(folder, "hold"))
            print("memory", results["memory_ratio"], results["memory_mb"], flush=True)
        if "growth" in given.only:
            results |= (grown := growth(notebook(folder, "noop"), n_noop))
            print(grown, flush=True)
    if given.scale >= 1 and not given.ours:
        RESULTS.mkdir(exist_ok=True)
        file.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except HookbookError as error:
        sys.exit(str(error))
