"""Builds the site in a folder of its own, checks it, and only then puts it in its place."""

import shutil
import tempfile
from pathlib import Path

from sphinx.cmd.build import build_main

from book import site

HERE = Path(__file__).parent


def build(out: Path) -> list[str]:
    """Build the site and return what is wrong with it; nothing is put in its place unless all is well.

    Raises:
        HookbookError: what the site is made from cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="hookbook-book-") as scratch:
        source, html = Path(scratch) / "source", Path(scratch) / "html"
        source.mkdir()
        options = ["-b", "html", "-c", str(HERE), "-d", str(Path(scratch) / "doctrees"), "-W", "--keep-going", "-q"]
        if build_main([*options, str(source), str(html)]):
            return ["Sphinx warns, as said above."]
        if complaints := site.complaints(html):
            return complaints
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(out, ignore_errors=True)
        shutil.move(html, out)
    return []
