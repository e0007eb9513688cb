import numpy as np
import pytest
import torch

from training.pretrain.whisper_alignment import align, even_places, soft_targets, token_places
from training.pretrain.whisper_job import POSITIONS_PER_SECOND
from training.pretrain.whisper_spelling import BLANK, Said, Spelling, letters_of, read_letters

TWO = [Said("Well, it's a twenty-one: ok; fine!", 0.1, 2.5), Said("Seven ducks?", 3.0, 4.0)]


@pytest.fixture(scope="module")
def spelling() -> Spelling:
    return Spelling(768)


def test_tokens_are_whispers_own_and_say_the_text_without_what_its_decoding_suppresses(spelling: Spelling):
    spelled = spelling.spell(TWO, timed=False)
    assert spelling.whisper.decode(spelled.tokens[:-1]) == " Well, it's a twenty-one, ok, fine! Seven ducks?"
    assert spelled.tokens[-1] == spelling.whisper.eot
    assert max(spelled.tokens[:-1]) < 768
    # A colon or a semicolon as a token of its own is never decoded; hyphens within words are.
    assert not set(spelled.tokens) & set(spelling.whisper.non_speech_tokens)


def test_every_utterance_stands_between_its_times(spelling: Spelling):
    spelled = spelling.spell(TWO, timed=True)
    times = [
        (token - spelling.whisper.timestamp_begin) * 0.02
        for token in spelled.tokens
        if token >= spelling.whisper.timestamp_begin
    ]
    assert times == pytest.approx([0.1, 2.5, 3.0, 4.0])


def test_whisper_is_not_asked_for_a_first_time_it_cannot_write(spelling: Spelling):
    late = spelling.spell([Said("Late.", 1.7, 2.5)], timed=True)
    assert late.tokens[0] == spelling.whisper.timestamp_begin + 50


@pytest.mark.parametrize("timed", [False, True], ids=["plain", "timed"])
def test_tokens_know_the_letters_they_say(spelling: Spelling, timed: bool):
    spelled = spelling.spell(TWO, timed=timed)
    assert read_letters(spelled.letters) == "well its a twenty one ok fine seven ducks"
    assert len(spelled.spans) == len(spelled.tokens)
    for token, (first, last) in zip(spelled.tokens, spelled.spans, strict=True):
        text = spelling.whisper.decode([token]) if token < spelling.whisper.eot else ""
        assert read_letters(spelled.letters[first:last]).strip() == read_letters(letters_of(text)).strip()
    starts = [first for first, _ in spelled.spans]
    assert starts == sorted(starts)


def test_rows_of_used_tokens_are_dense(spelling: Spelling):
    assert spelling.rows(spelling.used.tolist()).tolist() == list(range(len(spelling.used)))
    with pytest.raises(AssertionError, match="never written"):
        spelling.row(768)


def test_letters_are_spread_evenly_over_each_utterance(spelling: Spelling):
    spelled = spelling.spell(TWO, timed=False)
    places = even_places(spelled, TWO)
    assert (np.diff(places[:, 0]) >= 0).all()
    second = slice(*spelled.said[1])
    assert places[second][0, 0] == pytest.approx(3.1 * POSITIONS_PER_SECOND)
    assert places[second][-1, 1] == pytest.approx(3.9 * POSITIONS_PER_SECOND)


def test_the_likeliest_path_finds_letters_where_they_are_named():
    word = letters_of("abba")
    named = {3: word[0], 4: word[0], 8: word[1], 10: word[2], 15: word[3]}
    scores = torch.full((2, 20, 28), -9.0)
    scores[0, :, BLANK] = -0.1
    for position, letter in named.items():
        scores[0, position, letter] = 0.0
        scores[0, position, BLANK] = -5.0
    scores[1, :, BLANK] = 0.0
    found, silent = align(scores, [word, []])
    # Neighbours meet halfway, unless that is more than four positions off.
    assert found.places.tolist() == [[0.0, 6.5], [6.5, 9.5], [9.5, 13.0], [13.0, 20.0]]
    assert found.score == pytest.approx(-1.5 / 4)
    assert silent.places.shape == (0, 2)


def test_tokens_are_where_their_letters_are_and_others_between_them():
    places = np.array([[2.0, 4.0], [4.0, 5.0], [9.0, 12.0]])
    found = token_places([(0, 0), (0, 2), (2, 2), (2, 3), (3, 3)], places)
    assert found.tolist() == [[0.0, 2.0], [2.0, 5.0], [5.0, 9.0], [9.0, 12.0], [12.0, 16.0]]


def test_attention_is_wanted_within_the_token_and_a_little_around_it():
    target = soft_targets(np.array([[4.0, 8.0], [30.0, 40.0]]), num_positions=20)
    assert torch.allclose(target.sum(dim=-1), torch.ones(2))
    assert target[0, 4:8].sum() > 0.5
    assert target[0, 12:].sum() < 0.01
    # Beyond what is heard, the nearest there is.
    assert target[1].argmax() == 19
