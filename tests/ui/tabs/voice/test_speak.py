"""What the form behind the Speak button makes of what a person typed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.voices.errors import ConsentMissing
from ui.fields import MAX_SEED, FormIncomplete, parse_seed
from ui.source import Source
from ui.tabs.voice.render import StepsMissing, refusal_line
from ui.tabs.voice.speak import SpeakForm
from ui.words.words import say, spoken_to

RECORDING = Source(kind="recording", name="voice.wav", reference=Path("voice.wav"), preview=Path("reference.wav"))


def form(**changes):
    filled = {
        "source": RECORDING,
        "transcript": "",
        "statement": "own-voice",
        "who": "Ann Author",
        "proof": None,
        "text": "Hello.",
        "way": "auto",
        "language": "auto",
        "seed": "",
        "temperature": 0.9,
        "top_k": 50,
        "top_p": 1.0,
        "repetition_penalty": 1.05,
    }
    return SpeakForm(**filled | changes)


@given(st.integers(0, MAX_SEED), st.sampled_from(["", " ", "\n"]))
def test_every_whole_number_is_a_seed(number, space):
    assert parse_seed(f"{space}{number}{space}") == number


@given(st.text())
def test_whatever_is_typed_is_a_seed_or_refused_in_words(typed):
    try:
        seed = parse_seed(typed)
    except FormIncomplete:
        return
    assert seed is None if not typed.strip() else 0 <= seed <= MAX_SEED


@pytest.mark.parametrize("typed", ["-1", "1.5", "1e3", "²", "٣", str(MAX_SEED + 1)])
def test_other_numbers_are_refused(typed):
    with pytest.raises(FormIncomplete, match="whole number"):
        parse_seed(typed)


def test_a_filled_in_form_lacks_nothing():
    assert form().missing() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"source": None}, "recording"),
        ({"statement": None}, "choose the consent"),
        ({"who": " "}, "your name"),
        ({"text": " \n"}, "should say"),
        ({"way": "in-context"}, "what the recording says"),
    ],
)
def test_each_missing_part_is_named(changes, words):
    (step,) = form(**changes).missing()
    assert words in say(step)


@pytest.mark.parametrize("kind", ["sample", "voice"])
def test_a_given_consent_is_not_asked_for_again(kind):
    assert form(source=Source(kind=kind, name="Iris"), statement=None, who="").missing() == []


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize(
    ("steps", "is_offered"),
    [(["speak.missing_who"], True), (["speak.missing_statement"], True), (["speak.missing_text"], False)],
)
def test_a_new_voice_without_consent_can_be_completed_from_the_refusal(language, steps, is_offered):
    with spoken_to(language):
        assert ("data-open-voice" in refusal_line(StepsMissing(steps))) == is_offered
        assert "data-open-voice" in refusal_line(ConsentMissing("…"))
