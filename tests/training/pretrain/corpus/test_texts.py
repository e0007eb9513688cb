from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.pretrain.corpus import number_words
from training.pretrain.corpus.normalise import ALPHABET, key, normalise
from training.pretrain.corpus.text_sources import EVALUATION_SENTENCES, TextSources, load_text_sources
from training.pretrain.corpus.texts import MAX_LONG_LETTERS, TextStream, is_held_out
from training.pretrain.errors import CorpusError

needs_sources = pytest.mark.needs_program("fortunes", "wamerican")


@pytest.fixture(scope="module")
def sources() -> TextSources:
    return load_text_sources()


@pytest.fixture(scope="module")
def many_texts(sources: TextSources) -> list[str]:
    stream = TextStream(sources, seed=1)
    return [stream.text(index) for index in range(20_000)]


@needs_sources
def test_texts_hold_only_known_characters_and_have_the_promised_lengths(many_texts: list[str]):
    assert set("".join(many_texts)) <= ALPHABET
    lengths = sorted(map(len, many_texts))
    assert lengths[0] >= 2
    assert lengths[-1] <= MAX_LONG_LETTERS
    assert 20 <= lengths[len(lengths) // 4] <= lengths[3 * len(lengths) // 4] <= 80


@needs_sources
def test_texts_hardly_repeat(many_texts: list[str]):
    num_by_key = Counter(map(key, many_texts))
    assert len(num_by_key) >= 0.99 * len(many_texts)
    # One-word answers are the only ones worth repeating.
    assert all(len(repeated) < 40 for repeated, num in num_by_key.items() if num > 3)


@needs_sources
def test_a_text_depends_on_seed_and_index_only(sources: TextSources, many_texts: list[str]):
    again = TextStream(sources, seed=1)
    assert [again.text(index) for index in reversed(range(400))] == many_texts[399::-1]
    other = TextStream(sources, seed=2)
    long_keys = {key(text) for text in map(other.text, range(400)) if len(text) > 25}
    assert len(long_keys) > 200
    assert not long_keys & set(map(key, many_texts[:400]))


@needs_sources
def test_held_out_texts_are_never_training_texts(sources: TextSources, many_texts: list[str]):
    held_out = TextStream(sources, seed=1, held_out=True)
    held_out_texts = [held_out.text(index) for index in range(300)]
    assert len(set(held_out_texts)) > 290
    assert all(map(is_held_out, held_out_texts))
    assert not any(map(is_held_out, many_texts))


@needs_sources
def test_evaluation_sentences_are_never_said(sources: TextSources, tmp_path, many_texts: list[str]):
    judged_by = EVALUATION_SENTENCES.read_text(encoding="utf-8").splitlines()
    assert len(set(map(key, judged_by))) == 50
    assert all(normalise(sentence) == sentence for sentence in judged_by)
    assert not set(map(key, judged_by)) & set(map(key, many_texts))
    # None of the 50 would come up anyway, so forbid what does come up.
    forbidden = tmp_path / "sentences.txt"
    forbidden.write_text("\n".join(text.upper() for text in many_texts[:100]), encoding="utf-8")
    stream = TextStream(load_text_sources(evaluation=forbidden), seed=1)
    assert not set(map(key, many_texts[:100])) & {key(stream.text(index)) for index in range(2000)}


def test_missing_sources_name_their_package(tmp_path):
    with pytest.raises(CorpusError, match="apt-get install fortunes"):
        load_text_sources(fortunes=tmp_path)
    (tmp_path / "people").write_text("A line.\n%\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="apt-get install wamerican"):
        load_text_sources(fortunes=tmp_path, word_list=tmp_path / "words")


@given(st.text(alphabet=st.sampled_from("aB1234567890 .,'\"-!?$%&()\u2019\u2014\u00e9\n\t"), max_size=40))
def test_normalised_text_is_known_and_stays_as_it_is(text: str):
    once = normalise(text)
    if once is not None:
        assert set(once) <= ALPHABET
        assert normalise(once) == once


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ('He said "no" -- twice.', "He said no, twice."),
        (
            "In 1984, 21% paid $1,204...",
            "In nineteen eighty-four, twenty-one percent paid one thousand two hundred and four dollars",
        ),
        ("Mr. O\u2019Neil\u2019s 3rd caf\u00e9 & bar?!", "Mister O'Neil's third cafe and bar?"),
        ("while (x) { x++; }", None),
        ("2.5 miles", None),
    ],
)
def test_normalise(raw: str, said: str | None):
    assert normalise(raw) == said


@given(st.integers(0, number_words.LIMIT - 1), st.integers(0, number_words.LIMIT - 1))
def test_different_numbers_have_different_words(one: int, other: int):
    assert (number_words.cardinal(one) == number_words.cardinal(other)) == (one == other)
    assert (number_words.ordinal(one) == number_words.ordinal(other)) == (one == other)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "zero"),
        (17, "seventeen"),
        (40, "forty"),
        (99, "ninety-nine"),
        (101, "one hundred and one"),
        (1204, "one thousand two hundred and four"),
        (2_000_013, "two million and thirteen"),
    ],
)
def test_cardinal(number: int, said: str):
    assert number_words.cardinal(number) == said


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (1900, "nineteen hundred"),
        (1905, "nineteen oh five"),
        (2007, "two thousand and seven"),
        (2026, "twenty twenty-six"),
    ],
)
def test_year(number: int, said: str):
    assert number_words.year(number) == said
