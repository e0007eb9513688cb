"""The clips of a dataset as rows: heard, read, judged and cut where they stand. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from backend.dataset.clips.gates import GateResult, Verdict
from backend.dataset.clips.views import ClipDetails, ClipRow, DatasetView
from backend.transcription.text_difference import ChangeKind, compare_texts
from training.style_name import MAX_STYLE_LENGTH
from ui.html.messages import note
from ui.html.templates import render
from ui.html.waveform import waveform_svg
from ui.words.sentences import translated
from ui.words.words import say

PAGE_CLIPS = 10
CONTEXT_SECONDS = 1.0
"""Of the recording on both sides of a clip: as far as a cut can be moved at once."""

VERDICT_WORDS = {
    Verdict.ACCEPTED: "data.good_one",
    Verdict.WARNED: "data.doubtful_one",
    Verdict.NEEDS_TEXT: "data.needs_text_one",
    Verdict.REJECTED: "data.left_out_one",
}

TONES = {
    Verdict.ACCEPTED: "good",
    Verdict.WARNED: "mixed",
    Verdict.NEEDS_TEXT: "mixed",
    Verdict.REJECTED: "bad",
}

ORIGINS = {"whisper": "data.by_ear", "file": "data.by_file", "person": "data.by_you"}

SORTS = {
    "order": "data.sort_order",
    "worst": "data.sort_worst",
    "longest": "data.sort_longest",
    "shortest": "data.sort_shortest",
    "noise": "data.sort_noise",
    "speaker": "data.sort_speaker",
}

FILTERS = {
    "all": "data.all",
    "accepted": "data.good",
    "warned": "data.doubtful",
    "needs your text": "data.needs_text",
    "rejected": "data.left_out",
    "edited": "data.edited",
}

OF_STYLE = "style:"
"""Before a style, the filter that clips of it pass; alone, that of clips without one."""

REASONS = {
    ("length", "low"): "data.why_short",
    ("length", "high"): "data.why_long",
    ("level", "low"): "data.why_quiet",
    ("clipping", "high"): "data.why_clipped",
    ("noise", "low"): "data.why_noise",
    ("silence", "high"): "data.why_silence",
    ("bandwidth", "low"): "data.why_muffled",
    ("duplicate audio", "high"): "data.why_same_sound",
    ("duplicate text", "high"): "data.why_same_text",
    ("text", "low"): "data.why_no_text",
    ("speaking rate", "low"): "data.why_slow",
    ("speaking rate", "high"): "data.why_fast",
    ("confidence", "low"): "data.why_unsure",
    ("disagreement", "high"): "data.why_differs",
    ("speaker", "high"): "data.why_speaker",
}
"""Why a clip is doubted, in six words, by gate and by the side of its limit on which the clip is."""


@dataclass(frozen=True, kw_only=True)
class HeardClip:
    """What a clip needs to be seen and heard.

    Attributes:
        path: its WAV as the page may fetch it.
        envelope: its peaks.
        before: the same of the recording right before it; empty where there is none.
        after: and right after it.
        context: seconds of the recording where `before` begins and `after` ends.
    """

    path: Path
    envelope: tuple[float, ...]
    before: tuple[float, ...] = ()
    after: tuple[float, ...] = ()
    context: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is said in a row about what was just done there."""

    tone: str
    words: str

    @property
    def role(self) -> str:
        """How a screen reader takes it."""
        return "alert" if self.tone == "bad" else "status"


def clips_in_words(number: int) -> str:
    """`1 clip`, `2 clips`."""
    return say("data.one_clip") if number == 1 else say("data.num_clips", number=number)


def numbers_of(view: DatasetView) -> dict[str, int]:
    """What clips are called on the page, by their keys."""
    return {clip.key: number for number, clip in enumerate(view.clips, 1)}


def filter_choices(view: DatasetView) -> list[tuple[str, str]]:
    """The filters with how many clips pass each; those that none passes are left out, but for the first two."""
    counted = {key: sum(passes(clip, key) for clip in view.clips) for key in FILTERS}
    choices = [
        (f"{say(words)} {counted[key]}", key)
        for key, words in FILTERS.items()
        if counted[key] or key in ("all", "accepted", "warned", "rejected")
    ]
    if any(styles := view.styles):
        choices += [
            (say("data.of_style" if style else "data.without_style", style=style, number=number), f"{OF_STYLE}{style}")
            for style, number in styles.items()
        ]
    return choices


def sort_choices() -> list[tuple[str, str]]:
    """The orders there are."""
    return [(say(words), key) for key, words in SORTS.items()]


def select_clips(view: DatasetView, wanted: str, sort: str) -> list[ClipRow]:
    """The clips that pass a filter, in an order."""
    clips = [clip for clip in view.clips if passes(clip, wanted)]
    match sort:
        case "worst":
            clips.sort(key=lambda clip: (-clip.verdict.severity, -len(clip.reasons)))
        case "longest":
            clips.sort(key=lambda clip: -clip.seconds)
        case "shortest":
            clips.sort(key=lambda clip: clip.seconds)
        case "noise":
            clips.sort(key=lambda clip: clip.details.current.sound.speech_over_noise_db)
        case "speaker":
            clips.sort(key=lambda clip: -(clip.details.distance or 0.0))
    return clips


def passes(clip: ClipRow, wanted: str) -> bool:
    """Whether a clip passes a filter."""
    if wanted == "edited":
        details = clip.details
        is_judged = details.person_verdict is not None or details.style != details.given_style
        return is_judged or details.text_source == "person" or _has_own_cut(details)
    if wanted.startswith(OF_STYLE):
        return clip.style == wanted.removeprefix(OF_STYLE)
    return wanted == "all" or clip.verdict.value == wanted


def clip_list(
    clips: Sequence[ClipRow],
    view: DatasetView,
    heard: Mapping[str, HeardClip],
    *,
    anew: Mapping[str, str] | None = None,
    answers: Mapping[str, Answer] | None = None,
) -> Markup:
    """One row for each clip, which `clip_rows.js` makes work.

    Args:
        clips: those of one page.
        view: their dataset.
        heard: what is seen and played of them, by key.
        anew: what was heard in them since they were made, by key.
        answers: what is said about what was just done, by key.
    """
    if not clips:
        return note(say("data.none_pass"))
    numbers = numbers_of(view)
    rows = [
        {
            **_facts(clip, numbers[clip.key], heard.get(clip.key)),
            "heard": _differences(clip, (anew or {}).get(clip.key)),
            "said": (answers or {}).get(clip.key),
        }
        for clip in clips
    ]
    return render(
        "dataset",
        "clip_list",
        rows=rows,
        label=say("data.clips"),
        keys=say("data.keys"),
        styles=[style for style in view.styles if style],
        max_style=MAX_STYLE_LENGTH,
        say=say,
    )


def pages_html(number: int, total: int, num_clips: int) -> Markup:
    """Where in the list one is, and the way on."""
    if total == 1:
        return note(clips_in_words(num_clips))
    count = say("data.page", page=number, pages=total, clips=clips_in_words(num_clips))
    return render(
        "dataset",
        "pages",
        number=number,
        total=total,
        count=count,
        before=say("data.page_before"),
        after=say("data.page_after"),
    )


def _facts(clip: ClipRow, number: int, heard: HeardClip | None) -> dict[str, object]:
    """Of a clip, what the template shows."""
    details, person = clip.details, clip.details.person_verdict
    marks = {"data.is_reference": clip.is_reference, "data.is_held_out": clip.held_out}
    verdict, title = say(VERDICT_WORDS[clip.verdict]), say("data.clip", number=number)
    sound = details.current.sound
    levels = {"level": f"{sound.speech_dbfs:.0f}", "noise": f"{sound.speech_over_noise_db:.0f}"}
    engineering = say("data.over_noise", **levels)
    return {
        "clip": clip,
        "number": number,
        "title": title,
        "label": f"{title}: {verdict}",
        "text_label": say("data.text_of", number=number),
        "style_label": say("data.style_of", number=number),
        "file": Path(details.recording_name).name,
        "origin": _origin(details) if clip.text else "",
        "tone": TONES[clip.verdict],
        "verdict": say("data.said_by_you", verdict=verdict) if person is not None else verdict,
        "person": person.value if person is not None else "",
        "why": _why(clip),
        "marks": [say(words) for words, is_marked in marks.items() if is_marked],
        "engineering": engineering + (f", {details.distance:.2f}" if details.distance is not None else ""),
        "has_own_text": details.text_source == "person",
        "has_own_cut": _has_own_cut(details),
        "sound": _drawn(clip, number, heard) if heard is not None else None,
    }


def _drawn(clip: ClipRow, number: int, heard: HeardClip) -> dict[str, object]:
    """A clip within its surroundings, as shares of what is drawn."""
    span = clip.details.current.span
    first, last = heard.context or (span.start_seconds, span.end_seconds)
    seconds = max(last - first, 0.01)
    # What was drawn belongs to the ear: screen readers have the button and the two handles.
    return {
        "path": heard.path,
        "before": waveform_svg(heard.before, "") if heard.before else "",
        "inside": waveform_svg(heard.envelope, say("data.waveform", number=number), heard.path),
        "after": waveform_svg(heard.after, "") if heard.after else "",
        "first_percent": round(100 * (span.start_seconds - first) / seconds, 2),
        "last_percent": round(100 * (span.end_seconds - first) / seconds, 2),
        "from_seconds": round(first, 3),
        "to_seconds": round(last, 3),
        "start_seconds": round(span.start_seconds, 3),
        "end_seconds": round(span.end_seconds, 3),
    }


def _has_own_cut(details: ClipDetails) -> bool:
    return details.current.span != details.original.span


def _why(clip: ClipRow) -> str:
    """The worst of what is wrong with it, in six words; empty where nothing is."""
    found = sorted(clip.details.gates, key=lambda result: -result.verdict.severity)
    worst = next((result for result in found if result.sentence), None)
    if worst is None:
        return ""
    key = REASONS.get((worst.gate, _side(worst)))
    return say(key) if key else translated(worst.sentence)


def _side(result: GateResult) -> str:
    return "low" if result.value < result.limit else "high"


def _origin(details: ClipDetails) -> str:
    """Where a text comes from, and who listened."""
    key = ORIGINS.get(details.text_source)
    return say(key, listener=details.current.transcriber or "Whisper") if key else ""


def _differences(clip: ClipRow, anew: str | None) -> dict[str, object] | None:
    """What was heard where it is not what the text says, with tag and words of each stretch."""
    heard = (_doubted(clip) if anew is None else anew).strip()
    if not heard:
        return None
    if not clip.text:
        return {"text": heard, "parts": [("ins", heard)]}
    changes = compare_texts(clip.text, heard, clip.details.current.language or "en").changes
    if all(piece.kind is ChangeKind.EQUAL for piece in changes):
        return None
    parts: list[tuple[str, str]] = []
    for piece in changes:
        if piece.kind is ChangeKind.EQUAL:
            parts.append(("", piece.expected))
        else:
            parts += [(tag, words) for tag, words in (("del", piece.expected), ("ins", piece.heard)) if words]
    return {"text": heard, "parts": parts}


def _doubted(clip: ClipRow) -> str:
    """What was heard, where that speaks against the text or there is none: who is not trusted says nothing."""
    gates = {result.gate for result in clip.details.gates if result.sentence}
    return (clip.details.current.heard or "") if not clip.text or "disagreement" in gates else ""
