"""The listener that is always there: the same words whatever it heard before, and how well a text fits a sound."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soxr

from backend.transcription.errors import LanguageUnsupported
from backend.transcription.pocketsphinx_transcriber import PocketsphinxTranscriber, unknown_words, words_to_place
from backend.transcription.sentence_check import hears_sentence
from backend.transcription.text_difference import text_errors
from backend.transcription.transcriber import TRANSCRIBER_HZ, Transcriber
from tests.backend.audio.speech import speak
from tests.real_voices import drawn_prompts, needs_real_voice

TEXT = "The lighthouse stands on a small rock."
OTHER = "Children always ask for the ones with sugar."


@pytest.fixture(scope="module")
def listener() -> PocketsphinxTranscriber:
    return PocketsphinxTranscriber()


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    return speak(tmp_path_factory.mktemp("said"), TEXT, voice="rms")


def test_nothing_is_loaded_before_it_listens() -> None:
    code = (
        "import sys; from backend.transcription.pocketsphinx_transcriber import PocketsphinxTranscriber as P; "
        "P(); sys.exit(any(name in sys.modules for name in ('pocketsphinx', 'torch', 'whisper')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3], timeout=120)


@pytest.mark.needs_program("flite")
def test_words_have_times_and_nothing_heard_before_changes_them(listener, said) -> None:
    protocol: Transcriber = listener
    first = protocol.transcribe(said, "en")
    assert text_errors(TEXT, first.text)[0] < 0.25
    assert first.language == "en"
    assert 0 < first.confidence <= 1
    ends = [0.0]
    for word in first.words:
        assert ends[-1] - 0.02 <= word.start_seconds < word.end_seconds <= len(said) / TRANSCRIBER_HZ
        assert "(" not in word.text
        ends.append(word.end_seconds)
    listener.transcribe(np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32))
    assert listener.place(said, words_to_place(TEXT)) is not None
    assert listener.transcribe(said) == first
    assert pickle.loads(pickle.dumps(listener)).transcribe(said) == first


@pytest.mark.needs_program("flite")
def test_any_rate_and_any_length_will_do(listener, said, monkeypatch) -> None:
    at_24_khz = soxr.resample(said, TRANSCRIBER_HZ, 24_000)
    assert text_errors(TEXT, listener.transcribe(at_24_khz, sample_rate=24_000).text)[0] < 0.25
    monkeypatch.setattr("backend.transcription.pocketsphinx_transcriber.POCKETSPHINX_PIECE_SECONDS", 4.0)
    long = np.concatenate([said, np.zeros(8_000, np.float32), said])
    heard = listener.transcribe(long)
    assert len(heard.passages) > 1
    assert text_errors(f"{TEXT} {TEXT}", heard.text)[0] < 0.3
    assert heard.words[-1].end_seconds > 1.5 * len(said) / TRANSCRIBER_HZ


@pytest.mark.parametrize("num_samples", [0, 10, 8_000])
def test_silence_has_no_words(listener, num_samples: int) -> None:
    # One that has heard nothing before made "dog" of it.
    for one in (PocketsphinxTranscriber(), listener):
        found = one.transcribe(np.zeros(num_samples, np.float32))
        assert (found.text, found.words) == ("", ())
    assert listener.place(np.zeros(num_samples, np.float32), []) is None


def test_it_hears_english_only(listener) -> None:
    with pytest.raises(LanguageUnsupported, match="English only"):
        listener.transcribe(np.zeros(16_000, np.float32), "de")


def test_names_are_placed_but_never_known(listener) -> None:
    words = ["the", "digium", "don't", "pbx"]
    assert unknown_words(words) == {"digium", "pbx"}
    listener.place(np.random.default_rng(1).normal(0, 0.1, 32_000).astype(np.float32), words)
    assert unknown_words(words) == {"digium", "pbx"}


@pytest.mark.needs_program("flite")
def test_a_given_text_lies_where_it_is_said(listener, said) -> None:
    placed = listener.place(said, words_to_place(TEXT))
    assert placed is not None
    assert [word.text for word in placed.words if word.text] == words_to_place(TEXT)
    assert len(placed.frame_costs) == pytest.approx(len(said) / TRANSCRIBER_HZ * 100, abs=3)
    wrong = listener.place(said, words_to_place(OTHER))
    assert wrong is None or wrong.frame_costs.mean() > 2 * placed.frame_costs.mean()


@pytest.mark.needs_program("flite")
def test_a_sentence_is_heard_and_no_other(listener, said) -> None:
    others = ["The lighthouse stands on a tall tower.", OTHER]
    assert hears_sentence(listener, said, TEXT, others).is_said
    assert not hears_sentence(listener, said, OTHER).is_said
    # More than was said, and less.
    assert not hears_sentence(listener, said, f"{TEXT} {OTHER}").is_said
    assert not hears_sentence(listener, said, "The lighthouse.").is_said
    assert hears_sentence(listener, said, others[0], [TEXT]).is_said is False


@needs_real_voice
def test_a_person_is_heard(listener) -> None:
    errors = []
    for prompt in drawn_prompts(5):
        samples = prompt.samples()
        errors.append(text_errors(prompt.text, listener.transcribe(samples, "en").text)[0])
        assert hears_sentence(listener, samples, prompt.text, [OTHER]).is_said
        assert not hears_sentence(listener, samples, OTHER).is_said
    assert np.mean(errors) < 0.25
