"""Spoken consent: the right words in the right voice, nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from backend.audio.writing import write_wav
from backend.errors import RecordingError
from backend.transcription.pocketsphinx_transcriber import PocketsphinxTranscriber
from backend.voices.consent_phrase import COLUMNS, draw_phrase
from backend.voices.errors import ConsentInvalid
from backend.voices.spoken_consent import ProofLimits, check_phrase, hears_phrase
from tests.backend.audio.speech import FLITE_HZ, speak
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import speak_like, write_broken, write_voice
from training.model.speaker_verifier import load_verifier
from training.model.voice_model import VoiceModel

PHRASE = "I agree that my voice is cloned. The old sailor painted seven silver baskets near the river."


@dataclass
class Hears:
    """Stands where Whisper stands: what counts here is what is made of its words."""

    text: str
    seconds: float = 0.0
    name: str = "whisper base"

    def transcribe(self, samples, language):
        assert samples.dtype == np.float32
        self.seconds = len(samples) / 16_000
        return self


@pytest.fixture(scope="module")
def model():
    return VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu")


@pytest.fixture
def reference(tmp_path):
    return write_voice(tmp_path / "reference.wav", seconds=2.0)


@pytest.fixture
def spoken(tmp_path):
    return write_voice(tmp_path / "spoken.wav", seconds=3.0)


def test_the_phrase_in_the_same_voice_is_proof(model, reference, spoken):
    phrase = draw_phrase()
    listener = Hears(phrase.lower().replace(".", ""))
    proof = check_phrase(phrase, spoken, reference, listener=listener, model=model, verifier=load_verifier())
    assert proof.error_rate == 0.0
    assert proof.similarity > 0.6
    assert proof.phrase == phrase
    assert listener.seconds == pytest.approx(3.0, abs=0.01)


def test_other_words_are_not_a_valid_proof(model, reference, spoken):
    with pytest.raises(ConsentInvalid, match="does not say the phrase"):
        check_phrase(
            draw_phrase(),
            spoken,
            reference,
            listener=Hears("Good evening, this is the news."),
            model=model,
            verifier=None,
        )


def test_another_voice_is_not_a_valid_proof(model, reference, tmp_path):
    noise = np.random.default_rng(1).normal(0.0, 0.2, 72_000).astype(np.float32)
    other = tmp_path / "other.wav"
    write_wav(other, noise, 24_000)
    phrase = draw_phrase()
    # Random weights know no voices; what is tested is that the likeness found is compared with the limit.
    like = check_phrase(
        phrase,
        other,
        reference,
        listener=Hears(phrase),
        model=model,
        verifier=None,
        limits=ProofLimits(min_similarity=-1.0),
    ).similarity
    assert like < 0.9999
    with pytest.raises(ConsentInvalid, match="not spoken by the voice of the reference"):
        check_phrase(
            phrase,
            other,
            reference,
            listener=Hears(phrase),
            model=model,
            verifier=None,
            limits=ProofLimits(min_similarity=0.9999),
        )


def test_the_same_recording_is_as_like_as_can_be(model, reference):
    phrase = draw_phrase()
    proof = check_phrase(phrase, reference, reference, listener=Hears(phrase), model=model, verifier=None)
    assert proof.similarity == pytest.approx(1.0, abs=1e-4)


def test_a_recording_that_is_none(model, reference, tmp_path):
    assert len(speak_like(1.0)) == 24_000
    with pytest.raises(RecordingError):
        check_phrase(
            "A", write_broken(tmp_path / "broken.wav"), reference, listener=Hears("A"), model=model, verifier=None
        )


@pytest.mark.needs_program("flite")
def test_pocketsphinx_hears_the_phrase_and_no_similar_one(model, tmp_path):
    phrase, spoken = PHRASE, tmp_path / "rms.wav"
    write_wav(spoken, speak(tmp_path, phrase, voice="rms"), FLITE_HZ)
    listener = PocketsphinxTranscriber()
    assert (
        check_phrase(phrase, spoken, spoken, listener=listener, model=model, verifier=load_verifier()).similarity > 0.99
    )
    for other in (phrase.replace("seven", "forty"), phrase.replace("sailor", "doctor"), draw_phrase(), "Any sentence."):
        with pytest.raises(ConsentInvalid, match="does not say the phrase"):
            check_phrase(other, spoken, spoken, listener=listener, model=model, verifier=load_verifier())


@pytest.mark.needs_program("flite")
def test_whatever_else_could_have_been_drawn_is_refused(tmp_path):
    """Every column's next word: controls that knew one other word of each column let half of them pass."""
    said = speak(tmp_path, PHRASE, voice="slt")
    listener = PocketsphinxTranscriber()
    assert hears_phrase(listener, PHRASE, said)
    words = ["The old sailor", "painted", "seven", "silver", "baskets", "near the river"]
    for column, word in zip(COLUMNS, words, strict=True):
        other = column[(column.index(word) + 3) % len(column)]
        assert not hears_phrase(listener, PHRASE.replace(word, other), said), other
    assert not hears_phrase(listener, "Any sentence.", said)


@pytest.mark.needs_program("flite")
def test_the_verifier_refuses_another_voice_that_says_the_phrase(model, tmp_path):
    """To a model that was not trained with people, all voices may be alike."""
    own, other = tmp_path / "own.wav", tmp_path / "other.wav"
    write_wav(
        own, speak(tmp_path, "The lighthouse stands on a small rock, three miles from here.", voice="slt"), FLITE_HZ
    )
    write_wav(other, speak(tmp_path, PHRASE, voice="rms"), FLITE_HZ)
    asked = {"listener": Hears(PHRASE), "model": model, "verifier": load_verifier()}
    assert check_phrase(PHRASE, other, other, **asked).similarity > 0.99
    with pytest.raises(ConsentInvalid, match=r"not spoken by the voice .* 0\.70 is required"):
        check_phrase(PHRASE, other, own, **asked)
