"""Ties the book to Sphinx: its source is written before Sphinx looks for pages."""

from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from book import stage
from helpers.errors import HookbookError


def _write(app: Sphinx) -> None:
    source = Path(app.srcdir)
    try:
        stage.write(source)
    except HookbookError as error:
        raise ExtensionError(str(error)) from None
    app.config.html_extra_path.append(str(source / "_extra"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages as soon as there is a builder."""
    app.connect("builder-inited", _write, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
