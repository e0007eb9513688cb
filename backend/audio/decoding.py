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
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated, BinaryIO

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveInt, TypeAdapter
from pydantic import ValidationError as AnswerError

from backend.audio.decoder_protocol import BYTES_PER_SAMPLE, DecodingJob, RefusalReason
from backend.audio.limits import REFERENCE_DECODING, DecodingLimits
from backend.audio.recording import Recording
from backend.errors import (
    DecoderFailed,
    RecordingDamaged,
    RecordingError,
    RecordingNotAudio,
    RecordingNotFound,
    RecordingTooLarge,
    RecordingTooLong,
    RecordingUnsupported,
)
from training.model.owner import temporary_folder
from training.model.project import PROJECT_FOLDER

_logger = logging.getLogger(__name__)

_DECODER = "backend.audio.decoder_process"
# The end of a traceback names the cause.
_MAX_LOGGED_BYTES = 2_000
# Some Pythons (conda, modules of a cluster) do not start without these; nothing else is handed on.
_INHERITED_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")
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


@contextlib.contextmanager
def open_foreign_file(path: Path, name: str, limits: DecodingLimits) -> Iterator[int]:
    """A descriptor of a regular file of acceptable size; this open file is decoded, whatever its name becomes."""
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        raise RecordingNotFound(name, problem="does not exist") from None
    except OSError as error:
        raise RecordingNotFound(name, problem=f"cannot be opened ({error.strerror})") from error
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise RecordingNotFound(name, problem="is a folder, not a file")
        if not stat.S_ISREG(status.st_mode):
            raise RecordingNotFound(name, problem="is not a regular file")
        if status.st_size == 0:
            raise RecordingNotAudio(name, problem="is empty")
        if status.st_size > limits.max_bytes:
            raise RecordingTooLarge(name, num_bytes=status.st_size, max_bytes=limits.max_bytes)
        yield descriptor
    finally:
        os.close(descriptor)


def run_confined(
    module: str, argument: str, limits: DecodingLimits, recording: int, output: BinaryIO, name: str
) -> tuple[int, bytes]:
    """Run a module that reads an untrusted file to its end or to the end of its time; it confines itself.

    Args:
        module: to run; the file is its standard input.
        argument: its only one.
        limits: of which the time is kept from here.
        recording: descriptor of the file.
        output: file for its standard output, in the folder that it runs in.
        name: of the file, for errors.

    Returns its exit code (negative: the signal that ended it) and the last of what it said.

    Raises:
        DecoderFailed: it cannot be started, or takes too long.
    """
    process: subprocess.Popen[bytes] | None = None
    try:
        with _interrupts_put_off():
            process = _start(module, argument, recording, output, name)
        exit_code = process.wait(timeout=limits.wall_seconds)
        # All it said is in the pipe by now; what does not fit there has no place in an answer.
        assert process.stderr is not None
        os.set_blocking(process.stderr.fileno(), False)
        return exit_code, process.stderr.read() or b""
    except subprocess.TimeoutExpired:
        raise DecoderFailed(name, cause=f"it took longer than {limits.wall_seconds:g} s") from None
    finally:
        # Also on Ctrl-C and when a job is cancelled.
        if process is not None:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            assert process.stderr is not None
            process.stderr.close()


def _start(module: str, argument: str, recording: int, output: BinaryIO, name: str) -> subprocess.Popen[bytes]:
    """The process, just begun. Raises DecoderFailed."""
    try:
        return subprocess.Popen(
            # -P: the folder it runs in does not become a place to import from.
            [sys.executable, "-P", "-m", module, argument],
            stdin=recording,
            stdout=output,
            # Not a file: a full disk must not swallow the report that it is full.
            stderr=subprocess.PIPE,
            cwd=Path(output.name).parent,
            env=process_environment(),
            # A group of its own, so that killing it reaches whatever it may have started.
            start_new_session=True,
        )
    except OSError as error:
        raise DecoderFailed(name, cause=f"its process could not be started ({error.strerror})") from error


@contextlib.contextmanager
def _interrupts_put_off() -> Iterator[None]:
    """Delay Ctrl-C to the end of a block, so that a process that was just started can be ended."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield  # other threads never receive interrupts
        return
    put_off: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: put_off.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if put_off:
            handler(*put_off[0])


def process_environment() -> dict[str, str]:
    """No secrets, no proxies, no settings: only what a Python needs to find the same packages as this one."""
    import_path = [str(PROJECT_FOLDER), *(entry for entry in sys.path if os.path.isabs(entry))]
    inherited = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    # One thread: decoding has no use for more, and each would take address space from the limit.
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {"PYTHONPATH": os.pathsep.join(import_path), "PYTHONUTF8": "1", **threads, **inherited}


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
