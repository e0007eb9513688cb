"""One take is scored alike for checkpoints and comparisons, by models that fit the model that is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from backend.evaluation.take_scores import Scorers, TakeMeasuring, score_take
from backend.transcription.transcriber import EMBEDDED_TRANSCRIBER
from backend.transcription.transcript import Transcript
from tests.golden import GOLDEN_CHECKPOINT
from training.model.hub.hub import EMBEDDED_FOLDER
from training.model.voice_model import VoiceModel


@dataclass
class Base:
    """A loaded model, as far as listening goes."""

    folder: Path


def test_the_embedded_transcriber_is_used_for_the_embedded_model_only(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measuring = TakeMeasuring()
    listener = measuring.transcriber(Base(EMBEDDED_FOLDER))
    assert listener.name == EMBEDDED_TRANSCRIBER
    assert measuring.transcriber(Base(EMBEDDED_FOLDER)) is listener
    assert measuring.transcriber(Base(GOLDEN_CHECKPOINT)) is None
    assert measuring.transcriber(Base(EMBEDDED_FOLDER)).name == EMBEDDED_TRANSCRIBER


class Parrot:
    """A transcriber that always hears the same."""

    name = "parrot"
    piece_seconds = 30.0

    def transcribe(self, samples_16k, language=None):
        assert samples_16k.dtype == np.float32
        return Transcript(text=" Hello there. ", language="en", words=())


@pytest.fixture(scope="module")
def scorers() -> Scorers:
    return Scorers(own=VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu"), transcriber=Parrot())


def tone(seconds: float, level: float = 0.2) -> np.ndarray:
    return (level * np.sin(2 * np.pi * 200 * np.arange(round(24_000 * seconds)) / 24_000)).astype(np.float32)


def test_a_take_is_compared_with_its_text_and_its_reference(scorers):
    take = tone(1.0)
    scores = score_take(
        scorers, take, 24_000, text="Hello there!", language="auto", reference=scorers.embed(take, 24_000)
    )
    assert (scores.transcript, scores.word_error, scores.character_error) == ("Hello there.", 0, 0)
    assert scores.speaker_similarity == pytest.approx(1, abs=1e-4)
    assert scores.verified_similarity is None
    assert scores.clipped_share == 0


def test_a_take_too_short_for_words_is_all_wrong_and_has_no_voice(scorers):
    scores = score_take(
        scorers, tone(0.05), 24_000, text="Hello.", language="auto", reference=scorers.embed(tone(1.0), 24_000)
    )
    assert (scores.transcript, scores.word_error) == ("", 1)
    assert scores.speaker_similarity is None


def test_without_a_reference_the_voice_is_not_scored(scorers):
    scores = score_take(scorers, 9 * tone(1.0), 24_000, text="Hello there", language="english", reference=None)
    assert scores.speaker_similarity is None
    assert scores.clipped_share > 0.3
