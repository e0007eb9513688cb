"""An untrusted file to mono samples, decoded in a process of its own.

Decoders are large C programs fed with untrusted bytes. So each recording gets a fresh process that has
limits for memory, CPU, time and output, no file but the recording, and no way to open another; it is killed
whatever happens. A crash or a decompression bomb costs that process, and the user gets a one-line error.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveInt, TypeAdapter
from pydantic import ValidationError as AnswerError

from backend.audio.confined_process import open_foreign_file, run_confined
from backend.audio.decoder_protocol import BYTES_PER_SAMPLE, DecodingJob, RefusalReason
from backend.audio.limits import REFERENCE_DECODING, DecodingLimits
from backend.audio.recording import Recording
from backend.errors import (
    DecoderFailed,
    RecordingDamaged,
    RecordingError,
    RecordingNotAudio,
    RecordingTooLong,
    RecordingUnsupported,
)
from training.model.owner import temporary_folder

_logger = logging.getLogger(__name__)

_DECODER = "backend.audio.decoder_process"
# The end of a traceback names the cause.
_MAX_LOGGED_BYTES = 2_000
_OUT_OF_TIME_SIGNALS = (signal.SIGXCPU, signal.SIGALRM)

_ShortText = Annotated[str, Field(max_length=40, pattern=r"^[\w.-]+$")]


class Decoded(BaseModel):
    """What the decoder says about a recording, by the names of `Recording`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_samples: NonNegativeInt
    source_sample_rate: PositiveInt
    source_channels: PositiveInt
    source_seconds: NonNegativeFloat
    container: _ShortText
    codec: _ShortText
    comment: str = Field(default="", max_length=1000)


class _Refused(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    refused: RefusalReason
    codec: _ShortText = "unknown"
    number: NonNegativeFloat = 0.0
    promised: NonNegativeFloat = 0.0


_ANSWER: TypeAdapter[Decoded | _Refused] = TypeAdapter(Decoded | _Refused)


def decode_recording(path: Path, *, sample_rate: int, limits: DecodingLimits = REFERENCE_DECODING) -> Recording:
    """Decode the first audio track of the file at `path`, mixed to mono, at `sample_rate` Hz.

    WAV, FLAC, MP3, OGG (Vorbis, Opus), MP4/M4A/3GP, Matroska/WebM and raw AAC are recognised by content; the
    name does not matter. A file that ends before its header says so is refused, not decoded as far as it goes.

    Raises:
        RecordingError: with one line for the user; see `backend.errors` for the kinds.
    """
    with decoded_samples(path, DecodingJob(sample_rate=sample_rate, limits=limits)) as (samples_path, outcome):
        return Recording(
            samples=np.fromfile(samples_path, dtype=np.float32, count=outcome.num_samples),
            sample_rate=sample_rate,
            source_name=path.name,
            **outcome.model_dump(exclude={"num_samples"}),
        )


@contextlib.contextmanager
def decoded_samples(
    path: Path, job: DecodingJob, *, name: str | None = None, work_folder: Path | None = None
) -> Iterator[tuple[Path, Decoded]]:
    """The raw samples of the recording at `path` as a file that is gone afterwards, and what is known about it.

    Args:
        path: the file to decode.
        job: how the samples are wanted.
        name: what the recording is called in errors, where the file has another name.
        work_folder: where there is room for the samples; otherwise the system's place for temporary files.

    Raises:
        RecordingError: see `decode_recording`.
    """
    name = name or path.name
    with open_foreign_file(path, name, job.limits) as recording, _work_folder(name, work_folder) as folder:
        samples_path = folder / "samples"
        with samples_path.open("wb") as samples:
            exit_code, answer = run_confined(_DECODER, job.to_json(), job.limits, recording, samples, name)
        outcome = _read_answer(answer, exit_code, name)
        if isinstance(outcome, _Refused):
            raise _to_error(outcome, name, job.limits)
        if samples_path.stat().st_size != outcome.num_samples * BYTES_PER_SAMPLE[job.sample_format]:
            raise DecoderFailed(name, cause="the decoder's answer contradicts itself")
        yield samples_path, outcome


@contextlib.contextmanager
def _work_folder(name: str, parent: Path | None) -> Iterator[Path]:
    """An empty folder for one decoding, gone afterwards."""
    try:
        folder = temporary_folder(parent)
    except OSError as error:
        raise DecoderFailed(name, cause=f"there is no room for temporary files ({error.strerror})") from error
    with folder as created:
        yield Path(created)


def _read_answer(answer: bytes, exit_code: int, name: str) -> Decoded | _Refused:
    """The decoder's last line, checked: after a successful attack it could say anything.

    Raises:
        DecoderFailed: it ended without an answer.
    """
    if exit_code == 0:
        with contextlib.suppress(AnswerError):
            return _ANSWER.validate_json(answer.strip().rpartition(b"\n")[2])
    last_words = answer[-_MAX_LOGGED_BYTES:].decode(errors="replace").strip()
    _logger.warning("decoder of %r ended with %d: %s", name, exit_code, last_words)
    raise DecoderFailed(name, cause=_explain_exit(exit_code))


def _explain_exit(exit_code: int) -> str:
    if exit_code >= 0:
        return f"the decoder stopped without an answer (exit code {exit_code})"
    if -exit_code in _OUT_OF_TIME_SIGNALS:
        return "it took too much computing time"
    if -exit_code == signal.SIGKILL:
        return "the decoder was killed, probably for lack of memory"
    if -exit_code == signal.SIGSEGV:
        # Linux ends a process this way too when its stack cannot grow within the limit on memory.
        return f"the decoder crashed (signal {-exit_code}), or needs more memory than it may have"
    return f"the decoder crashed (signal {-exit_code})"


def _to_error(outcome: _Refused, name: str, limits: DecodingLimits) -> RecordingError:
    """Put a refusal into words."""
    number = outcome.number
    match outcome.refused:
        case "unknown_container":
            return RecordingNotAudio(name)
        case "no_audio_track":
            return RecordingNotAudio(name, problem="holds no sound")
        case "codec":
            return RecordingUnsupported(name, problem=f"uses the codec {outcome.codec}, which is not decoded here")
        case "channels":
            # FFmpeg counts beyond 512 channels as none.
            most = limits.max_channels
            counted = f"has {number:.0f} channels, more than {most}"
            return RecordingUnsupported(
                name, problem=counted if number else f"has too many channels or none, not 1 to {most}"
            )
        case "sample_rate":
            accepted = f"{limits.min_sample_rate} to {limits.max_sample_rate} Hz"
            return RecordingUnsupported(name, problem=f"has a sample rate of {number:.0f} Hz, not one of {accepted}")
        case "too_long":
            return RecordingTooLong(name, max_seconds=limits.max_seconds)
        case "ends_early":
            return RecordingDamaged(
                name, problem=f"it ends after {number:.1f} s of the {outcome.promised:.1f} s it should have"
            )
        case "unreadable" | "undecodable":
            return RecordingDamaged(name, problem="parts of it are missing or unreadable")
        case "not_finite":
            return RecordingDamaged(name, problem="some samples are not numbers (NaN or infinite)")
        case "too_loud":
            return RecordingDamaged(name, problem=f"its loudest sample is {number:.0e} times full scale")
        case "no_memory":
            return DecoderFailed(name, cause=f"it needs more than {limits.memory_bytes / 1e6:g} MB of memory")
        case "no_space":
            error = DecoderFailed(name, cause="the disk for temporary files is full")
            # Lets callers distinguish a full disk from a bad recording.
            error.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return error
