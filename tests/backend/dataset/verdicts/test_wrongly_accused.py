"""Verdicts accuse nobody wrongly: right texts of the sample voices are good, and a guess of a listener's is no text."""

from __future__ import annotations

import pytest

from backend.audio.decoding import decode_recording
from backend.audio.resample import resample
from backend.dataset.clips.gates import Verdict, overall
from backend.dataset.clips.measures import measure_sound
from backend.dataset.verdicts.calibration import judge_texts
from backend.dataset.verdicts.decide_verdicts import own_gates
from backend.transcription.listening import hear_clips
from backend.transcription.transcriber import TRANSCRIBER_HZ
from backend.voices.samples import list_samples
from tests.backend.dataset.verdicts.test_calibration import SENTENCES, SETTINGS, clip

RATE = 24_000
NUM_SENTENCES = 3
_MARGIN_SECONDS = 0.15


@pytest.mark.parametrize("sample", list_samples(), ids=lambda sample: sample.name)
def test_clips_of_a_sample_voice_with_the_texts_we_ship_are_good(sample):
    samples = decode_recording(sample.path, sample_rate=RATE).samples
    sentences = [one for one in sample.sentences if one.end_seconds - one.start_seconds > 2.2][:NUM_SENTENCES]
    sounds = [
        samples[round((one.start_seconds - _MARGIN_SECONDS) * RATE) : round((one.end_seconds + _MARGIN_SECONDS) * RATE)]
        for one in sentences
    ]
    heard = hear_clips([resample(sound, RATE, TRANSCRIBER_HZ) for sound in sounds], "en")
    clips = []
    for sentence, sound, found in zip(sentences, sounds, heard, strict=True):
        details = clip(sentence.text, found.text, sureness=found.confidence)
        cut = details.current.model_copy(update={"sound": measure_sound(sound, RATE), "seconds": len(sound) / RATE})
        clips.append(details.model_copy(update={"current": cut}))
    judged = judge_texts(clips, SETTINGS)
    verdicts = [
        overall([*own_gates(details, SETTINGS), *([gate] if gate is not None else [])])
        for details, gate in zip(clips, judged, strict=True)
    ]
    assert Verdict.REJECTED not in verdicts
    assert verdicts.count(Verdict.ACCEPTED) >= NUM_SENTENCES - 1


def transcribed(sureness):
    details = clip(SENTENCES[0], SENTENCES[0], sureness=sureness)
    return details.model_copy(update={"text_source": "whisper"})


def verdict_on_text(details):
    return overall(
        gate for gate in own_gates(details, SETTINGS) if gate.gate in ("text", "confidence", "speaking rate")
    )


def test_what_a_listener_only_guessed_needs_a_persons_text():
    assert verdict_on_text(transcribed(0.2)) is Verdict.NEEDS_TEXT
    assert verdict_on_text(transcribed(0.8)) is Verdict.ACCEPTED


def test_a_persons_text_is_never_doubted_because_the_listener_guesses():
    for source in ("file", "person"):
        assert verdict_on_text(transcribed(0.2).model_copy(update={"text_source": source})) is Verdict.ACCEPTED
