"""First stage: an untrusted file becomes canonical sound on our disk, and its stretches of speech are found."""

from __future__ import annotations

from pathlib import Path

from backend.audio.canonical import CANONICAL_HZ, read_blocks, store_recording
from backend.audio.limits import DecodingLimits
from backend.audio.resample import resample_blocks
from backend.audio.voice_activity import VOICE_ACTIVITY_HZ, find_speech
from backend.dataset.clips.stage_results import WAV_SUFFIX, DecodedRecording
from backend.dataset.storage.workspace import DatasetWorkspace, stage_key
from backend.provenance.check import Checker


def decode_key(recording_id: str, limits: DecodingLimits, *name: str) -> str:
    """The key of a decoded recording; with a name that of a refusal, whose sentence names the file."""
    return stage_key("decode", recording_id, limits.max_seconds, limits.max_bytes, *name)


def decode_recording(workspace: DatasetWorkspace, path: Path, name: str, limits: DecodingLimits) -> DecodedRecording:
    """Decode the file at `path`, called `name` in errors.

    Raises:
        RecordingError: it cannot be used, or not now: no memory, no time, no file.
        ArtifactError, AudioWriteFailed: the disk is full.
    """
    artifacts = workspace.artifacts
    with artifacts.incoming(WAV_SUFFIX) as wav:
        canonical = store_recording(path, wav, name=name, limits=limits)
        speech = find_speech(resample_blocks(read_blocks(wav), CANONICAL_HZ, VOICE_ACTIVITY_HZ))
        verdict = Checker().judge(path, canonical, limits)
        audio_id = artifacts.adopt(wav, WAV_SUFFIX)
        return DecodedRecording(
            audio_id=audio_id,
            seconds=canonical.seconds,
            speech=tuple(speech),
            made_by_encore=verdict.is_made_by_encore,
        )
