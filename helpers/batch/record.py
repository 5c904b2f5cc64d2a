"""How a run ended: its status and exit code, where and why it stopped, what the ledger lacks."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import notebooks, papers
from helpers.batch.outcome import Outcome

EXIT_CODES = {
    "done": 0,
    "failed": 1,
    "killed": 3,
    "stopped early": 4,
    "out of memory": 5,
    "never ran": 6,
    "timed out": 124,
    "interrupted": 130,
}
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class Failure:
    """Where and why a run ended before its end: section (last heading), cell as numbered on screen, line and error."""

    section: str
    cell: int | None
    line: int | None
    code: str
    error: str
    traceback: str

    def __str__(self) -> str:
        place = self.section
        if self.cell:
            place += f", code cell {self.cell}"
        if self.line:
            place += f", line {self.line}: {self.code}"
        return f"{place}\n{self.error}"


@dataclass(frozen=True)
class RunRecord:
    """What a run was, how it ended, and where its files are."""

    slug: str
    status: str
    folder: Path
    notebook: Path
    html: Path | None  # a sweep writes a page only for runs that are not done
    ledger: dict[str, Any] | None
    parameters: dict[str, Any]
    preset: str
    seconds: float
    peak_private_mb: float | None
    failure: Failure | None
    by_system: bool = False  # ended by the system or by somebody's signal, and worth another try

    @property
    def exit_code(self) -> int:
        """0 when done; another number for each way of not being done."""
        return EXIT_CODES[self.status]


def never_reached(slug: str, ledger: dict[str, Any] | None) -> list[str]:
    """The claims of the catalogue that a run's ledger does not report, or reports as never reached."""
    stated = [claim.id for claim in papers.paper(slug).claims] if slug in papers.catalogue() else []
    rows = {row["id"]: row for row in ledger["claims"]} if ledger else {}
    silent = [claim for claim in stated if claim not in rows]
    return silent + [name for name, row in rows.items() if (row.get("reason") or "").startswith("never reached")]


def failure_of(outcome: Outcome) -> Failure | None:
    """Where and why an execution ended early; None when it is done."""
    if outcome.status == "done":
        return None
    nb, index = outcome.nb, outcome.cell
    if index is None:
        return Failure("the beginning", None, None, "", outcome.detail or "the kernel did not start", "")
    number = sum(cell.cell_type == "code" and bool(cell.source.strip()) for cell in nb.cells[: index + 1])
    errors = [output for output in nb.cells[index].get("outputs", []) if output.output_type == "error"]
    section = notebooks.heading(nb, index)
    if not errors:
        return Failure(section, number, None, "", outcome.detail, "")
    raised = _ANSI.sub("", "\n".join(errors[0].traceback))
    error = f"{errors[0].ename}: {errors[0].evalue}".rstrip(": ")
    frames = re.findall(rf"Cell In\s?\[{nb.cells[index].execution_count}\], line (\d+)", raised)
    lines = nb.cells[index].source.splitlines()
    # the innermost frame within this cell
    position = int(frames[-1]) if frames and int(frames[-1]) <= len(lines) else None
    code = lines[position - 1].strip() if position else ""
    return Failure(section, number, position, code, outcome.detail or _ANSI.sub("", error), raised)


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Write the run's own record, `run.json`, as a whole or not at all."""
    notebooks.write_text(folder / "run.json", json.dumps(record, indent=2, ensure_ascii=False) + "\n")
