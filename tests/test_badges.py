import pytest
from catalogue_entries import STANDS

from helpers import badges
from helpers.papers import Paper

PAPER = Paper.model_validate({"slug": "some-paper", **STANDS})


@pytest.mark.parametrize(
    ("urls", "name"),
    [
        ("", None),
        ('[project.urls]\nRepository = "https://github.com/owner/name.git"', "owner/name"),
        ('[project.urls]\nRepository = "https://example.org/owner/name"', None),
    ],
)
def test_the_repository_comes_from_pyproject(urls, name):
    assert badges.repository(f'[project]\nname = "x"\n{urls}') == name


def test_badges_lead_to_the_notebook():
    text = badges.badges(PAPER, "owner/name")
    assert "/github/owner/name/blob/main/notebooks/circuits/some-paper.ipynb)" in text
    assert "/gh/owner/name/main?labpath=notebooks%2Fcircuits%2Fsome-paper.ipynb)" in text


def test_no_badge_and_no_invented_address_while_nothing_is_configured(monkeypatch):
    monkeypatch.setattr(badges, "repository", lambda: None)
    assert badges.badges(PAPER) == ""
