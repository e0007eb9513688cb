"""Second stage: the speech of a recording is transcribed piece by piece, with the time of each word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from backend.audio.canonical import read_part
from backend.audio.resample import resample
from backend.audio.span import Span
from backend.dataset.clips.stage_results import HeardPiece
from backend.dataset.storage.workspace import DatasetWorkspace, stage_key
from backend.transcription.transcriber import TRANSCRIBER_HZ, Transcriber

# Sound around the speech that is transcribed along with it; without any, first and last words get lost.
_MARGIN_SECONDS = 0.3


def transcribe_key(audio_id: str, span: Span, transcriber_identity: str, language: str | None) -> str:
    """The key of a transcribed piece."""
    return stage_key("transcribe", audio_id, span, transcriber_identity, language)


def transcribe_piece(
    workspace: DatasetWorkspace, audio_id: str, span: Span, transcriber: Transcriber, language: str | None
) -> HeardPiece:
    """Transcribe a stretch of stored sound, with times counted from the start of that sound.

    Raises EncoreError if the sound cannot be read.
    """
    samples, rate = read_part(workspace.wav(audio_id), span.start_seconds, span.end_seconds)
    heard = transcriber.transcribe(resample(samples, rate, TRANSCRIBER_HZ), language)
    words = tuple(word.shifted(span.start_seconds) for word in heard.words)
    passages = tuple(passage.shifted(span.start_seconds) for passage in heard.passages)
    return HeardPiece(span=span, transcript=replace(heard, words=words, passages=passages))


def cut_into_pieces(speech: Sequence[Span], piece_seconds: float) -> list[Span]:
    """Join neighbouring spans of speech into pieces of up to `piece_seconds`.

    A margin around each piece ends half way to the next span. A single span that is longer stays whole: the
    transcriber cuts it where it is quietest.
    """
    groups: list[list[Span]] = []
    for span in speech:
        if groups and span.end_seconds - groups[-1][0].start_seconds + 2 * _MARGIN_SECONDS <= piece_seconds:
            groups[-1].append(span)
        else:
            groups.append([span])
    pieces: list[Span] = []
    for index, group in enumerate(groups):
        earliest = (groups[index - 1][-1].end_seconds + group[0].start_seconds) / 2 if index else 0.0
        is_last = index == len(groups) - 1
        latest = None if is_last else (group[-1].end_seconds + groups[index + 1][0].start_seconds) / 2
        end_seconds = group[-1].end_seconds + _MARGIN_SECONDS
        pieces.append(
            Span(
                start_seconds=max(earliest, group[0].start_seconds - _MARGIN_SECONDS),
                end_seconds=end_seconds if latest is None else min(latest, end_seconds),
            )
        )
    return pieces
