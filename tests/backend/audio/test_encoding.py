from __future__ import annotations

import io

import av
import numpy as np
import pytest
import soundfile

from backend.audio.encoding import StreamEncoder, encode
from backend.audio.errors import AudioFormatError
from backend.audio.formats import AUDIO_FORMATS, FORMAT_TABLE

SECONDS = 1.5
PITCH_HZ = 440.0
CONTAINED = [name for name in AUDIO_FORMATS if name != "pcm"]

MAX_PADDING_SECONDS = {"wav": 0.0, "flac": 0.0, "opus": 0.03, "mp3": 0.15, "aac": 0.15, "m4a": 0.15}
"""MP3 and AAC come in frames of a fixed length, and begin with one of silence."""


def tone(sample_rate, seconds=SECONDS):
    times = np.arange(round(seconds * sample_rate)) / sample_rate
    return (0.5 * np.sin(2 * np.pi * PITCH_HZ * times)).astype(np.float32)


def streamed(samples, sample_rate, name):
    encoder = StreamEncoder(name, sample_rate)
    yield encoder.header()
    for start in range(0, len(samples), sample_rate // 12):
        yield encoder.encode(samples[start : start + sample_rate // 12])
    yield encoder.finish()


def decode(content):
    with av.open(io.BytesIO(content)) as container:
        resampler = av.AudioResampler(format="flt", layout="mono")
        frames = list(container.decode(audio=0))
        rate = frames[0].sample_rate
        pieces = [made.to_ndarray().reshape(-1) for frame in frames for made in resampler.resample(frame)]
    return np.concatenate(pieces), rate


def pitch(samples, sample_rate):
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return np.argmax(spectrum) * sample_rate / len(samples)


@pytest.mark.parametrize("sample_rate", [16_000, 22_050, 24_000])
@pytest.mark.parametrize("name", CONTAINED)
@pytest.mark.parametrize("whole", [True, False])
def test_what_is_encoded_decodes_to_the_same_sound(name, sample_rate, whole):
    samples = tone(sample_rate)
    content = encode(samples, sample_rate, name) if whole else b"".join(streamed(samples, sample_rate, name))
    decoded, rate = decode(content)
    assert 0 <= len(decoded) / rate - SECONDS <= MAX_PADDING_SECONDS[name] + 1e-9
    assert pitch(decoded, rate) == pytest.approx(PITCH_HZ, abs=2)
    assert np.abs(decoded).max() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("name", ["wav", "flac"])
def test_lossless_means_to_the_last_bit(name):
    samples = tone(24_000)
    read, rate = soundfile.read(io.BytesIO(encode(samples, 24_000, name)), dtype="int16")
    assert rate == 24_000
    assert np.array_equal(read, np.rint(samples * 32767))


def test_pcm_is_the_samples_and_nothing_else():
    samples = tone(24_000)
    content = b"".join(streamed(samples, 24_000, "pcm"))
    assert np.array_equal(np.frombuffer(content, "<i2"), np.rint(samples * 32767))
    assert encode(samples, 24_000, "pcm") == content


@pytest.mark.parametrize("name", [name for name in AUDIO_FORMATS if FORMAT_TABLE[name].is_streamable])
def test_a_stream_flows_from_the_beginning(name):
    """Half of the bytes are out by the time two thirds of the sound are in: nothing is kept to the end."""
    parts = list(streamed(tone(24_000, 3.0), 24_000, name))
    assert sum(map(len, parts[: len(parts) * 2 // 3])) > sum(map(len, parts)) / 2
    assert any(parts[:5])


@pytest.mark.parametrize("name", [name for name in AUDIO_FORMATS if not FORMAT_TABLE[name].is_streamable])
def test_what_cannot_be_streamed_comes_whole_at_its_end_and_once(name):
    samples = tone(24_000)
    *parts, last = streamed(samples, 24_000, name)
    assert parts == [b""] * len(parts)
    assert last == encode(samples, 24_000, name)
    encoder = StreamEncoder(name, 24_000)
    encoder.encode(samples)
    assert encoder.finish()
    assert encoder.finish() == b""


def test_an_m4a_says_what_it_is_before_anything_else():
    assert encode(tone(24_000), 24_000, "m4a")[4:12] == b"ftypM4A "


@pytest.mark.parametrize("name", AUDIO_FORMATS)
def test_nothing_at_all_is_encoded_without_a_fault(name):
    encoder = StreamEncoder(name, 24_000)
    content = encoder.header() + encoder.encode(np.zeros(0, dtype=np.float32)) + encoder.finish() + encoder.finish()
    assert isinstance(content, bytes)


def test_loud_samples_are_clipped_not_wrapped():
    content = encode(np.array([2.0, -2.0], dtype=np.float32), 24_000, "pcm")
    assert np.frombuffer(content, "<i2").tolist() == [32767, -32767]


def test_a_format_in_capitals_is_found_and_an_unknown_one_is_refused():
    assert StreamEncoder("MP3", 24_000).media_type == "audio/mpeg"
    for name in ("wma", "", "x" * 500, "../wav"):
        with pytest.raises(AudioFormatError, match="wav, flac, mp3"):
            StreamEncoder(name, 24_000)
