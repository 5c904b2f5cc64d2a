"""The command `hookbook audit`: its options, and nothing heavy until it is called."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from helpers.batch.commands import pairs, shown

_SLUGS = typer.Argument(help="Slugs or paths; all notebooks that stand if none is given.", metavar="[SLUG]...")
_PARAMETER = typer.Option("-p", "--parameter", metavar="NAME VALUE", help="Set a parameter for all runs; repeatable.")


def audit(
    slugs: Annotated[list[str] | None, _SLUGS] = None,
    parameter: Annotated[list[str] | None, _PARAMETER] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Runs at a time.  [default: the cores]")] = None,
    timeout: Annotated[float | None, typer.Option(min=1, help="Seconds for a run.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and stop there.")] = False,
    to: Annotated[Path | None, typer.Option("--out", help="Where to write.  [default: data/audit]")] = None,
    runs: Annotated[Path | None, typer.Option(help="The folder that holds all runs.  [default: runs]")] = None,
) -> None:
    """Try to refute claims: on models that learned nothing, with other seeds, units and choices, and with jitter.

    The same command goes on where it was stopped, and runs again only what has changed. It names each claim that a
    null passes. Exit code: 0 when all runs are done, 130 when interrupted, 2 for a mistake in the command, else 1.
    """
    from helpers import papers
    from helpers.audit.audit import audit as audit_notebook
    from helpers.audit.summary import FOLDER, records, summary
    from helpers.audit.table import print_audit, print_summary
    from helpers.batch.folders import RUNS

    out, err = Console(highlight=False), Console(stderr=True, highlight=False)
    folder = to or FOLDER
    chosen = slugs or [slug for slug, paper in papers.catalogue().items() if paper.notebook.is_file()]
    code, written = 0, []
    for slug in chosen:
        try:
            audited = audit_notebook(
                slug,
                pairs(parameter),
                runs_dir=runs.resolve() if runs else RUNS,
                folder=folder,
                workers=workers,
                timeout=timeout,
                dry_run=dry_run,
                out=out,
                err=err,
                shown=shown,
            )
        except KeyboardInterrupt:  # before a kernel ran, or after the last one
            raise typer.Exit(130) from None
        code = code or audited.exit_code
        if audited.exit_code == 130:
            break
        if audited.record:
            print_audit(audited.record, out)
            written.append(audited.path)
            out.print(f"audit   {escape(shown(audited.path))}\n", soft_wrap=True)
    if written:
        print_summary(summary(records(folder)), out)
    raise typer.Exit(code)
