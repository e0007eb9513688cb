"""Third stage: a recording becomes clips whose text is what is said in them, measured and brought to one loudness."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from backend.audio.canonical import CANONICAL_HZ, read_part
from backend.audio.loudness import normalise_loudness, trim_silence
from backend.audio.pcm16 import wav_bytes
from backend.audio.span import Span
from backend.dataset.clips.measures import measure_sound
from backend.dataset.clips.stage_results import WAV_SUFFIX, CutClip, CutRecording, DecodedRecording, Lost, TextSource
from backend.dataset.segmentation.segment import DEFAULT_SETTINGS, LeftoverReason, SegmentSettings, segment_speech
from backend.dataset.segmentation.text_at_pauses import lay_text
from backend.dataset.storage.workspace import DatasetWorkspace, stage_key
from backend.transcription.hallucination import HallucinationSign, find_hallucination_signs
from backend.transcription.pocketsphinx_transcriber import POCKETSPHINX
from backend.transcription.transcript import Transcript, Word, join_words

Stretch = TypeVar("Stretch", bound=Span)

# A recording of up to this length that came with its text is a clip already, cut by its author.
_READY_CUT_SECONDS = 15.0
# More of a probability says nothing.
_DIGITS = 3
_LOST_PROBLEMS = {
    LeftoverReason.TOO_SHORT: "The speech here is too short for a clip, with a long pause on both sides.",
    LeftoverReason.TOO_LONG: "The speech here is longer than a clip may be, and has no pause to cut at. "
    "Cut the recording into sentences, or speak with pauses.",
    LeftoverReason.WITHOUT_WORDS: "There is speech here, but no words were recognised.",
    LeftoverReason.WORDS_NOT_SPOKEN: "The text that came with the recording has words here that are not spoken.",
}
_NO_SPEECH = "No speech was found in it. If there is speech in it, record it again closer to the microphone."
_NEEDS_WORDS = (
    "It comes with a text but is longer than a clip, and nothing here can listen to tell which words are where. "
    "Download a Whisper model behind the model button, name one with --whisper, or cut the recording into sentences."
)
_SIGNS = {
    HallucinationSign.NO_SPEECH: "The transcriber detected no speech here, so the text may be made up. "
    "Listen, and type what is said.",
    HallucinationSign.REPETITION: "The transcript repeats itself and is probably made up. "
    "Listen, and type what is said.",
    HallucinationSign.GUESS: "The transcriber was guessing here. Listen, and type what is said.",
}


def cut_key(
    decoded: DecodedRecording,
    transcript_key: str | None,
    given_text: str | None,
    kept: Sequence[Span] = (),
    settings: SegmentSettings = DEFAULT_SETTINGS,
) -> str:
    """The key of a cut recording; `transcript_key` stands for its transcript and is None if there is none."""
    return stage_key("cut", decoded, transcript_key, given_text, *kept, repr(settings))


def cut_recording(
    workspace: DatasetWorkspace,
    decoded: DecodedRecording,
    heard: Transcript | None,
    given_text: str | None,
    kept: Sequence[Span] = (),
    settings: SegmentSettings = DEFAULT_SETTINGS,
) -> CutRecording:
    """Cut a decoded recording, with its transcript and the text that came with it, if any.

    Clips in `kept`, which are in order, stay where they are, and the rest is cut around them. A recording that comes
    with its text and is no longer than a clip is one clip in any case.

    Raises EncoreError if its sound cannot be read or the disk is full.
    """

    def cut_at_pauses(words: Sequence[Word] | None, source: TextSource) -> CutRecording:
        texts = {span: None if words is None else join_words(_within(words, span)) for span in kept}
        lost: list[Lost] = []
        for gap in _gaps(kept, decoded.seconds):
            begin = gap.start_seconds
            free = None if words is None else [word.shifted(-begin) for word in _within(words, gap)]
            speech = [span.shifted(-begin) for span in _within(decoded.speech, gap)]
            found = segment_speech(speech, free, gap.seconds, settings)
            texts |= {_bare(segment).shifted(begin): segment.text for segment in found.segments}
            lost += [
                Lost(span=_bare(left).shifted(begin), problem=_LOST_PROBLEMS[left.reason]) for left in found.leftovers
            ]
        return CutRecording(
            clips=tuple(
                describe_clip(workspace, decoded.audio_id, span, heard, texts[span], source)
                for span in sorted(texts, key=lambda span: span.start_seconds)
            ),
            lost=tuple(lost),
        )

    if given_text is not None and decoded.seconds <= _READY_CUT_SECONDS:
        whole = Span(start_seconds=0.0, end_seconds=decoded.seconds)
        return CutRecording(clips=(describe_clip(workspace, decoded.audio_id, whole, heard, given_text, "file"),))
    if not decoded.speech:
        return CutRecording(clips=(), problem=_NO_SPEECH)
    if given_text is None:
        return cut_at_pauses(heard.words if heard else None, "whisper")
    if heard is None:
        return CutRecording(clips=(), problem=_NEEDS_WORDS)
    return cut_at_pauses(lay_text(given_text, heard.words, decoded.speech), "file")


def describe_clip(
    workspace: DatasetWorkspace,
    audio_id: str,
    span: Span,
    heard: Transcript | None,
    text: str | None,
    source: TextSource,
) -> CutClip:
    """Cut, store and measure one clip; `heard` is the transcript of the whole recording."""
    recorded, _ = read_part(workspace.wav(audio_id), span.start_seconds, span.end_seconds)
    levelled = normalise_loudness(trim_silence(recorded, CANONICAL_HZ), CANONICAL_HZ).samples
    excerpt = None if heard is None else heard.excerpt(span)
    return CutClip(
        span=span,
        clip_id=workspace.artifacts.put(wav_bytes(levelled, CANONICAL_HZ), WAV_SUFFIX),
        seconds=len(levelled) / CANONICAL_HZ,
        sound=measure_sound(recorded, CANONICAL_HZ),
        text=text,
        text_source=source if text else "none",
        language=excerpt.language if excerpt else None,
        heard=excerpt.text if excerpt else None,
        heard_words=tuple((word.text, round(word.probability, _DIGITS)) for word in excerpt.words) if excerpt else (),
        transcriber=excerpt.transcriber if excerpt else "",
        # What pocketsphinx says of its own words is no measure of them: right ones often get 0.1 to 0.5.
        confidence=excerpt.confidence if excerpt and excerpt.transcriber != POCKETSPHINX else None,
        doubt=next((_SIGNS[sign] for sign in find_hallucination_signs(excerpt)), "") if excerpt else "",
    )


def _gaps(kept: Sequence[Span], seconds: float) -> list[Span]:
    """What is left of a recording around the clips that stay: all of it where none does."""
    edges = [0.0, *(edge for span in kept for edge in (span.start_seconds, span.end_seconds)), seconds]
    return [
        Span(start_seconds=begin, end_seconds=end)
        for begin, end in zip(edges[::2], edges[1::2], strict=True)
        if begin < end
    ]


def _within(stretches: Iterable[Stretch], span: Span) -> list[Stretch]:
    return [each for each in stretches if span.start_seconds <= each.middle_seconds < span.end_seconds]


def _bare(stretch: Span) -> Span:
    return Span(start_seconds=stretch.start_seconds, end_seconds=stretch.end_seconds)
