"""The same recording is known again whatever was done to it; the same words, or nearly the same, are not."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
import soundfile
import soxr
from numpy.typing import NDArray

from backend.audio.canonical import CANONICAL_HZ
from backend.audio.decoding import decode_recording
from backend.audio.encoding import StreamEncoder
from backend.audio.resample import resample
from backend.dataset.clips.fingerprints import SoundIndex, sound_fingerprint
from backend.dataset.clips.thresholds import GateSettings
from tests.backend.dataset.speechlike import speechlike
from tests.backend.dataset.spoken import speak

SETTINGS = GateSettings()
ESPEAK = {"espeak low": "en-us", "espeak almost as low": "en-us+m6", "espeak high": "en-gb+f3"}
VOICES = ("slt", "kal", *ESPEAK)
# Pairs that differ in a word or two.
SENTENCES = (
    "These days a chicken leg is a rare dish.",
    "These days a chicken leg is a common dish.",
    "It is easy to tell the depth of a well.",
    "It is hard to tell the depth of a lake.",
)

Sound = NDArray[np.float32]


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Sound]:
    """Every sentence by every voice."""
    folder = tmp_path_factory.mktemp("voices")
    spoken: dict[tuple[str, str], Sound] = {}
    for voice in VOICES:
        for sentence in SENTENCES:
            wav = folder / "one.wav"
            if voice in ESPEAK:
                subprocess.run(["espeak-ng", "-v", ESPEAK[voice], "-w", str(wav), sentence], check=True, timeout=60)
            else:
                speak(wav, sentence, voice)
            samples, rate = soundfile.read(wav, dtype="float32")
            spoken[voice, sentence] = resample(samples, rate, CANONICAL_HZ)
    return spoken


def heard_before(sound: Sound, *earlier: Sound) -> tuple[float, int | None]:
    """The share of `sound` that is in `earlier` ones, and which of them holds it."""
    index = SoundIndex([sound_fingerprint(each, CANONICAL_HZ) for each in (*earlier, sound)])
    return index.heard_before(len(earlier), range(len(earlier)), SETTINGS.duplicate_similarity)


def through(audio_format: str, sound: Sound, folder: Path) -> Sound:
    encoder = StreamEncoder(audio_format, CANONICAL_HZ)
    (folder / "file").write_bytes(encoder.header() + encoder.encode(sound) + encoder.finish())
    return decode_recording(folder / "file", sample_rate=CANONICAL_HZ).samples


def noisy(sound: Sound, speech_over_noise_db: float) -> Sound:
    level = float(np.sqrt(np.mean(np.square(sound)))) * 10 ** (-speech_over_noise_db / 20)
    return sound + np.random.default_rng(1).normal(scale=level, size=len(sound)).astype(np.float32)


def on_the_phone(sound: Sound) -> Sound:
    """What a telephone lets through, 300 to 3,300 Hz."""
    sections = scipy.signal.butter(4, [300, 3_300], btype="band", fs=CANONICAL_HZ, output="sos")
    return scipy.signal.sosfilt(sections, sound).astype(np.float32)


@pytest.mark.needs_program("flite", "espeak-ng")
@pytest.mark.parametrize(
    "change",
    [
        lambda sound: sound * 0.05,
        lambda sound: np.concatenate([np.zeros(24_312, np.float32), sound]),
        lambda sound: sound[17_111:],
        lambda sound: noisy(sound, 20.0),
        lambda sound: soxr.resample(soxr.resample(sound, CANONICAL_HZ, 8_000), 8_000, CANONICAL_HZ),
        lambda sound: noisy(on_the_phone(sound), 25.0)[9_999:],
    ],
    ids=["quieter", "later", "cut elsewhere", "noisier", "telephone", "all of it"],
)
def test_a_recording_is_known_again(sounds: dict[tuple[str, str], Sound], change: Callable[[Sound], Sound]):
    for voice in VOICES:
        original = sounds[voice, SENTENCES[0]]
        others = [sound for (_, sentence), sound in sounds.items() if sentence == SENTENCES[2]]
        share, twin = heard_before(change(original), *others, original)
        assert (share > SETTINGS.max_duplicate_share, twin) == (True, len(others)), voice


@pytest.mark.needs_program("flite", "espeak-ng")
@pytest.mark.parametrize("audio_format", ["mp3", "opus", "aac"])
def test_a_lossy_copy_is_known_again(sounds: dict[tuple[str, str], Sound], audio_format: str, tmp_path: Path):
    pause = np.zeros(CANONICAL_HZ, np.float32)
    original = np.concatenate([sounds["slt", SENTENCES[0]], pause, sounds["kal", SENTENCES[2]]])
    copy = through(audio_format, noisy(original[9_999:] * 0.3, 30.0), tmp_path)
    assert heard_before(copy, original)[0] > 0.9


@pytest.mark.needs_program("flite", "espeak-ng")
def test_nearly_the_same_sentence_of_one_voice_is_another_recording(sounds: dict[tuple[str, str], Sound]):
    """A speech engine says the same words the same way each time, which no person does."""
    for voice in VOICES:
        for one, other in (SENTENCES[:2], SENTENCES[2:]):
            assert heard_before(sounds[voice, other], sounds[voice, one]) == (0.0, None), voice


@pytest.mark.needs_program("flite", "espeak-ng")
def test_the_same_sentence_of_two_voices_is_two_recordings(sounds: dict[tuple[str, str], Sound]):
    for sentence in SENTENCES:
        spoken = [sounds[voice, sentence] for voice in VOICES]
        for index, sound in enumerate(spoken):
            assert heard_before(sound, *spoken[:index]) == (0.0, None), (VOICES[index], sentence)


def test_what_two_clips_hold_together_is_there_already():
    parts = [speechlike(1), speechlike(2), speechlike(3)]
    share, twin = heard_before(np.concatenate([parts[0], parts[1][:50_000]]), *parts)
    assert share > 0.9
    assert twin == 0
    assert heard_before(np.concatenate([speechlike(4), speechlike(5), parts[2]]), *parts)[0] < 0.4


def test_only_earlier_sounds_count():
    index = SoundIndex([sound_fingerprint(speechlike(seed), CANONICAL_HZ) for seed in (1, 2, 1, 1)])
    assert index.heard_before(3, [0, 1], SETTINGS.duplicate_similarity)[1] == 0
    assert index.heard_before(3, [1], SETTINGS.duplicate_similarity) == (0.0, None)
    assert index.heard_before(0, [], SETTINGS.duplicate_similarity) == (0.0, None)


@pytest.mark.parametrize("num_samples", [1, 100, 5_000, 48_000])
def test_silence_and_clicks_are_like_nothing(num_samples: int):
    silence = np.zeros(num_samples, np.float32)
    assert heard_before(silence, silence, speechlike(1)) == (0.0, None)
