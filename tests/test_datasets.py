import pytest

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
