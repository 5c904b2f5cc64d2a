"""Run a committed notebook again through nbmake, on a copy elsewhere, and compare the verdicts."""

import os
import re
import subprocess
import sys
from pathlib import Path

from helpers import notebooks, papers
from helpers.agreement import disagreement

CELL_SECONDS = 600


def rerun(path: Path, folder: Path) -> list[str]:
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
        env=os.environ | {"HOOKBOOK_PRESET": "quick", "OMP_WAIT_POLICY": "passive"},
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
