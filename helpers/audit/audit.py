"""The audit of a notebook, from its plan to its record: a sweep that the usual supervisor runs and resumes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from rich.console import Console

from helpers import models, notebooks, papers
from helpers.audit import findings, kept
from helpers.audit.findings import Played
from helpers.audit.own_nulls import own_nulls
from helpers.audit.roles import Role, model_name, roles
from helpers.audit.summary import FOLDER
from helpers.batch import collect
from helpers.batch.folders import RUNS
from helpers.batch.planned import Notebook
from helpers.batch.spec import Spec
from helpers.batch.sweep import sweep

_INTERRUPTED = 130


@dataclass(frozen=True)
class Audited:
    """What came of an audit; without a record where it was interrupted: the same command goes on with it."""

    record: dict[str, Any] | None
    path: Path | None
    exit_code: int


def audit(
    slug_or_path: str | Path,
    given: dict[str, Any] | None = None,
    *,
    runs_dir: Path = RUNS,
    folder: Path = FOLDER,
    entry: papers.Audit | None = None,
    workers: int | None = None,
    timeout: float | None = None,
    dry_run: bool = False,
    out: Console,
    err: Console,
    shown: Any = str,
) -> Audited:
    """Run what is not yet done of an audit, and write its record.

    Args:
        slug_or_path: a slug of the catalogue, or a notebook's path.
        given: parameters of all runs that differ from the notebook's own.
        runs_dir: the folder of all runs.
        folder: the folder of all audits.
        entry: what may be varied; by default what the catalogue's entry says.
        workers: runs at a time; the number of cores if missing.
        timeout: seconds for a run.
        dry_run: print the plan alone.
        out: where plan and summary of the sweep are printed.
        err: where progress is shown.
        shown: makes a path as short as it can be typed.

    Raises:
        HookbookError: a mistake in what was asked for, or a folder that cannot be written.
    """
    notebook = Notebook.at(slug_or_path)
    fixed = notebooks.validate(notebook.known, given or {}, notebook.slug)
    paper = papers.catalogue().get(notebook.slug)
    entry = entry or (paper and paper.audit) or papers.Audit()
    kinds = [claim.kind for claim in paper.claims] if paper else get_args(papers.Kind)
    wanted = roles(notebook, kinds, entry, fixed)
    asked = Spec(
        name=f"audit-{notebook.slug}",
        notebook=str(slug_or_path),
        points=[role.given for role in wanted],
        workers=workers,
        timeout=timeout,
    )
    swept = sweep(asked, runs_dir, dry_run=dry_run, out=out, err=err, shown=shown)
    if swept is None or swept.exit_code == _INTERRUPTED:
        return Audited(None, None, swept.exit_code if swept else 0)
    played = _played(notebook, wanted, swept.name, runs_dir)
    model = models.shown_name(model_name(notebook, fixed)) if notebook.shared.model else "no-model"
    own = own_nulls(paper.claims if paper else [], entry.nulls, played[0].run)
    record = findings.findings(notebook.slug, model, played, entry.choices, own)
    return Audited(record, kept.keep(record, folder), swept.exit_code)


def _played(notebook: Notebook, wanted: list[Role], name: str, runs_dir: Path) -> list[Played]:
    """Each role with its run, found by its fingerprint; one run may play several."""
    runs = {run.id: run for run in collect.gather(name, runs_dir)}
    ids = [notebook.shared.complete(notebook.values(role.given)[0]).id for role in wanted]
    return [Played(role, runs.get(id)) for role, id in zip(wanted, ids, strict=True)]
