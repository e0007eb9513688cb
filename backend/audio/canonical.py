"""Recordings in the canonical form that the rest of Encore reads: mono 24 kHz 16-bit WAV files.

They are never held in memory as a whole, but written in blocks and read in blocks or parts.
"""

from __future__ import annotations

import contextlib
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backend.audio.decoder_protocol import DecodingJob
from backend.audio.decoding import decoded_samples
from backend.audio.limits import DecodingLimits, recording_decoding
from backend.audio.pcm16 import from_pcm16
from backend.audio.writing import WavWriter
from backend.errors import RecordingDamaged, RecordingNotFound

CANONICAL_HZ = 24_000

_BLOCK_SAMPLES = 1 << 18
_NOT_OURS = "it is not a WAV file that Encore has written"


@dataclass(frozen=True, kw_only=True)
class CanonicalRecording:
    """A recording in canonical form; the `source_` fields describe the file as it came in."""

    path: Path
    seconds: float
    source_name: str
    source_sample_rate: int
    source_channels: int
    container: str
    codec: str
    comment: str = ""


def store_recording(
    path: Path, wav_path: Path, *, name: str | None = None, limits: DecodingLimits | None = None
) -> CanonicalRecording:
    """Decode the file at `path`, up to hours of it, into a WAV file at `wav_path`, with bounded memory.

    The WAV file is there complete or not at all. For a moment its folder holds the samples twice.

    Args:
        path: an untrusted file, decoded in a process of its own.
        wav_path: where to write; an existing file is replaced.
        name: what the recording is called in errors, where the file has another name.
        limits: of length, size and effort; by default 2 h and 500 MB.

    Raises:
        RecordingError: the recording cannot be used; one line says why.
        AudioWriteFailed: the disk is full or not writable.
    """
    job = DecodingJob(sample_rate=CANONICAL_HZ, limits=limits or recording_decoding(), sample_format="pcm16")
    with decoded_samples(path, job, name=name, work_folder=wav_path.parent) as (samples_path, decoded):
        with samples_path.open("rb") as samples, WavWriter(wav_path, CANONICAL_HZ) as writer:
            while len(block := np.fromfile(samples, dtype="<i2", count=_BLOCK_SAMPLES)):
                writer.write_pcm16(block)
        return CanonicalRecording(
            path=wav_path,
            seconds=decoded.num_samples / CANONICAL_HZ,
            source_name=name or path.name,
            source_sample_rate=decoded.source_sample_rate,
            source_channels=decoded.source_channels,
            container=decoded.container,
            codec=decoded.codec,
            comment=decoded.comment,
        )


def read_part(
    wav_path: Path, start_seconds: float = 0.0, end_seconds: float | None = None
) -> tuple[NDArray[np.float32], int]:
    """Samples (samples,) of a part of a canonical WAV file, and their rate; what lies outside of it is left out.

    Raises:
        RecordingNotFound, RecordingDamaged: the file is not there, or not as Encore has written it.
    """
    with _open_wav(wav_path) as file:
        rate, num_samples = file.getframerate(), file.getnframes()
        begin = min(max(0, round(start_seconds * rate)), num_samples)
        end = num_samples if end_seconds is None else min(max(begin, round(end_seconds * rate)), num_samples)
        file.setpos(begin)
        samples = _to_samples(file.readframes(end - begin))
    if len(samples) != end - begin:
        raise RecordingDamaged(wav_path.name, problem="its samples end before its header says so")
    return samples, rate


def read_blocks(wav_path: Path) -> Iterator[NDArray[np.float32]]:
    """All samples of a canonical WAV file in blocks (samples,) of some seconds."""
    with _open_wav(wav_path) as file:
        while content := file.readframes(_BLOCK_SAMPLES):
            yield _to_samples(content)


@contextlib.contextmanager
def _open_wav(wav_path: Path) -> Iterator[wave.Wave_read]:
    try:
        with wave.open(str(wav_path), "rb") as file:
            if (file.getnchannels(), file.getsampwidth()) != (1, 2):
                raise RecordingDamaged(wav_path.name, problem=_NOT_OURS)
            yield file
    except OSError as error:
        raise RecordingNotFound(wav_path.name, problem=f"cannot be read ({error.strerror})") from error
    except (wave.Error, EOFError) as error:
        raise RecordingDamaged(wav_path.name, problem=_NOT_OURS) from error


def _to_samples(content: bytes) -> NDArray[np.float32]:
    return from_pcm16(np.frombuffer(content, dtype="<i2"))
