"""First stage: a stranger's file becomes canonical sound on our disk, with the stretches in which somebody speaks."""

from __future__ import annotations

from pathlib import Path

from backend.audio.canonical import CANONICAL_HZ, read_blocks, resample_blocks, store_recording
from backend.audio.limits import recording_decoding
from backend.audio.voice_activity import VOICE_ACTIVITY_HZ, find_speech
from backend.dataset.clips.job import BuildJob
from backend.dataset.clips.records import DecodedRecording, Span
from backend.dataset.storage.stage_cache import stage_key
from backend.dataset.storage.workspace import WAV_SUFFIX, DatasetWorkspace
from backend.errors import DecoderFailed, RecordingError, RecordingMissing


class DecodeStage:
    """Decodes each content once, whatever its files are called."""

    def __init__(self, workspace: DatasetWorkspace, job: BuildJob) -> None:
        self._workplace = workspace
        self._limits = recording_decoding(
            maximum_seconds=job.max_hours * 3600.0, maximum_bytes=round(job.max_megabytes * 1e6)
        )

    def find(self, recording_id: str, name: str) -> DecodedRecording | None:
        """The result of an earlier build, if its sound is still there, or the reason why there is none."""
        found = self._workplace.cache.load("decode", self._key(recording_id), DecodedRecording)
        if found is not None and not found.problem and self._workplace.wav(found.audio_id).is_file():
            return found
        refused = self._workplace.cache.load("decode", self._key(recording_id, name), DecodedRecording)
        return refused if refused is not None and refused.problem else None

    def run(self, recording_id: str, path: Path, name: str) -> DecodedRecording:
        """Decode a recording. One that cannot be used is a result too, with its reason.

        Raises:
            EncoreError: a reason that may be gone next time: no memory, no time, no space, no file.
        """
        try:
            result = self._decode(path, name)
        except (DecoderFailed, RecordingMissing):
            raise
        except RecordingError as error:
            result = DecodedRecording(problem=str(error))
        # A reason names the file, which may be called something else next time.
        key = self._key(recording_id, name) if result.problem else self._key(recording_id)
        self._workplace.cache.save("decode", key, result)
        return result

    def _key(self, recording_id: str, *name: str) -> str:
        return stage_key("decode", recording_id, self._limits.maximum_seconds, self._limits.maximum_bytes, *name)

    def _decode(self, path: Path, name: str) -> DecodedRecording:
        artifacts = self._workplace.artifacts
        with artifacts.incoming(WAV_SUFFIX) as wav:
            canonical = store_recording(path, wav, name=name, limits=self._limits)
            speech = find_speech(resample_blocks(read_blocks(wav), CANONICAL_HZ, VOICE_ACTIVITY_HZ))
            return DecodedRecording(
                audio_id=artifacts.adopt(wav, WAV_SUFFIX),
                seconds=canonical.seconds,
                speech=tuple(Span(start_seconds=span.start_seconds, end_seconds=span.end_seconds) for span in speech),
            )
