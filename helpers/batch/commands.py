"""The commands `hookbook sweep` and `hookbook report`: their options, and nothing heavy until one of them is called."""

import os
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from helpers.errors import HookbookError

_PARAMETER = typer.Option("-p", "--parameter", metavar="NAME VALUE", help="Set a parameter for all runs; repeatable.")
_GRID = typer.Option("--grid", metavar="NAME=VALUES", help="Vary a parameter: seed=0:20, layer=0:12:3, words=a,b.")


def sweep(
    what: Annotated[str, typer.Argument(help="A paper's slug, a notebook's path, or a YAML file that describes all.")],
    grid: Annotated[list[str] | None, _GRID] = None,
    parameter: Annotated[list[str] | None, _PARAMETER] = None,
    preset: Annotated[str | None, typer.Option(help="A named set of parameters.  [default: quick]")] = None,
    name: Annotated[str | None, typer.Option(help="The sweep's name.  [default: from slug and grid]")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Runs at a time.  [default: the cores]")] = None,
    timeout: Annotated[float | None, typer.Option(min=1, help="Seconds for a run.")] = None,
    memory: Annotated[float | None, typer.Option(min=1, help="MB that a run may hold for itself.")] = None,
    retries: Annotated[
        int | None, typer.Option(min=0, help="Repetitions of a run that was killed.  [default: 1]")
    ] = None,
    stay: Annotated[
        bool, typer.Option("--stay", help="Reset a worker's kernel for its next run instead of starting a fresh one.")
    ] = False,
    shard: Annotated[str, typer.Option(metavar="I/N", help="Only every N-th run, from the I-th.")] = "1/1",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and stop there.")] = False,
    runs: Annotated[Path | None, typer.Option(help="The folder that holds all runs.  [default: runs]")] = None,
) -> None:
    """Run a notebook for every combination of a grid; the same command goes on where it was stopped.

    A range ends before its end: seed=0:20 are 20 seeds. Text with a comma stands in quotes: label='a,b',c.
    Exit code: 0 when all runs are done, 130 when interrupted, 2 for a mistake in the command, else 1.
    """
    from helpers.batch import grids, spec
    from helpers.batch.folders import RUNS
    from helpers.batch.sweep import sweep as execute

    given = {
        "name": name,
        "preset": preset,
        "workers": workers,
        "timeout": timeout,
        "memory": memory,
        "retries": retries,
    }
    given = {key: value for key, value in given.items() if value is not None} | ({"stay": True} if stay else {})
    if what.endswith((".yaml", ".yml")):
        if grid or parameter:
            raise HookbookError("A YAML file says which parameters: leave out --grid and -p, or name a slug instead.")
        asked = spec.read(Path(what)).model_copy(update=given)
    else:
        asked = spec.Spec(notebook=what, grid=grids.pairs(grid or []), parameters=pairs(parameter), **given)
    if name is not None:
        spec.check_name(name)
    try:
        swept = execute(
            asked,
            runs.resolve() if runs else RUNS,
            shard=_shard(shard),
            dry_run=dry_run,
            out=_console(),
            err=_console(stderr=True),
            shown=shown,
        )
    except KeyboardInterrupt:  # before a kernel ran, or after the last one
        raise typer.Exit(130) from None
    raise typer.Exit(swept.exit_code if swept else 0)


def report(
    name: Annotated[str, typer.Argument(help="A sweep's name, or its folder.")],
    out: Annotated[Path | None, typer.Option(help="Where to write.  [default: report/ in the sweep's folder]")] = None,
    plot: Annotated[
        list[str] | None,
        typer.Option("--plot", metavar="CLAIM:value~NAME", help="A figure of a claim over a parameter; repeatable."),
    ] = None,
    runs: Annotated[Path | None, typer.Option(help="The folder that holds all runs.  [default: runs]")] = None,
) -> None:
    """Write tables, figures and a page about a sweep, which may still be running."""
    from helpers.batch.folders import RUNS
    from helpers.batch.report import report as write

    for what, path in write(name, out, plot or [], runs.resolve() if runs else RUNS).items():
        _console().print(f"{what:<9}  {escape(shown(path))}", soft_wrap=True)


def pairs(given: list[str] | None) -> dict[str, str]:
    """`["seed=1"]` as names and values, still text.

    Raises:
        HookbookError: a name without a value.
    """
    found = {}
    for pair in given or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise HookbookError(f"-p needs a name and a value, as in `-p seed 1`; the value of {pair} is missing.")
        found[name] = value
    return found


def shown(path: Path) -> str:
    """A path as short as it can be typed from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match:
        raise HookbookError(f"--shard needs a part and a number of parts, as in 1/4; got {text!r}.")
    return int(match[1]), int(match[2])


def _console(stderr: bool = False) -> Console:
    return Console(stderr=stderr, highlight=False)
