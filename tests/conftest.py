"""What several test modules share and take time to make."""

from pathlib import Path

import book_site
import pytest


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built book; it is only read."""
    pytest.importorskip("sphinx", reason="the book is not built without the group `book`: make setup")
    out = tmp_path_factory.mktemp("book") / "site"
    book_site.build(out)
    return out
