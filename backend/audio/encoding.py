"""Samples to files: a whole take at once, or a stream chunk by chunk while it is spoken, where the format allows it."""

from __future__ import annotations

import io
from fractions import Fraction
from typing import Any

import av
import numpy as np
import soundfile
from av.audio.stream import AudioStream
from numpy.typing import NDArray

from backend.audio.formats import FORMAT_TABLE, AudioFormat, FormatEntry, find_format, rate_for
from backend.audio.pcm16 import to_pcm16, wav_bytes, wav_header

_OGG_PAGE_MICROSECONDS = "80000"
"""A page is sent when it is full, by default with a second of sound: a frame's worth instead."""

_FLAC_BLOCK_SAMPLES = 1024


class StreamEncoder:
    """Encodes mono sound piece by piece; what it returns, in order, is one file.

    encoder = StreamEncoder("mp3", 24_000)
    yield encoder.header()
    for chunk in stream:
        yield encoder.encode(chunk)
    yield encoder.finish()

    Formats that are not streamable (`FORMAT_TABLE`) come as a whole from `finish`.
    """

    def __init__(self, audio_format: str, sample_rate: int, comment: str = "") -> None:
        """Begin a file, with a comment where the format has a tag for one.

        Raises:
            AudioFormatError: a format that is not made here.
        """
        self.audio_format: AudioFormat = find_format(audio_format)
        self.sample_rate, self._comment = sample_rate, comment
        entry = FORMAT_TABLE[self.audio_format]
        self._compressor = _Compressor(entry, sample_rate, self.encoded_rate, comment) if entry.container else None

    @property
    def media_type(self) -> str:
        """For HTTP."""
        return FORMAT_TABLE[self.audio_format].media_type

    @property
    def encoded_rate(self) -> int:
        """Sample rate of the file, in Hz: the sound's own where the format can hold it."""
        return rate_for(self.audio_format, self.sample_rate)

    def header(self) -> bytes:
        """What the file begins with, as far as it is known before the first sound; may be empty."""
        return wav_header(self.sample_rate, comment=self._comment) if self.audio_format == "wav" else b""

    def encode(self, chunk: NDArray[np.floating[Any]]) -> bytes:
        """Bytes of the next samples (samples,), clipped to [-1, 1]; may be empty while the encoder collects more."""
        if self._compressor is None:
            return to_pcm16(chunk).tobytes()
        return self._compressor.add(chunk)

    def finish(self) -> bytes:
        """The rest of the file. To be called also when the stream broke off: it frees what the encoder holds."""
        return b"" if self._compressor is None else self._compressor.finish()


def encode(samples: NDArray[np.floating[Any]], sample_rate: int, audio_format: str, comment: str = "") -> bytes:
    """A whole mono take as a file, with its true length and a comment if the format has fields for them.

    Raises:
        AudioFormatError: a format that is not made here.
    """
    chosen = find_format(audio_format)
    if chosen == "wav":
        return wav_bytes(samples, sample_rate, comment)
    if chosen == "flac":
        # Not FFmpeg: without a file to go back in, it leaves the length open.
        file = io.BytesIO()
        with soundfile.SoundFile(file, "w", sample_rate, channels=1, format="FLAC", subtype="PCM_16") as writer:
            if comment:
                writer.comment = comment
            writer.write(to_pcm16(samples))
        return file.getvalue()
    encoder = StreamEncoder(chosen, sample_rate, comment)
    return encoder.header() + encoder.encode(samples) + encoder.finish()


class _WholeSink(io.BytesIO):
    """Holds a file that FFmpeg goes back in, until it is finished."""

    def take(self) -> bytes:
        """All of it, once."""
        taken = self.getvalue()
        self.seek(0)
        self.truncate()
        return taken


class _Sink(io.RawIOBase):
    """Collects what FFmpeg writes until it is asked for; cannot be gone back in, as a connection cannot."""

    def __init__(self) -> None:
        super().__init__()
        self._written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # a buffer, whose type the standard library does not name
        self._written += bytes(data)
        return len(data)

    def take(self) -> bytes:
        """What was written since the last time."""
        taken = bytes(self._written)
        self._written.clear()
        return taken


class _Compressor:
    """One FFmpeg encoder and its container."""

    def __init__(self, entry: FormatEntry, sample_rate: int, encoded_rate: int, comment: str) -> None:
        self._sample_rate, self._is_streamable = sample_rate, entry.is_streamable
        self._sink = _Sink() if entry.is_streamable else _WholeSink()
        options = {"flush_packets": "1"}
        if entry.container == "ogg":
            options["page_duration"] = _OGG_PAGE_MICROSECONDS
        self._container = av.open(self._sink, "w", format=entry.container, container_options=options)
        if comment:
            self._container.metadata["comment"] = comment
        stream = self._container.add_stream(entry.codec, rate=encoded_rate)
        assert isinstance(stream, AudioStream)
        self._stream = stream
        stream.layout = "mono"
        stream.format = entry.sample_format
        if entry.bits_per_second:
            stream.bit_rate = entry.bits_per_second
        if entry.codec == "flac":
            stream.codec_context.options = {"frame_size": str(_FLAC_BLOCK_SAMPLES)}
        self._resampler = av.AudioResampler(format=entry.sample_format, layout="mono", rate=encoded_rate)
        self._num_samples = 0
        self._is_finished = False

    def add(self, chunk: NDArray[np.floating[Any]]) -> bytes:
        """Encode some more."""
        if len(chunk):
            frame = av.AudioFrame.from_ndarray(to_pcm16(chunk).reshape(1, -1), format="s16", layout="mono")
            frame.sample_rate, frame.pts = self._sample_rate, self._num_samples
            frame.time_base = Fraction(1, self._sample_rate)
            self._num_samples += len(chunk)
            for resampled in self._resampler.resample(frame):
                self._container.mux(self._stream.encode(resampled))
        return self._sink.take() if self._is_streamable else b""

    def finish(self) -> bytes:
        """Encode what is left and close the file. Twice does no harm."""
        if not self._is_finished:
            self._is_finished = True
            if self._num_samples:
                for resampled in self._resampler.resample(None):
                    self._container.mux(self._stream.encode(resampled))
                self._container.mux(self._stream.encode(None))
            self._container.close()
        return self._sink.take()
