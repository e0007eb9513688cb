"""The kinds of audio file that are made here, and what each can hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from backend.audio.errors import AudioFormatError

AudioFormat = Literal["wav", "flac", "mp3", "opus", "aac", "m4a", "pcm"]

AUDIO_FORMATS: tuple[AudioFormat, ...] = get_args(AudioFormat)

_MP3_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
_OPUS_RATES = (8000, 12000, 16000, 24000, 48000)
_AAC_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)


@dataclass(frozen=True, kw_only=True)
class FormatEntry:
    """How a format is made.

    Attributes:
        media_type: for HTTP.
        suffix: of a file name.
        signed_as: media type under which a finished file can carry a signed statement (C2PA); empty where it cannot.
        has_comment: whether it has a tag for a comment.
        is_streamable: whether its bytes can be handed out while it is made; otherwise they come at its end.
        container: FFmpeg's name of it; empty where FFmpeg is not needed.
        codec: FFmpeg's name of the encoder.
        sample_format: what the encoder takes.
        rates: sample rates it can hold, in Hz; any when empty.
        bits_per_second: for lossy ones, of one voice.
    """

    media_type: str
    suffix: str
    signed_as: str = ""
    has_comment: bool = True
    is_streamable: bool = True
    container: str = ""
    codec: str = ""
    sample_format: str = ""
    rates: tuple[int, ...] = ()
    bits_per_second: int = 0


FORMAT_TABLE: dict[AudioFormat, FormatEntry] = {
    "wav": FormatEntry(media_type="audio/wav", suffix=".wav", signed_as="audio/wav"),
    "pcm": FormatEntry(media_type="audio/pcm", suffix=".pcm", has_comment=False),
    "flac": FormatEntry(
        media_type="audio/flac",
        suffix=".flac",
        signed_as="audio/flac",
        container="flac",
        codec="flac",
        sample_format="s16",
    ),
    "mp3": FormatEntry(
        media_type="audio/mpeg",
        suffix=".mp3",
        signed_as="audio/mpeg",
        container="mp3",
        codec="libmp3lame",
        sample_format="fltp",
        rates=_MP3_RATES,
        bits_per_second=96_000,
    ),
    "opus": FormatEntry(
        media_type="audio/ogg",
        suffix=".opus",
        container="ogg",
        codec="libopus",
        sample_format="flt",
        rates=_OPUS_RATES,
        bits_per_second=48_000,
    ),
    "aac": FormatEntry(
        media_type="audio/aac",
        suffix=".aac",
        has_comment=False,
        container="adts",
        codec="aac",
        sample_format="fltp",
        rates=_AAC_RATES,
        bits_per_second=96_000,
    ),
    "m4a": FormatEntry(
        media_type="audio/mp4",
        suffix=".m4a",
        signed_as="audio/mp4",
        # Its index is written at the end, and tells where everything before it is.
        is_streamable=False,
        container="ipod",
        codec="aac",
        sample_format="fltp",
        rates=_AAC_RATES,
        bits_per_second=96_000,
    ),
}


def find_format(name: str) -> AudioFormat:
    """The format of this name, in any case. Raises AudioFormatError if it is not supported."""
    lowered = name.strip().lower()
    for known in AUDIO_FORMATS:
        if known == lowered:
            return known
    raise AudioFormatError(f"The format {name[:40]!r} is not supported. Choose one of: {', '.join(AUDIO_FORMATS)}.")


def rate_for(audio_format: AudioFormat, sample_rate: int) -> int:
    """The rate a format is made at: the sound's own, or the next higher one that the format can hold."""
    rates = FORMAT_TABLE[audio_format].rates
    if not rates or sample_rate in rates:
        return sample_rate
    return next((rate for rate in rates if rate > sample_rate), rates[-1])
