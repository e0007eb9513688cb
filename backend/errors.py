"""The product's one exception tree: catch a branch here, show `str(error)` as it is.

EncoreError
├── ApiError
├── AudioFormatError
├── AudioWriteFailed
├── ClusterError
├── ComparisonError
├── DatasetError
│   ├── BuildCancelled
│   ├── DatasetBusy
│   ├── DatasetEmpty
│   ├── DatasetInUse
│   ├── DatasetNameInvalid
│   ├── DatasetNameTaken
│   ├── DatasetNotFound
│   ├── DiskFull
│   └── EditInvalid
├── EvaluationError
├── FormIncomplete
│   └── StepsMissing
├── ModelError
│   ├── CheckpointError
│   ├── ConfigError
│   ├── DownloadError
│   │   └── DownloadCancelled
│   └── PromptError
├── OutputInvalid
├── PartNotRepeatable
├── PretrainError
│   └── CorpusError
├── QuotaExceeded
├── RecordingError
│   ├── DecoderFailed
│   ├── RecordingDamaged
│   ├── RecordingNotAudio
│   ├── RecordingNotFound
│   ├── RecordingSilent
│   ├── RecordingSynthetic
│   ├── RecordingTooLarge
│   ├── RecordingTooLong
│   ├── RecordingTooShort
│   └── RecordingUnsupported
├── RunError
│   ├── RunInvalid
│   ├── RunNotFound
│   └── RunStateInvalid
├── SaidInPlace
├── ServingError
│   ├── ClusterSpeechError
│   ├── EngineBusy
│   ├── EngineClosed
│   │   └── ReplicaLost
│   ├── HomeUnavailable
│   ├── RequestTimedOut
│   ├── TakeFailed
│   └── VoiceFilesMissing
├── SettingsError
│   └── ShareUnavailable
├── SigningError
├── StorageError
│   ├── StorageDamaged
│   ├── StorageRefused
│   └── StorageUnreachable
├── StoreError
│   ├── ArtifactError
│   ├── RowDamaged
│   ├── StoreBusy
│   ├── StoreDamaged
│   ├── StoreTooNew
│   ├── TrashBusy
│   ├── TrashNameTaken
│   └── TrashNotFound
├── TakeNotFound
├── TakeTooShort
├── TaskBusy
├── TaskCancelled
├── TenantError
├── TrainingDataError
├── TrainingError
│   ├── AgreedError
│   │   └── CheckpointDiskFull
│   ├── JobInvalid
│   ├── PreflightError
│   └── ResumeError
├── TranscriptionError
│   ├── LanguageUnsupported
│   ├── WhisperDamaged
│   └── WhisperUnavailable
└── VoiceError
    ├── ConsentInvalid
    ├── ConsentMissing
    ├── VoiceFileInvalid
    ├── VoiceLimitReached
    ├── VoiceNameInvalid
    ├── VoiceNameTaken
    ├── VoiceNotFound
    └── VoiceStyleUnknown

A branch is called XError; below it a name says what is wrong with X: XNotFound, XBusy, XNameTaken, XInvalid, XDamaged.
Every message is one line that says what happened and what to do. Constructors take the facts and write the
message, so that it reads the same wherever the error is raised.
"""

from __future__ import annotations

import math

from training.model.errors import (
    CheckpointError,
    ConfigError,
    DownloadCancelled,
    DownloadError,
    EncoreError,
    ModelError,
    PromptError,
)

__all__ = [
    "AudioWriteFailed",
    "CheckpointError",
    "ConfigError",
    "DecoderFailed",
    "DownloadCancelled",
    "DownloadError",
    "EncoreError",
    "ModelError",
    "OutputInvalid",
    "PromptError",
    "RecordingDamaged",
    "RecordingError",
    "RecordingNotAudio",
    "RecordingNotFound",
    "RecordingSilent",
    "RecordingTooLarge",
    "RecordingTooLong",
    "RecordingTooShort",
    "RecordingUnsupported",
    "SettingsError",
]

_MAX_NAME_LENGTH = 80
_BYTES_PER_MB = 1e6


class RecordingError(EncoreError):
    """A recording cannot be used as it is; `recording_name` says which."""

    def __init__(self, name: str, message: str) -> None:
        self.recording_name = name
        super().__init__(f"{_printable(name)} {message}")


class RecordingNotFound(RecordingError):
    """There is no file to read: not there, a folder, not readable."""

    def __init__(self, name: str, *, problem: str) -> None:
        super().__init__(name, f"{problem}. Choose a recording that is on this computer.")


class RecordingTooLarge(RecordingError):
    """The file itself is larger than anything that is worth decoding."""

    def __init__(self, name: str, *, num_bytes: int, max_bytes: int) -> None:
        size_mb = _round_up(num_bytes / _BYTES_PER_MB)
        super().__init__(
            name,
            f"has {size_mb} MB; at most {max_bytes / _BYTES_PER_MB:g} MB are accepted. "
            "Cut out a shorter part or save it as FLAC.",
        )


class RecordingNotAudio(RecordingError):
    """The content is no recording, whatever the file is called."""

    def __init__(self, name: str, *, problem: str = "is not a kind of audio file that is known here") -> None:
        super().__init__(name, f"{problem}. Use WAV, FLAC, MP3, OGG, M4A, MP4, WebM or AAC.")


class RecordingUnsupported(RecordingError):
    """It is audio, but of a form that is not decoded here: an exotic codec, rate or number of channels."""

    def __init__(self, name: str, *, problem: str) -> None:
        super().__init__(name, f"{problem}. Save it as 16-bit WAV, mono or stereo.")


class RecordingDamaged(RecordingError):
    """It is audio, but parts are missing or are no numbers."""

    def __init__(self, name: str, *, problem: str) -> None:
        super().__init__(name, f"is damaged: {problem}. Copy it again from where it came from, or record a new take.")


class RecordingTooShort(RecordingError):
    """Too little of a voice to imitate."""

    def __init__(self, name: str, *, seconds: float, min_seconds: float) -> None:
        # Rounded down: 0.96 s must not read as the 1.0 s it falls short of.
        shown = f"{math.floor(seconds * 10) / 10:.1f}"
        super().__init__(name, f"lasts {shown} s; cloning needs {min_seconds:.1f} s or more. Record a longer take.")


class RecordingTooLong(RecordingError):
    """More sound than is accepted at once; `seconds` is None where decoding stopped at the limit."""

    def __init__(self, name: str, *, max_seconds: float, seconds: float | None = None) -> None:
        length = "longer than that" if seconds is None else f"{_round_up(seconds)} s"
        super().__init__(
            name,
            f"is too long: at most {_length(max_seconds)} are accepted, it is {length}. Cut out a shorter part.",
        )


class RecordingSilent(RecordingError):
    """There is no voice in it: nothing, or nothing but noise far below speech."""

    def __init__(self, name: str, *, measure: str, level_dbfs: float, min_dbfs: float) -> None:
        level = "digital silence" if math.isinf(level_dbfs) else f"{level_dbfs:.0f} dBFS"
        super().__init__(
            name,
            f"is silent: its {measure} is {level}, and speech has {min_dbfs:.0f} dBFS or more. "
            "Check the microphone and record again.",
        )


class DecoderFailed(RecordingError):
    """Decoding ended without an answer: crashed, out of memory, out of time."""

    def __init__(self, name: str, *, cause: str) -> None:
        super().__init__(name, f"could not be decoded: {cause}. Save it as 16-bit WAV and try again.")


class AudioWriteFailed(EncoreError):
    """Sound could not be stored; nothing was left behind under the wanted name."""

    def __init__(self, name: str, *, problem: str) -> None:
        super().__init__(f"{_printable(name)} was not written: {problem}.")


class OutputInvalid(EncoreError):
    """The place named for a result cannot take it; found out before the work, not after."""


class SettingsError(EncoreError):
    """An environment variable or option has a value that is not allowed."""


def _length(seconds: float) -> str:
    """A limit as people say it."""
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds:g} s"


def _printable(name: str) -> str:
    """A file name as part of a one-line message: no control characters, no broken bytes, not endless."""
    shown = "".join(character if character.isprintable() else "?" for character in name) or "(no name)"
    if len(shown) > _MAX_NAME_LENGTH:
        half = _MAX_NAME_LENGTH // 2
        shown = f"{shown[:half]}…{shown[-half:]}"
    return shown


def _round_up(value: float) -> str:
    """One decimal, rounded up, so that what exceeds a limit also reads as more than the limit."""
    return f"{math.ceil(value * 10) / 10:.1f}"
