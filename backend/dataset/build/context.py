"""Everything a worker needs for its part of a build: folders, request, models; and what has been done already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from backend.audio.span import Span
from backend.dataset.build.progress import StageCounts
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.stage_counts import Outcome, Stage
from backend.dataset.clips.stage_results import (
    CutRecording,
    DecodedRecording,
    HeardPiece,
    StageResult,
    TokenizedClip,
)
from backend.dataset.sources.find import SourceRecording
from backend.dataset.stages.cut import cut_key, cut_recording
from backend.dataset.stages.decode import decode_key, decode_recording
from backend.dataset.stages.tokenize import lookup_tokenized, tokenize_key
from backend.dataset.stages.transcribe import cut_into_pieces, transcribe_key, transcribe_piece
from backend.dataset.storage.stored_workspace import StoredBuild, StoredWorkspace, open_workspace
from backend.dataset.storage.workspace import DatasetWorkspace, hash_inputs
from backend.errors import DecoderFailed, RecordingError, RecordingNotFound
from backend.transcription.select_transcriber import PocketsphinxSource, TranscriberSource
from backend.transcription.transcriber import Transcriber
from backend.transcription.transcript import Transcript, assemble_transcript

WEIGHTS_SUFFIX = ".safetensors"
_MAX_TRANSCRIPTS = 4096


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """Pickled to every worker. Looks results up, and computes those that are missing."""

    home: Path
    job: BuildJob
    model_folder: Path
    encoder_identity: str
    transcriber: TranscriberSource | PocketsphinxSource | None
    language_code: str | None
    counts: StageCounts
    kept: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    """By recording, the clips that the user decided something about; another transcript does not cut them elsewhere."""
    stored: StoredBuild | None = None
    """Where the machines of a cluster hand each other what they read and make, if some do not see the home."""
    verifier_id: str = ""
    """Artefact with the speaker verifier's weights, for machines of a cluster, to which only the code is shipped."""

    @property
    def workspace(self) -> DatasetWorkspace:
        """Folders and the cache of results."""
        return open_workspace(self.home, self.stored)

    def model_here(self) -> Path:
        """The folder of the model on this machine. Raises StorageError."""
        workspace = self.workspace
        return workspace.model(self.model_folder) if isinstance(workspace, StoredWorkspace) else self.model_folder

    def verifier_here(self) -> Path | None:
        """The speaker verifier's weights on this machine; None for those that are part of the program."""
        return self.workspace.file(self.verifier_id, WEIGHTS_SUFFIX) if self.verifier_id else None

    def load_transcriber(self) -> Transcriber:
        """Load the transcriber, which there is. Raises EncoreError."""
        source, workspace = self.transcriber, self.workspace
        assert source is not None, "without a transcriber there are no pieces"
        if isinstance(source, TranscriberSource) and isinstance(workspace, StoredWorkspace):
            source = replace(source, path=workspace.transcriber(source.path))
        return source.load(self.job.device)

    def lookup_decoded(self, source: SourceRecording) -> DecodedRecording | None:
        """A decoded recording, or the reason why it cannot be decoded; None if that was not tried."""
        for name in ((), (source.name,)):
            key = decode_key(source.recording_id, self.job.decoding, *name)
            if (found := self.workspace.cache.lookup("decode", key, DecodedRecording)) is not None:
                return found
        return None

    def decode(self, source: SourceRecording) -> tuple[DecodedRecording, Outcome]:
        """Decode a recording. One that cannot be used is a result too, with its reason.

        Raises:
            EncoreError: a reason that may be gone next time: no memory, no time, no space, no file.
        """
        if (found := self.lookup_decoded(source)) is not None:
            return found, "reused"
        try:
            with self.workspace.original(source.recording_id, Path(source.path)) as path:
                result = decode_recording(self.workspace, path, source.name, self.job.decoding)
        except (DecoderFailed, RecordingNotFound):
            raise
        except RecordingError as error:
            result = DecodedRecording(problem=str(error))
        # The reason names the file, which may be called something else next time.
        name = (source.name,) if result.problem else ()
        self.workspace.cache.save("decode", decode_key(source.recording_id, self.job.decoding, *name), result)
        return result, "failed" if result.problem else "worked"

    def pieces(self, decoded: DecodedRecording) -> list[Span]:
        """The stretches of a recording to transcribe; none without a transcriber."""
        if self.transcriber is None or decoded.problem:
            return []
        return cut_into_pieces(decoded.speech, self.transcriber.piece_seconds)

    def transcribe(self, audio_id: str, span: Span, load: Callable[[], Transcriber]) -> tuple[HeardPiece, Outcome]:
        """Transcribe a piece; `load` is called only if it was not transcribed before. Raises EncoreError."""
        return self.workspace.cache.get_or_run(
            "transcribe",
            self._transcribe_key(audio_id, span),
            HeardPiece,
            lambda: transcribe_piece(self.workspace, audio_id, span, load(), self.language_code),
        )

    def lookup_transcript(self, decoded: DecodedRecording) -> Transcript | None:
        """The transcript of a whole recording; None without a transcriber, or while a piece is missing."""
        if self.transcriber is None:
            return None
        try:
            return _assembled(self.workspace, self._piece_keys(decoded), self.transcriber.name)
        except LookupError:
            return None

    def is_transcribed(self, decoded: DecodedRecording) -> bool:
        """Whether nothing of a recording is left to transcribe."""
        return self.transcriber is None or self.lookup_transcript(decoded) is not None

    def lookup_to_cut(self, source: SourceRecording) -> DecodedRecording | None:
        """A recording that can be cut: decoded, and transcribed if there is a transcriber. None for others."""
        decoded = self.lookup_decoded(source)
        return decoded if decoded is not None and not decoded.problem and self.is_transcribed(decoded) else None

    def lookup_cut(self, source: SourceRecording) -> CutRecording | None:
        """The clips of a recording, if it was cut."""
        decoded = self.lookup_to_cut(source)
        if decoded is None:
            return None
        found = self.workspace.cache.lookup("cut", self._cut_key(source, decoded), CutRecording)
        kept = () if found is None else self._kept_elsewhere(source, found)
        return self.workspace.cache.lookup("cut", self._cut_key(source, decoded, kept), CutRecording) if kept else found

    def cut(self, source: SourceRecording, decoded: DecodedRecording) -> tuple[CutRecording, Outcome]:
        """Cut a recording whose pieces have been transcribed. Raises EncoreError."""

        def cut_with(kept: tuple[Span, ...] = ()) -> tuple[CutRecording, Outcome]:
            return self.workspace.cache.get_or_run(
                "cut",
                self._cut_key(source, decoded, kept),
                CutRecording,
                lambda: cut_recording(
                    self.workspace, decoded, self.lookup_transcript(decoded), source.given_text, kept
                ),
            )

        found, outcome = cut_with()
        kept = self._kept_elsewhere(source, found)
        return cut_with(kept) if kept else (found, outcome)

    def lookup_tokenized(self, clip_id: str) -> TokenizedClip | None:
        """Codes of a clip, if it was tokenized."""
        return lookup_tokenized(self.workspace, clip_id, self.encoder_identity)

    def finished(self, source: SourceRecording) -> Iterator[tuple[Stage, str, StageResult]]:
        """What has been done for a recording: each result with its stage and key, those before which others need."""
        cache, decoded = self.workspace.cache, self.lookup_decoded(source)
        if decoded is None or decoded.problem:
            return
        yield "decode", decode_key(source.recording_id, self.job.decoding), decoded
        for key in self._piece_keys(decoded):
            if (piece := cache.lookup("transcribe", key, HeardPiece)) is not None:
                yield "transcribe", key, piece
        key = self._cut_key(source, decoded)
        cut = cache.lookup("cut", key, CutRecording)
        if cut is not None and (kept := self._kept_elsewhere(source, cut)):
            yield "cut", key, cut
            key = self._cut_key(source, decoded, kept)
            cut = cache.lookup("cut", key, CutRecording)
        if cut is None:
            return
        yield "cut", key, cut
        for clip in cut.clips:
            if (tokenized := self.lookup_tokenized(clip.clip_id)) is not None:
                yield "tokenize", tokenize_key(clip.clip_id, self.encoder_identity), tokenized

    def _transcribe_key(self, audio_id: str, span: Span) -> str:
        assert self.transcriber is not None, "without a transcriber there are no pieces"
        return transcribe_key(audio_id, span, self.transcriber.identity, self.language_code)

    def _piece_keys(self, decoded: DecodedRecording) -> tuple[str, ...]:
        return tuple(self._transcribe_key(decoded.audio_id, span) for span in self.pieces(decoded))

    def _cut_key(self, source: SourceRecording, decoded: DecodedRecording, kept: tuple[Span, ...] = ()) -> str:
        transcript_key = None if self.transcriber is None else hash_inputs(*self._piece_keys(decoded))
        return cut_key(decoded, transcript_key, source.given_text, kept)

    def _kept_elsewhere(self, source: SourceRecording, found: CutRecording) -> tuple[Span, ...]:
        """The clips to keep, if they would be cut otherwise now."""
        kept, spans = self.kept.get(source.recording_id, ()), {clip.span for clip in found.clips}
        return () if spans.issuperset(kept) else kept


@lru_cache(maxsize=_MAX_TRANSCRIPTS)
def _assembled(workspace: DatasetWorkspace, piece_keys: Sequence[str], transcriber: str) -> Transcript:
    """The transcript made of the pieces under these keys, assembled once per process.

    Raises LookupError, which is not cached, if one of them is not there yet.
    """
    cache, transcripts = workspace.cache, []
    for key in piece_keys:
        piece = cache.lookup("transcribe", key, HeardPiece)
        if piece is None:
            raise LookupError(key)
        transcripts.append(piece.transcript)
    return assemble_transcript(
        [word for heard in transcripts for word in heard.words],
        [passage for heard in transcripts for passage in heard.passages],
        next((heard.language for heard in transcripts if heard.language), ""),
        transcriber=transcriber,
    )
