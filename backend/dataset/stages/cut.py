"""Third stage: a recording becomes clips whose text is what is said in them, measured and brought to one loudness."""

from __future__ import annotations

import io
import wave
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from backend.audio.canonical import CANONICAL_HZ, read_part
from backend.audio.loudness import normalise_loudness, trim_silence
from backend.audio.pcm16 import to_pcm16
from backend.audio.voice_activity import SpeechSpan
from backend.dataset.clips.measures import measure_sound
from backend.dataset.clips.records import CutClip, CutRecording, DecodedRecording, Lost, Span, TextSource
from backend.dataset.segmentation.segment import LeftoverReason, SegmentSettings, segment_speech
from backend.dataset.segmentation.text_at_pauses import lay_text
from backend.dataset.stages.hallucination import doubt_about
from backend.dataset.storage.stage_cache import stage_key
from backend.dataset.storage.workspace import WAV_SUFFIX, DatasetWorkspace
from backend.transcription.transcript import Transcript, Word

# A recording up to this long that came with its text is a clip already: whoever made it cut it.
_READY_CUT_SECONDS = 15.0
_LOST_PROBLEMS = {
    LeftoverReason.TOO_SHORT: "What is said here is too short for a clip, and there is a long pause on both sides.",
    LeftoverReason.TOO_LONG: "Somebody speaks here for longer than a clip may be, without a pause that can be cut in.",
    LeftoverReason.WITHOUT_WORDS: "Somebody speaks here, but no words were understood.",
    LeftoverReason.WORDS_NOT_SPOKEN: "The text that came along has words here that nobody was heard to say.",
}
_NO_SPEECH = "No speech was found in it. If there is some, record it again closer to the microphone."
_NEEDS_WORDS = (
    "It comes with a text, but is longer than a clip, and without a Whisper model nobody knows which words are where. "
    "Name one with --whisper, or cut the recording into sentences."
)


class CutStage:
    """Cuts each recording once for the same words."""

    def __init__(self, workspace: DatasetWorkspace, settings: SegmentSettings | None = None) -> None:
        self._workplace = workspace
        self._settings = settings or SegmentSettings()

    def key(self, decoded: DecodedRecording, heard: Transcript | None, given_text: str | None) -> str:
        """What the result is kept under; `heard` is None where no transcriber listened."""
        return stage_key("cut", decoded, repr(heard), given_text, repr(self._settings))

    def find(self, key: str) -> CutRecording | None:
        """The result of an earlier build, if all its clips are still there."""
        found = self._workplace.cache.load("cut", key, CutRecording)
        is_whole = found is not None and all(self._workplace.wav(clip.clip_id).is_file() for clip in found.clips)
        return found if is_whole else None

    def run(self, decoded: DecodedRecording, heard: Transcript | None, given_text: str | None) -> CutRecording:
        """Cut a decoded recording, with the words that were heard in it and the text that came with it, if any.

        Raises:
            EncoreError: its sound cannot be read, or the disk is full.
        """
        result = self._cut(decoded, heard, given_text)
        self._workplace.cache.save("cut", self.key(decoded, heard, given_text), result)
        return result

    def describe_clip(
        self, audio_id: str, span: Span, heard: Transcript | None, text: str | None, source: TextSource
    ) -> CutClip:
        """Cut, store and measure one clip; `heard` is what was heard in all of the recording."""
        clip_id, seconds, recorded = self._cut_clip(audio_id, span)
        excerpt = None if heard is None else heard.excerpt(span.start_seconds, span.end_seconds)
        return CutClip(
            span=span,
            clip_id=clip_id,
            seconds=seconds,
            sound=measure_sound(recorded, CANONICAL_HZ),
            text=text,
            text_source=source if text else "none",
            language=excerpt.language if excerpt else None,
            heard=excerpt.text if excerpt else None,
            confidence=excerpt.confidence if excerpt else None,
            doubt=doubt_about(excerpt) if excerpt else "",
        )

    def _cut_clip(self, audio_id: str, span: Span) -> tuple[str, float, NDArray[np.float32]]:
        """Cut one clip and store it; its name, its length in seconds, and its sound as it was recorded."""
        recorded, _ = read_part(self._workplace.wav(audio_id), span.start_seconds, span.end_seconds)
        levelled = normalise_loudness(trim_silence(recorded, CANONICAL_HZ), CANONICAL_HZ).samples
        clip_id = self._workplace.artifacts.put(_wav_bytes(levelled), WAV_SUFFIX)
        return clip_id, len(levelled) / CANONICAL_HZ, recorded

    def _cut(self, decoded: DecodedRecording, heard: Transcript | None, given_text: str | None) -> CutRecording:
        if given_text is not None and decoded.seconds <= _READY_CUT_SECONDS:
            whole = Span(start_seconds=0.0, end_seconds=decoded.seconds)
            return CutRecording(clips=(self.describe_clip(decoded.audio_id, whole, heard, given_text, "file"),))
        if not decoded.speech:
            return CutRecording(clips=(), problem=_NO_SPEECH)
        if given_text is None:
            return self._cut_at_pauses(decoded, heard, heard.words if heard else None, "whisper")
        if heard is None:
            return CutRecording(clips=(), problem=_NEEDS_WORDS)
        speech = _speech(decoded)
        return self._cut_at_pauses(decoded, heard, lay_text(given_text, heard.words, speech), "file")

    def _cut_at_pauses(
        self, decoded: DecodedRecording, heard: Transcript | None, words: Sequence[Word] | None, source: TextSource
    ) -> CutRecording:
        found = segment_speech(_speech(decoded), words, decoded.seconds, self._settings)
        clips = [
            self.describe_clip(
                decoded.audio_id,
                Span(start_seconds=segment.start_seconds, end_seconds=segment.end_seconds),
                heard,
                segment.text,
                source,
            )
            for segment in found.segments
        ]
        lost = [
            Lost(
                span=Span(start_seconds=left.start_seconds, end_seconds=left.end_seconds),
                problem=_LOST_PROBLEMS[left.reason],
            )
            for left in found.leftovers
        ]
        return CutRecording(clips=tuple(clips), lost=tuple(lost))


def _speech(decoded: DecodedRecording) -> list[SpeechSpan]:
    return [SpeechSpan(start_seconds=span.start_seconds, end_seconds=span.end_seconds) for span in decoded.speech]


def _wav_bytes(samples: NDArray[np.float32]) -> bytes:
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(CANONICAL_HZ)
        file.writeframes(to_pcm16(samples).astype("<i2", copy=False).tobytes())
    return content.getvalue()
