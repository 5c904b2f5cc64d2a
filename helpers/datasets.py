"""Prompt sets, word lists and tables that live in data/, each described in data/README.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import yaml

from helpers.errors import HookbookError
from helpers.papers import ROOT

DATA = ROOT / "data"


def read_yaml(name: str) -> dict[str, Any]:
    """A prompt set from data/<name>.yaml, as plain lists and strings.

    Raises:
        HookbookError: If there is no such file.
    """
    path = DATA / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in DATA.glob("*.yaml") if p.stem != "papers"))
        raise HookbookError(f"There is no data/{name}.yaml; the prompt sets are {known}.")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


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
