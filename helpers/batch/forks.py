"""What the kernels of a sweep are forked from: one warm process with the imports and the models, where it pays."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from helpers import cells, notebooks
from helpers.batch.planned import Notebook, Plan
from helpers.errors import HookbookError
from helpers.warm.client import ADDRESS, Warm, impossible
from helpers.warm.preloads import preloads

_HEAVY = ("helpers", "torch", "transformers", "transformer_lens", "sklearn", "pandas")
_FEWEST = 3  # runs for which a warm process is worth its start, which takes as long as that of a cold kernel
_MANY = 30  # runs for which it is, although the notebook imports nothing heavy: a fork still starts in half the time
_LOOKED_AT = 50  # runs whose models are looked up
_HELD = 2  # models at most: each is in memory for as long as the sweep lasts


@contextmanager
def warm_process(found: dict[str, Notebook], runs: list[Plan]) -> Iterator[tuple[dict[str, str], str | None]]:
    """A warm process for these runs, if it is of use to them.

    Yields:
        Environment for the workers, empty where kernels start cold; and why they do although they should not.
    """
    pays = len(runs) >= (_FEWEST if any(map(_heavy, found.values())) else _MANY)
    if os.environ.get(ADDRESS) or impossible() or not pays:
        yield {}, None
        return
    with ExitStack() as stack:
        try:
            warm = stack.enter_context(Warm.start(_models(found, runs)))
        except HookbookError as error:
            yield {}, str(error)
            return
        yield {ADDRESS: warm.address}, None


def _heavy(notebook: Notebook) -> bool:
    """Whether the notebook imports anything that a cold kernel spends seconds on."""
    imported = cells.imports(cell.source for cell in notebooks.code_cells(notebooks.read(notebook.path)))
    return any(name.split(".")[0] in _HEAVY for name in imported)


def _models(found: dict[str, Notebook], runs: list[Plan]) -> list[dict[str, Any]]:
    """The models that most runs load, as arguments of `load_model`."""
    opened = {slug: notebooks.read(notebook.path) for slug, notebook in found.items()}
    wanted = Counter(
        json.dumps(arguments, sort_keys=True)
        for run in runs[:: max(1, len(runs) // _LOOKED_AT)]
        for arguments in preloads(opened[run.slug], run.parameters)
    )
    return [json.loads(text) for text, count in wanted.most_common(_HELD) if count > 1]
