"""What every worker of a build is told: where things are, what was asked for, and which models listen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backend.audio.voice_activity import SpeechSpan
from backend.dataset.clips.job import BuildJob
from backend.dataset.clips.records import CutRecording, DecodedRecording, Span, TokenizedClip
from backend.dataset.stages.cut import CutStage
from backend.dataset.stages.decode import DecodeStage
from backend.dataset.stages.tokenize import TokenizeStage
from backend.dataset.stages.transcribe import TranscribeStage
from backend.dataset.storage.workspace import DatasetWorkspace
from backend.transcription.recordings import cut_into_pieces
from backend.transcription.select import TranscriberSource
from backend.transcription.transcript import Transcript, assemble_transcript

if TYPE_CHECKING:
    # Ray takes a second to load, and whoever only looks at datasets has no use for it.
    from backend.dataset.build.shared_progress import Counts


@dataclass(frozen=True, kw_only=True)
class SourceRecording:
    """A recording to work on.

    Attributes:
        recording_id: hash of the file's content.
        name: what it is called in sentences.
        given_text: the text that came with it, if any.
    """

    recording_id: str
    path: str
    name: str
    given_text: str | None


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """Travels to every worker; what has been done is looked up here, by workers and by the build itself."""

    home: Path
    job: BuildJob
    model_folder: Path
    encoder_identity: str
    transcriber: TranscriberSource | None
    language_code: str | None
    counts: Counts

    @property
    def workspace(self) -> DatasetWorkspace:
        """Folders."""
        return DatasetWorkspace(self.home)

    @property
    def decode_stage(self) -> DecodeStage:
        """First stage."""
        return DecodeStage(self.workspace, self.job)

    @property
    def transcribe_stage(self) -> TranscribeStage | None:
        """Second stage; None where nobody transcribes."""
        if self.transcriber is None:
            return None
        return TranscribeStage(self.workspace, self.transcriber.identity, self.language_code)

    @property
    def cut_stage(self) -> CutStage:
        """Third stage."""
        return CutStage(self.workspace)

    @property
    def tokenize_stage(self) -> TokenizeStage:
        """Last stage."""
        return TokenizeStage(self.workspace, self.encoder_identity)

    def pieces(self, decoded: DecodedRecording) -> list[Span]:
        """The stretches of a recording that a transcriber is to hear; none where nobody transcribes."""
        if self.transcriber is None or decoded.problem:
            return []
        speech = [SpeechSpan(start_seconds=span.start_seconds, end_seconds=span.end_seconds) for span in decoded.speech]
        pieces = cut_into_pieces(speech, self.transcriber.piece_seconds)
        return [Span(start_seconds=start, end_seconds=end) for start, end in pieces]

    def heard(self, decoded: DecodedRecording) -> Transcript | None:
        """What was heard in all of a recording; None where nobody transcribes, or where a piece is not done."""
        stage = self.transcribe_stage
        if stage is None:
            return None
        found = [stage.find(decoded.audio_id, span) for span in self.pieces(decoded)]
        transcripts = [piece.transcript for piece in found if piece is not None]
        if len(transcripts) < len(found):
            return None
        return assemble_transcript(
            [word for heard in transcripts for word in heard.words],
            [passage for heard in transcripts for passage in heard.passages],
            next((heard.language for heard in transcripts if heard.language), ""),
        )

    def is_heard(self, decoded: DecodedRecording) -> bool:
        """Whether nothing of a recording is left to transcribe."""
        return self.transcriber is None or self.heard(decoded) is not None

    def cut(self, recording: SourceRecording) -> CutRecording | None:
        """The clips of a recording, if it was cut."""
        decoded = self.decode_stage.find(recording.recording_id, recording.name)
        if decoded is None or decoded.problem or not self.is_heard(decoded):
            return None
        return self.cut_stage.find(self.cut_stage.key(decoded, self.heard(decoded), recording.given_text))

    def tokenized(self, clip_id: str) -> TokenizedClip | None:
        """Codes of a clip, if it was tokenized."""
        return self.tokenize_stage.find(clip_id)
