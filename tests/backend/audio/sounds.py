"""Test signals and the files made of them; every container is written by FFmpeg itself, through PyAV."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from av.audio.stream import AudioStream
from numpy.typing import NDArray

Samples = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Format:
    """One way to store sound; `lossless` files come back sample for sample, others correlate with the original."""

    suffix: str
    codec: str
    container: str
    rate: int = 48_000
    layout: str = "mono"
    lossless: bool = False
    options: tuple[tuple[str, str], ...] = ()
    correlation: float = 0.95


FORMATS = (
    Format(suffix="wav", codec="pcm_u8", container="wav"),
    Format(suffix="wav", codec="pcm_s16le", container="wav", lossless=True),
    Format(suffix="wav", codec="pcm_s24le", container="wav", lossless=True),
    Format(suffix="wav", codec="pcm_f32le", container="wav", lossless=True),
    Format(suffix="wav", codec="pcm_mulaw", container="wav"),
    Format(suffix="flac", codec="flac", container="flac", lossless=True),
    Format(suffix="mp3", codec="libmp3lame", container="mp3"),
    # FFmpeg's own Vorbis encoder calls itself experimental and knows stereo only.
    Format(suffix="ogg", codec="vorbis", container="ogg", layout="stereo", options=(("strict", "experimental"),)),
    Format(suffix="opus", codec="libopus", container="ogg"),
    Format(suffix="webm", codec="libopus", container="matroska"),
    Format(suffix="mka", codec="flac", container="matroska", lossless=True),
    Format(suffix="m4a", codec="aac", container="mp4"),
    Format(suffix="m4a", codec="alac", container="mp4", lossless=True),
    Format(suffix="mp4", codec="aac", container="mp4"),
    # A model of speech, which a sum of sines is not: it keeps the melody, but not the phases.
    Format(suffix="3gp", codec="libopencore_amrnb", container="mp4", rate=8_000, correlation=0.6),
    Format(suffix="aac", codec="aac", container="aac"),
)


def sing(seconds: float, rate: int, *, pitch_hz: float = 180.0) -> Samples:
    """Sines with vibrato under an envelope that never repeats, so that a shift of the signal shows."""
    time = np.arange(round(seconds * rate)) / rate
    phase = 2 * np.pi * pitch_hz * time + 2.0 * np.sin(2 * np.pi * 5.0 * time)
    tone = sum(np.sin(harmonic * phase) / harmonic for harmonic in (1, 2, 3, 5))
    envelope = 0.6 + 0.2 * np.sin(2 * np.pi * 0.7 * time) + 0.2 * np.sin(2 * np.pi * 1.9 * time)
    return (0.25 * tone * envelope).astype(np.float32)


def encode(path: Path, samples: Samples, form: Format, *, container_options: dict[str, str] | None = None) -> Path:
    """Write mono `samples` of shape (samples,) to `path`, each channel alike, at the format's rate."""
    num_channels = {"mono": 1, "stereo": 2}[form.layout]
    with av.open(path, "w", options=container_options) as container:
        stream = container.add_stream(form.codec, rate=form.rate, options=dict(form.options))
        assert isinstance(stream, AudioStream)
        stream.layout = form.layout
        for begin in range(0, len(samples), form.rate):
            block = np.tile(samples[begin : begin + form.rate], (num_channels, 1))
            frame = av.AudioFrame.from_ndarray(block, format="fltp", layout=form.layout)
            frame.rate, frame.pts = form.rate, begin
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def write_raw_wav(
    path: Path,
    interleaved: NDArray[np.int16] | Samples,
    *,
    rate: int = 24_000,
    channels: int = 1,
    size: int | None = None,
) -> Path:
    """A WAV by hand, for what no encoder would write; `size` is what its headers claim the data to have."""
    data = interleaved.tobytes()
    claimed = len(data) if size is None else size
    bits = interleaved.dtype.itemsize * 8
    block = channels * bits // 8
    kind = 3 if interleaved.dtype == np.float32 else 1
    header = struct.pack("<4sI4s", b"RIFF", min(claimed + 36, 2**32 - 1), b"WAVE")
    header += struct.pack("<4sIHHIIHH", b"fmt ", 16, kind, channels, rate, rate * block % 2**32, block % 2**16, bits)
    path.write_bytes(header + struct.pack("<4sI", b"data", claimed) + data)
    return path


def write_silent_flac(path: Path, *, minutes: int, rate: int = 24_000) -> Path:
    """A decompression bomb: half an hour is 250 kB, and 170 MB when decoded."""
    silence = np.zeros((1, 10 * rate), np.int16)
    with av.open(path, "w") as container:
        stream = container.add_stream("flac", rate=rate)
        stream.layout = "mono"
        for block in range(6 * minutes):
            frame = av.AudioFrame.from_ndarray(silence, format="s16", layout="mono")
            frame.rate, frame.pts = rate, block * silence.size
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def alignment(decoded: Samples, original: Samples, *, max_shift: int) -> float:
    """The best correlation of the two over all shifts up to `max_shift` samples."""
    length = len(original) + len(decoded)
    spectrum = np.fft.rfft(decoded, length) * np.conj(np.fft.rfft(original, length))
    by_shift = np.fft.irfft(spectrum, length)
    within = np.concatenate([by_shift[: max_shift + 1], by_shift[-max_shift:]])
    return float(within.max() / (np.linalg.norm(decoded) * np.linalg.norm(original)))
