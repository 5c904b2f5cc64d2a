"""Papermill's engine `hookbook`: `papermill --engine hookbook in.ipynb out.ipynb` in a forked kernel."""

import os
from typing import Any

from nbformat import NotebookNode

from helpers.errors import HookbookError
from helpers.warm.client import ADDRESS, Warm

_own: dict[int, Warm | None] = {}  # by process: a fork of this one has to start its own


class HookbookEngine:
    """Papermill's NBClientEngine with forked kernels.

    Without HOOKBOOK_WARM the first notebook starts a warm process, which holds the models of that notebook and lives as
    long as this Python process; a loop over `papermill.execute_notebook(..., engine_name="hookbook")` pays for the
    imports once.

    It hands on to papermill's engine instead of deriving from it, since papermill imports its engines while it is being
    imported itself.
    """

    @staticmethod
    def execute_notebook(nb: NotebookNode, kernel_name: str, *arguments: Any, **options: Any) -> NotebookNode:
        """Execute a notebook, as NBClientEngine does.

        Args:
            nb: the notebook, with its parameters injected.
            kernel_name: of the kernelspec.
            arguments: as for NBClientEngine.
            options: likewise; a `kernel_manager_class` among them is respected.
        """
        from papermill.engines import NBClientEngine

        if "kernel_manager_class" not in options:
            from helpers.warm.provisioner import WarmManager

            address = os.environ.get(ADDRESS) or _own_address(nb)
            options["kernel_manager_class"] = type("Manager", (WarmManager,), {"address": address})
        return NBClientEngine.execute_notebook(nb, kernel_name, *arguments, **options)

    @staticmethod
    def nb_kernel_name(nb: NotebookNode, name: str | None = None) -> str:
        """The notebook's kernel, unless a name is given."""
        from papermill.engines import NBClientEngine

        return NBClientEngine.nb_kernel_name(nb, name)

    @staticmethod
    def nb_language(nb: NotebookNode, language: str | None = None) -> str:
        """The notebook's language, unless one is given."""
        from papermill.engines import NBClientEngine

        return NBClientEngine.nb_language(nb, language)


def _own_address(nb: NotebookNode) -> str | None:
    """The address of this process's own warm process, started now if need be; None where there can be none."""
    if os.getpid() not in _own:
        from helpers.warm.provisioner import say_once

        try:
            _own[os.getpid()] = _start(nb)
        except HookbookError as error:
            say_once(str(error))
            _own[os.getpid()] = None
    warm = _own[os.getpid()]
    return None if warm is None else warm.address


def _start(nb: NotebookNode) -> Warm:
    from helpers.warm.preloads import preloads

    try:
        return Warm.start(preloads(nb))
    except HookbookError:  # a model that cannot be had is the notebook's own affair
        return Warm.start()
