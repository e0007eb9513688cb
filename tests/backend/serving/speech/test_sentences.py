from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.serving.speech.sentences import MAX_PIECE_LENGTH, measure, split_sentences, split_text


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        (
            "Dr. J. Smith paid $3.50 at 5 p.m. yesterday. He left.",
            ["Dr. J. Smith paid $3.50 at 5 p.m. yesterday.", "He left."],
        ),
        ("Well... maybe not. Yes.", ["Well... maybe not.", "Yes."]),
        ('He said "Stop!" Then he left.', ['He said "Stop!"', "Then he left."]),
        ("今天很好。我们走吧！", ["今天很好。", "我们走吧！"]),
        ("A heading\n\nA paragraph.", ["A heading", "A paragraph."]),
        ("It was I. Nobody else.", ["It was I.", "Nobody else."]),
        ("z.B. im Mai, d.h. bald. Ende.", ["z.B. im Mai, d.h. bald.", "Ende."]),
        ("  \n ", []),
    ],
)
def test_sentences(text, sentences):
    assert split_sentences(text) == sentences


@given(text=st.text(max_size=600), longest=st.integers(5, 80))
def test_pieces_are_short_and_nothing_is_lost(text, longest):
    pieces = split_text(text, longest)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(piece == piece.strip() and 0 < measure(piece) <= longest for piece in pieces)


@given(st.lists(st.sampled_from(["Yes.", "No, never.", "A sentence of some words."]), min_size=1, max_size=40))
def test_whole_sentences_stay_whole(sentences):
    for piece in split_text(" ".join(sentences), 60):
        assert all(sentence in sentences for sentence in split_sentences(piece))


def test_an_overlong_sentence_is_cut_at_its_clauses():
    text = "first part of it, second part of it, third part of it"
    assert split_text(text, 40) == ["first part of it, second part of it,", "third part of it"]


def test_a_piece_of_any_script_takes_about_as_long_to_say():
    chinese = "今天天气很好，我们去公园散步吧。" * 40
    pieces = split_text(chinese)
    assert "".join(pieces) == chinese
    # At four to five characters a second.
    assert max(map(len, pieces)) <= MAX_PIECE_LENGTH // 3
