"""The first audio track of a container as mono float32 blocks, refused where it leaves what is accepted.

Runs in the decoder process only: untrusted bytes reach FFmpeg here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn

import av

# PyAV would import these when it meets a track of that kind, but by then this process can open no file any more.
import av.subtitles.codeccontext
import av.subtitles.stream
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer
from numpy.typing import NDArray

from backend.audio.containers import Container, promised_wav_share, stated_wav_rate
from backend.audio.decoder_protocol import Refusal
from backend.audio.limits import DecodingLimits

# What the accepted containers hold in practice, by FFmpeg's decoder names; video decoders never start.
_CODECS = (
    *("pcm_u8", "pcm_s16le", "pcm_s16be", "pcm_s24le", "pcm_s24be", "pcm_s32le", "pcm_s32be"),
    *("pcm_f32le", "pcm_f32be", "pcm_f64le", "pcm_f64be", "pcm_alaw", "pcm_mulaw"),
    *("flac", "alac", "mp3float", "aac", "vorbis", "opus", "libopus"),
    # Voice memos of older phones, in 3GP.
    *("amrnb", "amrwb", "libopencore_amrnb", "libopencore_amrwb"),
)
_DEMUXERS: dict[Container, str] = {
    "wav": "wav",
    "flac": "flac",
    "mp3": "mp3",
    "ogg": "ogg",
    "mp4": "mov",
    "matroska": "matroska",
    "aac": "aac",
}
_OPEN_OPTIONS = {
    "codec_whitelist": ",".join(_CODECS),
    # No protocol has this name: nothing a file refers to can be opened.
    "protocol_whitelist": "none",
    "max_streams": "64",
}
# The containers whose header states the length exactly; MP3, AAC and OGG lengths are guesses or the last page's word.
_EXACT_LENGTH: tuple[Container, ...] = ("wav", "flac", "mp4", "matroska")
# Shorter than a word, longer than the padding of any codec.
_SHORTFALL_SECONDS = 0.25
# `seconds` is a sum of thousands of floats; a recording of exactly the permitted length must pass.
_ROUNDING_SECONDS = 1e-6
# No sound, and nothing that somebody has merely recorded too loud.
_MAX_PEAK = 1e9
_MAX_COMMENT_CHARACTERS = 1000
# Players pass over single broken packets, and so does this; more than one in a hundred is audible.
_DAMAGED_SHARE = 0.01


class MonoBlocks:
    """Iterates over (sample rate in Hz, mono float32 block of shape (samples,)).

    The rate belongs to each block because a few files change it on the way (chained OGG, AAC with implicit
    band replication). After the last block `seconds`, `channels`, `codec`, `comment` and `sample_rate` (that of
    the first block) describe what was read.
    """

    def __init__(self, file: BinaryIO, kind: Container, limits: DecodingLimits) -> None:
        self._limits = limits
        wav_share = promised_wav_share(file) if kind == "wav" else 1.0
        if kind == "wav" and (rate := stated_wav_rate(file)) is not None:
            self._check_rate(rate)
        self._container = _open(file, kind)
        self._track = _first_audio_track(self._container)
        self._promised_seconds = _promised_seconds(self._container, self._track, kind, wav_share)
        self._num_packets = 0
        self._num_broken_packets = 0
        self.codec = self._track.codec_context.name
        self.comment = _comment(self._container, self._track)
        self.channels = self._track.channels
        self.sample_rate = 0
        self.seconds = 0.0
        if self.codec not in _CODECS:
            raise Refusal("codec", codec=self.codec)
        self._check_channels(self.channels)
        self._track.codec_context.thread_count = 1

    def __iter__(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        for frame in self._frames():
            self._check_channels(frame.layout.nb_channels)
            self._check_rate(frame.sample_rate)
            self.sample_rate = self.sample_rate or frame.sample_rate
            self.channels = max(self.channels, frame.layout.nb_channels)
            self.seconds += frame.samples / frame.sample_rate
            if self.seconds > self._limits.max_seconds + _ROUNDING_SECONDS:
                raise Refusal("too_long")
            block = _mono(frame)
            # Before resampling: one NaN would smear over its neighbours, and sums of such numbers overflow.
            if not np.isfinite(block).all():
                raise Refusal("not_finite")
            if (peak := float(np.abs(block).max(initial=0.0))) > _MAX_PEAK:
                raise Refusal("too_loud", number=peak)
            yield frame.sample_rate, block
        self._check_complete()

    def _frames(self) -> Iterator[AudioFrame]:
        try:
            for packet in self._container.demux(self._track):
                self._num_packets += 1
                try:
                    yield from packet.decode()
                except av.error.InvalidDataError:
                    self._num_broken_packets += 1
        except MemoryError:
            raise
        except av.error.FFmpegError as error:
            raise Refusal("undecodable") from error

    def _check_rate(self, sample_rate: int) -> None:
        if not self._limits.min_sample_rate <= sample_rate <= self._limits.max_sample_rate:
            raise Refusal("sample_rate", number=sample_rate)

    def _check_channels(self, channels: int) -> None:
        if not 1 <= channels <= self._limits.max_channels:
            raise Refusal("channels", number=channels)

    def _check_complete(self) -> None:
        """Refuse a recording that breaks off or has holes.

        The rest could be used, but it would no longer match its transcript: a reference
        whose transcript says more than its sound makes the voice invent speech.
        """
        if self._num_broken_packets > 1 + _DAMAGED_SHARE * self._num_packets:
            raise Refusal("undecodable")
        if self._promised_seconds is not None and self.seconds < self._promised_seconds - _SHORTFALL_SECONDS:
            raise Refusal("ends_early", number=self.seconds, promised=self._promised_seconds)
        if self.seconds == 0.0:
            raise Refusal("no_audio_track")


def _open(file: BinaryIO, kind: Container) -> InputContainer:
    try:
        # The demuxer is named, not guessed: a playlist that looks like one format cannot be taken for another.
        return av.open(
            file,
            "r",
            format=_DEMUXERS[kind],
            options=_OPEN_OPTIONS,
            # Tags in Latin-1 are common and of no interest.
            metadata_errors="replace",
            io_open=_refuse_to_open,
        )
    except MemoryError:
        raise
    except av.error.FFmpegError as error:
        raise Refusal("unreadable") from error


def _refuse_to_open(url: str, flags: int, options: dict[str, Any]) -> NoReturn:  # Any: PyAV's callback signature
    raise PermissionError("a recording may not refer to other files")


def _first_audio_track(container: InputContainer) -> AudioStream:
    if not container.streams.audio:
        raise Refusal("no_audio_track")
    track = container.streams.audio[0]
    # Typed as always there, but None where FFmpeg has no decoder for the track.
    if track.codec_context is None:
        raise Refusal("codec", codec="unknown")
    return track


def _promised_seconds(container: InputContainer, track: AudioStream, kind: Container, wav_share: float) -> float | None:
    """The length that the header states, where it can be relied on; live recorders leave it out."""
    if kind not in _EXACT_LENGTH:
        return None
    if track.duration is not None and track.time_base is not None:
        return float(track.duration * track.time_base) * wav_share
    # The container's length is that of its longest track.
    is_only_track = len(container.streams) == 1
    return container.duration / av.time_base if is_only_track and container.duration is not None else None


def _mono(frame: AudioFrame) -> NDArray[np.float32]:
    """Average the channels of a frame; integers become fractions of full scale."""
    values: NDArray[Any] = frame.to_ndarray()  # Any: one of u1, i2, i4, f4, f8
    if not frame.format.is_planar:
        values = values.reshape(-1, frame.layout.nb_channels).T
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused as not finite
        mono: NDArray[np.float64] = values.mean(axis=0, dtype=np.float64)
        if values.dtype == np.uint8:
            mono = (mono - 128.0) / 128.0
        elif values.dtype.kind == "i":
            mono /= 2.0 ** (8 * values.dtype.itemsize - 1)
        return mono.astype(np.float32)


def _comment(container: InputContainer, track: AudioStream) -> str:
    """The comment tag, which Ogg keeps with its track; empty where there is none."""
    for tags in (container.metadata, track.metadata):
        for name, value in tags.items():
            if name.lower() == "comment":
                return value[:_MAX_COMMENT_CHARACTERS]
    return ""
