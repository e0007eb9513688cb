"""Second stage: what a transcriber hears in each piece of a recording, with the time of each word."""

from __future__ import annotations

from dataclasses import replace

from backend.audio.canonical import read_part, resample
from backend.dataset.clips.records import HeardPiece, Span
from backend.dataset.storage.stage_cache import stage_key
from backend.dataset.storage.workspace import DatasetWorkspace
from backend.transcription.transcriber import TRANSCRIBER_HZ, Transcriber


class TranscribeStage:
    """Looks results up for one transcriber; making new ones needs the transcriber itself."""

    def __init__(self, workspace: DatasetWorkspace, transcriber_identity: str, language: str | None) -> None:
        self._workplace = workspace
        self._identity = transcriber_identity
        self._language = language

    def find(self, audio_id: str, span: Span) -> HeardPiece | None:
        """The result of an earlier build."""
        return self._workplace.cache.load("transcribe", self._key(audio_id, span), HeardPiece)

    def run(self, audio_id: str, span: Span, transcriber: Transcriber) -> HeardPiece:
        """Listen to a piece of a canonical recording. Raises EncoreError when it cannot be read or kept."""
        result = listen(self._workplace, audio_id, span, transcriber, self._language)
        self._workplace.cache.save("transcribe", self._key(audio_id, span), result)
        return result

    def _key(self, audio_id: str, span: Span) -> str:
        return stage_key("transcribe", audio_id, span, self._identity, self._language)


def listen(
    workspace: DatasetWorkspace, audio_id: str, span: Span, transcriber: Transcriber, language: str | None
) -> HeardPiece:
    """What is said in a stretch of stored sound, times counted from the start of that sound."""
    samples, rate = read_part(workspace.wav(audio_id), span.start_seconds, span.end_seconds)
    heard = transcriber.transcribe(resample(samples, rate, TRANSCRIBER_HZ), language)
    words = tuple(word.shifted(span.start_seconds) for word in heard.words)
    passages = tuple(passage.shifted(span.start_seconds) for passage in heard.passages)
    return HeardPiece(span=span, transcript=replace(heard, words=words, passages=passages))
