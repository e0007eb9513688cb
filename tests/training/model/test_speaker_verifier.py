"""The verifier computes what its authors' code computes, and tells real people apart."""

from __future__ import annotations

import importlib.util
import itertools
import warnings

import numpy as np
import pytest

from tests.real_voices import needs_real_voice, read_g722, short_recordings
from training.model.speaker_verifier import VERIFIER_SAMPLE_RATE, GE2EVerifier, load_verifier

NUM_EACH = 6
# Of two short recordings (1 to 3 s) of real speakers: as many pairs of one are below as pairs of two are above.
SAME_SPEAKER_SIMILARITY = 0.62


def buzz(pitch_hz: float, formant_hz: float, seconds: float = 3.0, rate: int = VERIFIER_SAMPLE_RATE):
    """A voice of sorts: harmonics of a pitch around a formant, syllable by syllable."""
    times = np.arange(round(seconds * rate)) / rate
    harmonics = np.arange(1, int(4000 / pitch_hz)) * pitch_hz
    strengths = np.exp(-(((harmonics - formant_hz) / 600) ** 2)) + 0.1
    sound = (strengths[:, None] * np.sin(2 * np.pi * harmonics[:, None] * times)).sum(0)
    return (0.1 * sound / np.abs(sound).max() * (1 + np.sin(2 * np.pi * 4 * times))).astype(np.float32)


def test_speakers_are_told_apart_whatever_the_loudness_and_the_rate() -> None:
    verifier = load_verifier()
    low = verifier.embed(buzz(110, 600))
    assert np.linalg.norm(low) == pytest.approx(1.0, abs=1e-5)
    assert verifier.embed(buzz(110, 600) * 0.05) @ low > 0.99
    assert verifier.embed(buzz(110, 600, rate=24_000), sample_rate=24_000) @ low > 0.95
    assert verifier.embed(buzz(230, 1800)) @ low < 0.9


@pytest.mark.parametrize("num_samples", [0, 1, 100, 16_000])
def test_silence_and_next_to_nothing_are_no_failure(num_samples: int) -> None:
    assert np.isfinite(load_verifier().embed(np.zeros(num_samples, np.float32))).all()


def test_the_weights_are_asked_for_once() -> None:
    assert load_verifier() is load_verifier()


@pytest.mark.parametrize("content", [None, b"damaged"])
def test_without_its_weights_there_is_none(content, tmp_path, monkeypatch, caplog) -> None:
    weights = tmp_path / "ge2e.safetensors"
    if content is not None:
        weights.write_bytes(content)
    monkeypatch.setattr(GE2EVerifier.__init__, "__defaults__", (weights,))
    # The cache of the process keeps the one that is there.
    assert load_verifier.__wrapped__() is None
    assert "compared by the model itself" in caplog.text


@pytest.mark.skipif(importlib.util.find_spec("resemblyzer") is None, reason="pip install resemblyzer 'setuptools<81'")
def test_it_is_the_published_network() -> None:
    with warnings.catch_warnings():
        # Its dependencies are as old as it is.
        warnings.simplefilter("ignore")
        from resemblyzer import VoiceEncoder  # noqa: PLC0415 - optional

        theirs = VoiceEncoder("cpu", verbose=False)
    for pitch, formant in ((110, 600), (230, 1800)):
        sound = buzz(pitch, formant)
        # They leave out other parts of a window at the end.
        assert load_verifier().embed(sound) @ theirs.embed_utterance(sound) > 0.995


@needs_real_voice
def test_real_speakers_are_told_apart() -> None:
    recordings = short_recordings(NUM_EACH)
    if len(recordings) < 2:
        pytest.skip("only one person is here: apt install asterisk-core-sounds-ru-g722")
    verifier = load_verifier()
    known = [(who, verifier.embed(read_g722(path))) for who, paths in recordings.items() for path in paths]
    right = [
        (one @ other > SAME_SPEAKER_SIMILARITY) == (who == whose)
        for (who, one), (whose, other) in itertools.combinations(known, 2)
    ]
    assert np.mean(right) > 0.75
