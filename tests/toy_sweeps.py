"""Small notebooks without torch for the tests of sweeps, and the command itself as a process."""

import atexit
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from rich.console import Console

from helpers import notebooks, papers
from helpers.batch import grids
from helpers.batch.spec import Spec
from helpers.batch.sweep import sweep

PARAMETERS = "seed: int = 0  # 0..\nlabel: str = 'a'  # a name"


def toy(path: Path, *sources: str, parameters: str = PARAMETERS) -> Path:
    """A notebook with one section per cell; its first cell leaves a line in the file `marks` beside the notebook."""
    nb = new_notebook(cells=[new_markdown_cell("# Toy\n\n## Parameters")])
    nb.cells.append(new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    mark = f"import os\n\nwith open({str(path.parent / 'marks')!r}, 'a') as file:\n    print(seed, file=file)"
    for number, source in enumerate([mark, *sources], start=1):
        nb.cells += [new_markdown_cell(f"## C{number} the claim"), new_code_cell(source)]
    notebooks.write(nb, path)
    return path


def marks(folder: Path) -> list[int]:
    """The seeds of the kernels that were started, in order."""
    file = folder / "marks"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def records(runs: Path, slug: str = "toy") -> dict[str, dict]:
    """Every run's record by the name of its folder."""
    return {file.parent.name: json.loads(file.read_text()) for file in runs.glob(f"{slug}/*/run.json")}


def start(folder: Path, *arguments: object, **options) -> subprocess.Popen:
    """`hookbook sweep` as a process of its own group, in `folder`."""
    # a job that a script put in the background ignores Ctrl-C, and so would all that it starts
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "helpers.cli", *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(papers.ROOT), "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )
    atexit.register(end, process)
    return process


def end(process: subprocess.Popen) -> None:
    """Kill a command that a failed test left behind."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def hookbook(folder: Path, *arguments: object) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    process = start(folder, *arguments)
    output, errors = process.communicate(timeout=180)
    return process.returncode, output, errors


def again(runs: Path, notebook: Path, grid: str, workers=None, stay=False, **options) -> tuple[int, str]:
    """What the same command would do, in this process: exit code and summary."""
    text = io.StringIO()
    out, asked = (
        Console(file=text, width=200),
        Spec(notebook=str(notebook), grid=grids.pairs([grid]), workers=workers, stay=stay),
    )
    found = sweep(asked, runs, out=out, err=Console(quiet=True), **options)
    return (found.exit_code if found else 0), text.getvalue()


def until(condition, seconds: float = 60):
    """What the condition says as soon as it says something."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
    return found


def family(pid: int) -> list[psutil.Process]:
    """The process and all that it has started."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def alive(process: psutil.Process) -> bool:
    """Whether it runs, and is no corpse that nobody has fetched."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
