"""The mark is found in what became of marked speech, and in nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from backend.audio.encoding import encode
from backend.audio.resample import resample
from backend.watermark.detector import LEGIBLE_LOG10_P, MARKED_LOG10_P, Detector, detect
from tests.backend.watermark.conftest import KEY, PAYLOAD, SAMPLE_RATE, mark, read_voice
from training.tempo import Tempo

SECONDS = 5


def part(samples: np.ndarray, start_seconds: float = 1.234, seconds: float = SECONDS) -> np.ndarray:
    start = round(start_seconds * SAMPLE_RATE)
    return samples[start : start + round(seconds * SAMPLE_RATE)]


def telephone(samples: np.ndarray) -> np.ndarray:
    narrow = resample(samples, SAMPLE_RATE, 8000).astype(np.float64)
    spectrum, frequencies = np.fft.rfft(narrow), np.fft.rfftfreq(len(narrow), 1 / 8000)
    narrow = np.fft.irfft(spectrum * ((frequencies > 300) & (frequencies < 3400)), n=len(narrow))
    companded = np.round(np.sign(narrow) * np.log1p(255 * np.abs(narrow)) / np.log1p(255) * 127) / 127
    return (np.sign(companded) * np.expm1(np.abs(companded) * np.log1p(255)) / 255).astype(np.float32)


def noisy(samples: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(1).standard_normal(len(samples)).astype(np.float32)
    return samples + noise * np.sqrt(np.mean(samples**2) / 100)


CHANGES = {
    "nothing": lambda samples: (samples, SAMPLE_RATE),
    "softer": lambda samples: (samples * np.float32(0.03), SAMPLE_RATE),
    "16 bits": lambda samples: (np.round(samples * 32767).astype(np.float32) / 32767, SAMPLE_RATE),
    "16 kHz": lambda samples: (resample(samples, SAMPLE_RATE, 16_000), 16_000),
    "44.1 kHz": lambda samples: (resample(samples, SAMPLE_RATE, 44_100), 44_100),
    "telephone": lambda samples: (telephone(samples), 8000),
    "noise at 20 dB": lambda samples: (noisy(samples), SAMPLE_RATE),
    "played 3 % faster": lambda samples: (samples, round(SAMPLE_RATE * 1.03)),
    "played 4 % slower": lambda samples: (samples, round(SAMPLE_RATE * 0.96)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_mark_survives(speech, change):
    seconds = SECONDS if change != "noise at 20 dB" else 2 * SECONDS
    found = detect(*CHANGES[change](part(mark(speech), seconds=seconds)), KEY)
    assert found.is_marked
    assert found.payload == PAYLOAD
    assert found.payload_log10_p <= LEGIBLE_LOG10_P
    assert found.spans
    assert found.spans[0].start_seconds < 1.5
    assert found.spans[-1].end_seconds > seconds - 1.5


def test_the_mark_survives_another_tempo(speech):
    tempo = Tempo(1.04, SAMPLE_RATE)
    faster = np.concatenate([tempo.add(part(mark(speech))), tempo.finish()])
    found = detect(faster, SAMPLE_RATE, KEY)
    assert (found.is_marked, found.payload) == (True, PAYLOAD)


def test_unmarked_speech_has_no_mark(speech):
    found = detect(speech, SAMPLE_RATE, KEY)
    assert not found.is_marked
    assert found.log10_p > MARKED_LOG10_P / 2
    assert (found.spans, found.payload) == ((), None)


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.3, 1.0])
def test_hardly_any_sound_is_no_error(seconds):
    found = detect(part(mark(read_voice("iris")), seconds=seconds), SAMPLE_RATE, KEY)
    assert found.seconds == pytest.approx(seconds)
    assert found.log10_p <= 0


@pytest.mark.parametrize("sound", ["silence", "tone", "noise", "clicks"])
def test_other_sound_has_no_mark(sound):
    times = np.arange(20 * SAMPLE_RATE) / SAMPLE_RATE
    sounds = {
        "silence": np.zeros(len(times)),
        "tone": np.sin(2 * np.pi * 440 * times),
        "noise": np.random.default_rng(0).standard_normal(len(times)),
        "clicks": (np.arange(len(times)) % 12_000 == 0).astype(float),
    }
    assert not detect(sounds[sound].astype(np.float32), SAMPLE_RATE, KEY).is_marked


def test_only_the_installation_reads_its_payload(speech):
    marked = part(mark(speech))
    assert detect(marked, SAMPLE_RATE).payload is None
    other = detect(marked, SAMPLE_RATE, bytes(32))
    assert other.is_marked
    assert other.payload is None


def test_speech_without_a_payload_has_none(speech):
    found = detect(part(mark(speech, installation_key=None)), SAMPLE_RATE, KEY)
    assert found.is_marked
    assert found.payload is None


def test_the_marked_part_of_a_longer_recording_is_named():
    own, other = read_voice("iris")[: 8 * SAMPLE_RATE], read_voice("owen")[: 50 * SAMPLE_RATE]
    recording = np.concatenate((other[: 21 * SAMPLE_RATE], mark(own), other[21 * SAMPLE_RATE :]))
    found = detect(recording, SAMPLE_RATE, KEY)
    assert found.payload == PAYLOAD
    assert len(found.spans) == 1
    assert found.spans[0].start_seconds == pytest.approx(21, abs=0.7)
    assert found.spans[0].end_seconds == pytest.approx(29, abs=0.7)
    assert found.log10_p <= found.spans[0].log10_p


def test_blocks_make_no_difference(speech):
    marked, random = mark(speech), np.random.default_rng(3)
    detector, start = Detector(SAMPLE_RATE, KEY), 0
    while start < len(marked):
        end = start + int(random.integers(1, 30_000))
        detector.add(marked[start:end])
        start = end
    found, whole = detector.finish(), detect(marked, SAMPLE_RATE, KEY)
    assert found.payload == whole.payload == PAYLOAD
    assert found.log10_p == pytest.approx(whole.log10_p, rel=1e-3)
    assert found.seconds == whole.seconds


@pytest.mark.parametrize("audio_format", ["mp3", "opus", "aac", "m4a"])
def test_the_mark_survives_what_encore_sends(speech, audio_format, tmp_path):
    from backend.audio.decoding import decode_recording  # noqa: PLC0415 - starts a process, which the others do without

    file = tmp_path / f"take.{audio_format}"
    file.write_bytes(encode(part(mark(speech)), SAMPLE_RATE, audio_format))
    recording = decode_recording(file, sample_rate=SAMPLE_RATE)
    found = detect(recording.samples, recording.sample_rate, KEY)
    assert (found.is_marked, found.payload) == (True, PAYLOAD)


def test_the_bound_holds_for_unmarked_sound():
    """Of forty sounds with changing spectra, as speech has them, few reach a chance of one in ten."""
    random = np.random.default_rng(5)
    chances = []
    for _ in range(40):
        noise = random.standard_normal(3 * 16_000)
        slow = np.repeat(random.standard_normal(3 * 16_000 // 1600), 1600)
        chances.append(detect((noise * np.exp(slow)).astype(np.float32) * 0.05, 16_000).log10_p)
    assert sum(chance <= -1 for chance in chances) <= 4
    assert min(chances) > -4
