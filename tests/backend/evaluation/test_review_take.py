"""A take that is listened to once it is spoken: its words by who can hear them, its voice by the verifier."""

from __future__ import annotations

import numpy as np
import pytest

from backend.audio.decoding import decode_recording
from backend.audio.writing import write_wav
from backend.evaluation.review_take import NO_LIKENESS, hear_parts, likeness_of
from backend.takes.parts import TakePart
from backend.voices.reference import read_reference
from backend.voices.samples import get_sample, list_samples
from tests.backend.serving.test_speak_again import facts_of, take_of
from training.model.generation.finish_reason import FinishReason

RATE = 24_000
SPOKEN, LOST = 0, 1


@pytest.fixture(scope="module")
def samples():
    return {sample.name: decode_recording(sample.path, sample_rate=RATE).samples for sample in list_samples()}


def take_with(tmp_path, sound, parts):
    write_wav(tmp_path / "a.wav", sound, RATE)
    facts = facts_of([1000], parts=parts, seconds=len(sound) / RATE, language="english")
    return take_of(facts, tmp_path)


def test_the_part_whose_words_are_missing_is_found(tmp_path, samples):
    sentence = get_sample("rufus").sentences[0]
    begin, end = (round(second * RATE) for second in (sentence.start_seconds, sentence.end_seconds))
    one = samples["rufus"][begin:end]
    known = {"seed": 1, "finish_reason": FinishReason.EOS, "seconds": len(one) / RATE, "expected_seconds": 3.0}
    longer = f"{sentence.text} {get_sample('rufus').sentences[1].text}"
    parts = (
        TakePart(text=sentence.text, start_seconds=0.0, **known),
        TakePart(text=longer, start_seconds=len(one) / RATE, **known),
    )
    heard = hear_parts(take_with(tmp_path, np.concatenate((one, one)), parts), lambda done, total: None)
    assert [part.doubt for part in heard] == [None, "lost"]
    assert heard[LOST].heard.lost_share > 0.3 > heard[SPOKEN].heard.lost_share
    assert [part.model_copy(update={"heard": None}) for part in heard] == list(parts)


def test_a_voice_is_like_itself_and_not_like_another(tmp_path, samples):
    reference = get_sample("iris").reference_in(tmp_path / "home")
    sound = read_reference(reference).samples
    assert likeness_of(take_with(tmp_path, samples["iris"][-len(sound) :], ()), reference).is_there
    stranger = likeness_of(take_with(tmp_path, samples["owen"][-len(sound) :], ()), reference)
    assert not stranger.is_there
    assert stranger.similarity < NO_LIKENESS


def test_of_almost_nothing_no_voice_is_claimed_and_none_denied(tmp_path, samples):
    reference = get_sample("iris").reference_in(tmp_path / "home")
    assert likeness_of(take_with(tmp_path, samples["iris"][:RATE], ()), reference) is None
