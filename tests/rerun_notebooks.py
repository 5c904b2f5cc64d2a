"""Run a committed notebook again through nbmake, on a copy elsewhere, and compare the verdicts."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from helpers import notebooks, papers
from helpers.agreement import disagreement
from helpers.warm.client import Warm, impossible
from helpers.warm.preloads import preloads

CELL_SECONDS = 600
AT_A_TIME = 2
HELD = 2  # models that the warm process holds at most


@contextmanager
def reruns(paths: list[Path], folder: Path) -> Iterator[dict[Path, Future]]:
    """`rerun` of all notebooks, two at a time with a thread each, their kernels forked from one warm process."""
    with ExitStack() as stack:
        environment = {"OMP_NUM_THREADS": "1"}
        if paths and not impossible():
            models = [model for path in paths for model in preloads(path)]
            distinct = [model for i, model in enumerate(models) if model not in models[:i]]
            environment |= stack.enter_context(Warm.start(distinct[:HELD])).environment
        pool = stack.enter_context(ThreadPoolExecutor(AT_A_TIME))
        stack.callback(pool.shutdown, cancel_futures=True)  # when the tests were stopped

        def one(path: Path) -> list[str]:
            (folder / path.stem).mkdir()
            return rerun(path, folder / path.stem, environment)

        yield {path: pool.submit(one, path) for path in paths}


def rerun(path: Path, folder: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    """What went wrong, each complaint with notebook, section, cell and claim; nothing if all is as committed."""
    copy = folder / path.name
    nb = notebooks.read(path)
    committed = rows(nb)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None  # an old output cannot pass for a new one
    notebooks.write(nb, copy)
    command = [sys.executable, "-m", "pytest", "--nbmake", "--overwrite", f"--nbmake-timeout={CELL_SECONDS}"]
    done = subprocess.run(
        [*command, "-q", "-p", "no:cacheprovider", str(copy)],
        cwd=folder,
        env=os.environ | {"HOOKBOOK_PRESET": "quick", "OMP_WAIT_POLICY": "passive"} | dict(environment or {}),
        capture_output=True,
        text=True,
    )
    executed = notebooks.read(copy)
    paper, fresh = papers.paper(path.stem), rows(executed)
    failure = None if done.returncode == 0 else place_of_failure(executed) or last_words(done.stdout)
    if failure:
        unreached = [claim.id for claim in paper.claims if claim.id not in fresh]
        return [f"{path.stem}, {failure}; claims without a verdict: {', '.join(unreached) or 'none'}"]
    stated = {claim.id: claim for claim in paper.claims}
    missing = [f"{path.stem}, {name} has no committed verdict" for name in stated if name not in committed]
    complaints = [
        disagreement(claim, committed[name], fresh.get(name)) for name, claim in stated.items() if name in committed
    ]
    return missing + [f"{path.stem}, {section_of(nb, complaint)}: {complaint}" for complaint in complaints if complaint]


def ci_minutes(seconds: list[float]) -> float:
    """What a run of CI takes when the notebooks take these times one after another, with two threads each.

    Two at a time with a thread each do about 1.5 times as much; all else that CI does took 14 minutes when it was last
    looked at, and is given 18.
    """
    return 18 + sum(seconds) / 1.5 / 60


def rows(nb) -> dict[str, dict]:
    """The ledger's entries by claim; those never reached do not count."""
    ledger = notebooks.ledger(nb)
    entries = ledger["claims"] if ledger else []
    return {entry["id"]: entry for entry in entries if not (entry.get("reason") or "").startswith("never reached")}


def place_of_failure(nb) -> str | None:
    """Section, cell and error of the cell that raised."""
    for index, cell in enumerate(nb.cells):
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                return f"{notebooks.heading(nb, index)}, cell {cell.id}: {output.ename}: {output.evalue}"
    return None


def last_words(stdout: str) -> str:
    """What nbmake said where no cell holds an error: a kernel that died is an internal error to it."""
    if "Kernel died" in stdout or "DeadKernelError" in stdout:
        return "the kernel died; `hookbook run` tells in which cell"
    return f"nbmake failed: {' '.join(stdout.split()[-40:])}"


def section_of(nb, complaint: str) -> str:
    """The section of the claim that a complaint begins with."""
    name = complaint.split()[0]
    headings = [notebooks.heading(nb, index) for index in range(len(nb.cells))]
    return next((text for text in headings if re.match(rf"(C\d+[a-z]?,? (and )?)*{name}\b", text)), "The ledger")
