"""Runs of notebooks: validated before they start, recorded truthfully, kept where nothing overwrites them.

`run("sentiment-direction", seed=3)` is one run and shows its ledger, `results("my-sweep")` the table of a sweep.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from helpers.batch.shown import Ran

__all__ = ["results", "run"]


def run(slug: str | Path, *, preset: str = "quick", **parameters: Any) -> "Ran":
    """Run a paper's notebook in a kernel of its own, into a new folder under runs/, and return what it found.

    Args:
        slug: a slug of the catalogue, or the path of a notebook.
        preset: the catalogue's named set of parameters.
        parameters: values that differ from the preset's.

    Raises:
        HookbookError: a mistake in the arguments (before a kernel starts), or a run that did not end as done; the
            sentence says where its notebook is.
    """
    from helpers.batch import shown  # here, as below: `import helpers.batch` costs nothing

    return shown.run(slug, parameters, preset)


def results(name: str | Path, units: bool = False) -> "pd.DataFrame":
    """The tidy table of a sweep, which may still be running: a row per run and claim.

    Args:
        name: the sweep's name, or its folder.
        units: a row per run, claim and unit instead, with the values that went into the claims.

    Raises:
        HookbookError: there is no such sweep; the sentence names the nearest.
    """
    from helpers.batch import collect

    return collect.results(name, units)
