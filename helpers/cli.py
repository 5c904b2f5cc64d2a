"""`hookbook`: a function for each command; those that run many notebooks stand in helpers.batch.commands.

Everything heavy is imported inside the command that needs it, so that `hookbook list` answers at once.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from helpers.audit import command as audit_command
from helpers.batch import commands
from helpers.batch.commands import shown
from helpers.errors import HookbookError

app = typer.Typer(
    help="Interpretability papers as notebooks: claims stated first, checked in front of the reader.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

Slug = Annotated[str, typer.Argument(help="A paper's slug, as `hookbook list` shows it.")]
SlugOrPath = Annotated[str, typer.Argument(help="A paper's slug, as `hookbook list` shows it, or a notebook's path.")]
Slugs = Annotated[list[str] | None, typer.Argument(help="Slugs or paths; all notebooks that stand if none is given.")]


@app.command("list")
def list_papers(
    standing: Annotated[bool, typer.Option("--standing", help="Only papers whose notebook stands.")] = False,
) -> None:
    """List the papers by theme; ● has a notebook, ○ is planned."""
    from helpers import papers

    catalogue = papers.catalogue()
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("paper", no_wrap=True)
    table.add_column("tier")
    table.add_column("title")
    shown = 0
    for theme in papers.THEMES:
        chosen = [entry for entry in catalogue.values() if entry.theme == theme]
        chosen = sorted((entry for entry in chosen if not standing or entry.status == "stands"), key=lambda e: e.slug)
        if chosen:
            table.add_row("", f"[bold]{theme}", "", "")
        for entry in chosen:
            table.add_row("●" if entry.status == "stands" else "○", entry.slug, entry.tier, escape(entry.title))
        shown += len(chosen)
    out.print(table)
    out.print(f"{shown} papers; `hookbook show SLUG` tells more about one.", style="dim")


@app.command()
def show(slug: Slug) -> None:
    """Show what the catalogue says about a paper, its claims and its notebook's parameters."""
    from helpers import notebooks, papers

    paper = papers.paper(slug)
    out.print(f"[bold]{escape(paper.title)}")
    out.print(escape(f"{', '.join(paper.authors)}. {paper.venue}"))
    links = [f"arXiv {paper.arxiv}"] if paper.arxiv else []
    links += [f"code {paper.code}"] if paper.code else []
    facts = [f"{paper.theme}, tier {paper.tier}", *links]
    out.print(escape("; ".join(facts)), style="dim")
    if paper.teaching:
        minutes = paper.teaching.minutes
        out.print(f"\n{escape(paper.teaching.idea.strip())}")
        out.print(
            f"{paper.teaching.difficulty}; {minutes.read} min to read, {minutes.run:g} to run, "
            f"{minutes.exercise} to exercise",
            style="dim",
        )
    for claim in paper.claims:
        out.print(f"\n[bold]{claim.id}[/] ({claim.kind}) {escape(claim.statement.strip())}")
        out.print(escape(f"  {claim.statistic.strip()}: {claim.test.describe()}"), style="dim")
        out.print(escape(f"  paper: {claim.paper.text} ({claim.paper.model}, {claim.paper.place})"), style="dim")
    if not paper.notebook.is_file():
        out.print(f"\nPlanned: no notebook yet. `hookbook new {paper.slug}` writes its skeleton.")
        return
    table = Table(box=None, pad_edge=False, header_style="bold", title="\nparameters", title_justify="left")
    for column in ("name", "type", "default", "meaning; allowed; paper"):
        table.add_column(column)
    for parameter in notebooks.parameters(paper.notebook):
        cells = (parameter.name, parameter.expected, repr(parameter.default), parameter.comment)
        table.add_row(*map(escape, cells))
    out.print(table)
    out.print(f"\n{shown(paper.notebook)}", soft_wrap=True)


@app.command()
def run(
    slug: SlugOrPath,
    parameter: Annotated[
        list[str] | None,
        typer.Option("-p", "--parameter", metavar="NAME VALUE", help="Set a parameter; may be repeated."),
    ] = None,
    preset: Annotated[str, typer.Option(help="A named set of parameters: quick, evidence or paper.")] = "quick",
    timeout: Annotated[float | None, typer.Option(min=1, help="Seconds for the whole run.")] = None,
    memory: Annotated[float | None, typer.Option(min=1, help="MB that the run may hold for itself.")] = None,
    runs: Annotated[Path | None, typer.Option(help="The folder that holds all runs.  [default: runs]")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="File a finished evidence run under data/claims/.")] = False,
) -> None:
    """Run a notebook into a new folder under runs/ and print its ledger."""
    from helpers.batch.folders import RUNS
    from helpers.batch.single import run as run_notebook

    given = commands.pairs(parameter)
    folder = runs.resolve() if runs else RUNS
    if keep:
        from helpers.batch.evidence import refuse_others

        refuse_others(given, preset)
    record = run_notebook(slug, given, preset, folder, timeout=timeout, memory_mb=memory, console=err)
    tell(record)
    if keep and record.exit_code == 0:
        file_evidence(record)
    raise typer.Exit(record.exit_code)


def file_evidence(record) -> None:
    """Keep the ledger of a finished evidence run, and say where."""
    from helpers.batch.evidence import keep

    out.print(f"evidence   {shown(keep(record))}", soft_wrap=True)


def tell(record) -> None:
    """Print the ledger of a run, how it ended, and where its files are."""
    if record.ledger:
        from helpers.tables import print_table

        print_table(record.ledger, out)
    memory = "" if record.peak_private_mb is None else f", {record.peak_private_mb:.0f} MB of its own memory at most"
    out.print(f"\n{record.slug}: {record.status} after {record.seconds:.1f} s{memory}")
    if record.failure:
        err.print(f"[bold red]{record.status}[/] in {escape(str(record.failure))}", soft_wrap=True)
    out.print(f"notebook   {shown(record.notebook)}", soft_wrap=True)
    out.print(f"HTML       {shown(record.html)}", soft_wrap=True)
    if record.failure:
        out.print(f"traceback  {shown(record.folder / 'traceback.txt')}", soft_wrap=True)


app.command()(commands.sweep)
app.command()(commands.report)
app.command()(audit_command.audit)


@app.command()
def refresh(slugs: Slugs = None) -> None:
    """Run notebooks with their defaults and write outputs and stamp into the committed files."""
    from helpers.batch.refresh import refresh as refresh_notebook

    code = 0
    for slug in chosen(slugs):
        record = refresh_notebook(slug, console=err)
        tell(record)
        code = code or record.exit_code
    raise typer.Exit(code)


@app.command()
def evidence(slugs: Slugs = None) -> None:
    """Run the evidence presets one after another and keep each; without slugs only those that are behind.

    What goes wrong with one stops no other; the exit code is 0 if all are kept, else that of the first that is not.
    """
    from helpers.batch.evidence import is_current
    from helpers.batch.single import run as run_notebook

    code = 0
    for slug in chosen(slugs):
        try:
            if not slugs and is_current(slug):
                out.print(f"{slug}: the evidence that is kept is that of the notebook as it is now")
                continue
            record = run_notebook(slug, {}, "evidence", console=err)
            tell(record)
            code = code or record.exit_code
            if record.status == "done":
                file_evidence(record)
        except HookbookError as error:
            err.print(f"{slug}: {escape(str(error))}", soft_wrap=True)
            code = code or 2
            continue
        if record.status == "interrupted":  # whoever presses Ctrl-C means all of them
            break
    raise typer.Exit(code)


@app.command()
def check(slugs: Slugs = None) -> None:
    """Check notebooks against the rules that hold for every one of them; nothing is executed."""
    from helpers.batch.planned import locate
    from helpers.rules import check as check_notebook

    found = 0
    for slug in chosen(slugs):
        path = locate(slug)[1]
        for problem in check_notebook(path):
            found += not problem.advice
            out.print(f"{shown(path)}: {escape(str(problem))}", soft_wrap=True)
    out.print("no problems" if not found else f"{found} problem{'s' * (found > 1)}", style="dim")
    raise typer.Exit(1 if found else 0)


@app.command()
def new(slug: Slug) -> None:
    """Write the skeleton of a paper's notebook, filled from the catalogue."""
    from helpers.skeleton import new as write_skeleton

    out.print(f"wrote {shown(write_skeleton(slug))}; every TODO in it waits for you", soft_wrap=True)


@app.command()
def student(
    slug: SlugOrPath,
    to: Annotated[
        Path | None, typer.Option("--out", help="A file or a folder.  [default: SLUG-student.ipynb here]")
    ] = None,
) -> None:
    """Write a copy of a notebook for students, without a line of any solution; an edited copy is never replaced."""
    from helpers.batch.planned import locate
    from helpers.student import write as write_copy

    out.print(f"wrote {shown(write_copy(locate(slug)[1], to))}; every check in it says `not yet`", soft_wrap=True)


@app.command()
def power(slug: Slug) -> None:
    """Say how many units would settle each open claim, of the committed run and of the stored evidence."""
    from helpers.power import print_needs

    print_needs(slug, out)


@app.command()
def compare(
    model_a: Annotated[str, typer.Argument(help="A model with evidence under data/claims/.")],
    model_b: Annotated[str, typer.Argument(help="Another one.")],
    slugs: Annotated[list[str] | None, typer.Argument(help="Papers; all that both have if none is given.")] = None,
    to: Annotated[Path, typer.Option("--out", help="The folder for the figures.")] = Path("."),
    runs: Annotated[
        Path | None, typer.Option(help="Take the newest finished runs in this folder, with their rows per unit.")
    ] = None,
) -> None:
    """Compare the verdicts on two models: a table and a figure for each paper."""
    from helpers import forest, split_half, stored
    from helpers.compare import compare as side_by_side
    from helpers.compare import print_table

    models = (model_a, model_b)
    found = [split_half.finished_runs(model, runs) if runs else stored.of_model(model) for model in models]
    for comparison in side_by_side(*found, slugs or []):
        print_table(comparison, models, out)
        out.print(f"figure   {shown(forest.save(comparison, models, to))}\n", soft_wrap=True)


models_app = typer.Typer(invoke_without_command=True, help="List the known models, or fetch one.")
app.add_typer(models_app, name="models")


@models_app.callback()
def models(context: typer.Context) -> None:
    """List the models that are known by name, and the prefixes that make nulls of them."""
    if context.invoked_subcommand:
        return
    from helpers import models as registry
    from helpers import nulls

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("name", "MB", "licence", "gated", "cached", "source"):
        table.add_column(column, justify="right" if column == "MB" else "left", no_wrap=column == "name")
    for model in registry.MODELS:
        gated, cached = ("yes" if flag else "no" for flag in (model.gated, model.cached))
        table.add_row(model.name, f"{model.size_mb:,.0f}", escape(model.licence), gated, cached, escape(model.source))
    out.print(table)
    prefixes = Table(box=None, pad_edge=False, header_style="bold", title="\nbefore a name", title_justify="left")
    for column in ("prefix", "what the weights are then"):
        prefixes.add_column(column, no_wrap=column == "prefix")
    for null in nulls.NULLS.values():
        prefixes.add_row(f"{null.name}:", null.meaning)
    out.print(prefixes)
    out.print(f"cache: {registry.cache_dir()}; any other name of the hub or a folder works too", style="dim")


@models_app.command()
def fetch(name: Annotated[str, typer.Argument(help="A name that `hookbook models` lists, or one of the hub.")]) -> None:
    """Fetch a model into the cache, so that later runs need no network."""
    from helpers import models as registry

    out.print(f"{name} is in {registry.fetch(name)}", soft_wrap=True)


@app.command()
def gallery(
    write: Annotated[bool, typer.Option("--write", help="Bring README.md up to date.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only say whether README.md is up to date.")] = False,
) -> None:
    """Print the README's table of notebooks, write it, or check it."""
    from helpers import gallery as table
    from helpers import papers

    if write:
        table.write()
        out.print("README.md is up to date")
    elif check:
        if not table.is_current():
            raise HookbookError("The gallery in README.md is out of date: run `hookbook gallery --write`.")
        out.print("README.md is up to date")
    else:
        print(table.gallery_markdown(papers.catalogue()), end="")


@app.command()
def warm(
    command: Annotated[list[str], typer.Argument(help="The command, after `--`.", metavar="-- COMMAND")],
    model: Annotated[
        list[str] | None, typer.Option(help="A model to hold in memory, raw as the notebooks load it; may be repeated.")
    ] = None,
    folded: Annotated[
        list[str] | None, typer.Option(help="The same with folded weights, `load_model`'s default; may be repeated.")
    ] = None,
) -> None:
    """Run a command whose Jupyter kernels are forked from a warm process instead of started cold.

    It holds for whatever the command starts: `pytest --nbmake`, papermill, `jupyter execute`, `hookbook run`. A model
    that is loaded with other arguments than processing and name is read from the disk as ever.
    """
    from helpers.warm import command as warm_command

    wanted = [{"name": name, "processing": "raw"} for name in model or []]
    wanted += [{"name": name, "processing": "folded"} for name in folded or []]
    raise typer.Exit(warm_command.run(command, wanted))


@app.command()
def doctor() -> None:
    """Say on one screen whether this machine is ready, and what to do where it is not."""
    from helpers.doctor import diagnose, print_report

    findings = diagnose()
    print_report(findings, out)
    raise typer.Exit(1 if any(finding.broken for finding in findings) else 0)


def chosen(slugs: list[str] | None) -> list[str]:
    """The given slugs, else those of all notebooks that stand."""
    from helpers import papers

    standing = [slug for slug, paper in papers.catalogue().items() if paper.notebook.is_file()]
    if not slugs and not standing:
        raise HookbookError("No notebook stands yet; `hookbook new SLUG` begins one.")
    return slugs or standing


def joined(arguments: list[str]) -> list[str]:
    """`-p NAME VALUE` as the one argument `NAME=VALUE`; typer has no repeated option of two values.

    What follows `--` is another program's and stays as it is.
    """
    result, rest = [], list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            return [*result, argument, *rest]
        result.append(argument)
        if argument in ("-p", "--parameter") and rest:
            name = rest.pop(0)
            result.append(f"{name}={rest.pop(0)}" if name.isidentifier() and rest else name)
    return result


def main() -> None:
    """The command's entry: what a user can mend is one sentence and exit code 2, never a traceback."""
    # jsonschema would check addresses in notebooks with it, which takes a second to import; without it, it does not
    sys.modules.setdefault("rfc3987_syntax", None)
    try:
        app(args=joined(sys.argv[1:]), prog_name="hookbook")
    except HookbookError as error:
        err.print(escape(str(error)), soft_wrap=True)
        sys.exit(2)
    except BrokenPipeError:  # `hookbook list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
