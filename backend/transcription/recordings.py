"""Transcribing recordings of any length: only what is speech is listened to, a piece at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from backend.audio.canonical import CANONICAL_HZ, read_blocks, read_part, resample, resample_blocks
from backend.audio.voice_activity import SpeechSpan, VoiceActivitySettings, find_speech
from backend.transcription.transcriber import TRANSCRIBER_HZ, Transcriber
from backend.transcription.transcript import Passage, Transcript, Word, assemble_transcript

# What the listener hears before and after the speech; without any it loses first and last words.
_MARGIN_SECONDS = 0.3
# A language is told from a few words, not from a cough.
_TELLING_SECONDS = 3.0


def find_speech_in(wav_path: Path, settings: VoiceActivitySettings | None = None) -> list[SpeechSpan]:
    """Find the stretches of speech in a canonical WAV file of any length, with bounded memory."""
    return find_speech(resample_blocks(read_blocks(wav_path), CANONICAL_HZ, TRANSCRIBER_HZ), settings)


def transcribe_recording(
    wav_path: Path,
    speech: Sequence[SpeechSpan],
    transcriber: Transcriber,
    language: str | None = None,
    *,
    progress: Callable[[float], None] | None = None,
) -> Transcript:
    """Write down a canonical WAV file, listening to its stretches of speech only.

    Args:
        wav_path: the recording.
        speech: from `find_speech_in`; silence between is skipped, because listeners hear words in it.
        transcriber: who listens.
        language: two-letter code; if None the first piece of some seconds decides for all.
        progress: told after each piece how many seconds of the recording are done.
    """
    words: list[Word] = []
    passages: list[Passage] = []
    heard_language = ""
    for start_seconds, end_seconds in cut_into_pieces(speech, transcriber.piece_seconds):
        samples, rate = read_part(wav_path, start_seconds, end_seconds)
        heard = transcriber.transcribe(resample(samples, rate, TRANSCRIBER_HZ), language)
        words += [word.shifted(start_seconds) for word in heard.words]
        passages += [passage.shifted(start_seconds) for passage in heard.passages]
        heard_language = heard_language or heard.language
        if language is None and heard.words and end_seconds - start_seconds >= _TELLING_SECONDS:
            language = heard.language
        if progress is not None:
            progress(end_seconds)
    return assemble_transcript(words, passages, language or heard_language)


def cut_into_pieces(speech: Sequence[SpeechSpan], piece_seconds: float) -> list[tuple[float, float]]:
    """Join neighbouring spans into pieces up to `piece_seconds` with a margin that stops half way to the next span.

    A single span that is longer stays whole: transcribers cut it where it is quietest.
    """
    groups: list[list[SpeechSpan]] = []
    for span in speech:
        if groups and span.end_seconds - groups[-1][0].start_seconds + 2 * _MARGIN_SECONDS <= piece_seconds:
            groups[-1].append(span)
        else:
            groups.append([span])
    pieces = []
    for index, group in enumerate(groups):
        earliest = (groups[index - 1][-1].end_seconds + group[0].start_seconds) / 2 if index else 0.0
        is_last = index == len(groups) - 1
        latest = None if is_last else (group[-1].end_seconds + groups[index + 1][0].start_seconds) / 2
        end_seconds = group[-1].end_seconds + _MARGIN_SECONDS
        pieces.append(
            (
                max(earliest, group[0].start_seconds - _MARGIN_SECONDS),
                end_seconds if latest is None else min(latest, end_seconds),
            )
        )
    return pieces
