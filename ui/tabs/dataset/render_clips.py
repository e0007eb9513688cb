"""What the table of clips and the work on one of them say. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.views import ClipRow, DatasetView, TranscriptChange
from ui.html.base import file_url, says
from ui.html.waveform import waveform_svg
from ui.tabs.dataset.render import VERDICT_WORDS, count_of

TONES = {Verdict.ACCEPTED: "good", Verdict.WARNED: "mixed", Verdict.REJECTED: "bad"}

ORIGINS = {"whisper": "by Whisper", "file": "from a file", "person": "by you", "none": "missing"}

SORTS = {
    "order": "as recorded",
    "worst": "most doubtful first",
    "longest": "longest first",
    "shortest": "shortest first",
    "noise": "noisiest first",
    "speaker": "unlike the speaker first",
}

FILTERS = {
    "all": "All",
    "accepted": "Accepted",
    "warned": "Doubtful",
    "rejected": "Rejected",
    "edited": "Changed by you",
}

PAGE_CLIPS = 10
MAX_CHANGES = 30
"""Shown at a time: comparing two texts word by word takes some milliseconds, and nobody reads thousands."""


@dataclass(frozen=True, kw_only=True)
class HeardClip:
    """What a clip needs to be seen and heard: its WAV as the page may fetch it, and its peaks."""

    path: Path
    envelope: tuple[float, ...]


def select_clips(view: DatasetView, wanted: str, sort: str) -> list[ClipRow]:
    """The clips that pass a filter, in an order."""
    clips = [clip for clip in view.clips if _passes(clip, wanted)]
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


def _passes(clip: ClipRow, wanted: str) -> bool:
    if wanted == "edited":
        details = clip.details
        return (
            details.person_verdict is not None
            or details.text_source == "person"
            or details.current.span != details.original.span
        )
    return wanted == "all" or clip.verdict.value == wanted


def clips_table(clips: Sequence[ClipRow], numbers: Mapping[str, int], heard: Mapping[str, HeardClip]) -> str:
    """One page of clips; `numbers` count all of them as recorded."""
    if not clips:
        return '<p class="note">No clip is like that.</p>'
    rows = "".join(_clip_row(clip, numbers[clip.key], heard.get(clip.key)) for clip in clips)
    return (
        '<table class="clips"><thead><tr><th scope="col">Clip</th><th scope="col">Sound</th>'
        '<th scope="col">Transcript</th><th scope="col">Verdict</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _clip_row(clip: ClipRow, number: int, heard: HeardClip | None) -> str:
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in clip.reasons)
    listed = f"<ul>{reasons}</ul>" if reasons else ""
    by_you = " by you" if clip.details.person_verdict is not None else ""
    text = escape(clip.text) or "<em>no text yet</em>"
    return (
        f'<tr><th scope="row"><button type="button" class="choose-clip" data-clip="{escape(clip.key)}" '
        f'aria-label="Work on clip {number}">{number}</button>{_marks(clip)}</th>'
        f"<td>{_sound(clip, number, heard)}<span class='facts'>{clip.seconds:.1f} s</span></td>"
        f'<td class="text">{text} <span class="facts">{ORIGINS[clip.details.text_source]}</span></td>'
        f'<td class="{TONES[clip.verdict]}"><strong>{VERDICT_WORDS[clip.verdict]}{by_you}</strong>{listed}</td></tr>'
    )


def clip_card(clip: ClipRow, number: int, heard: HeardClip | None) -> str:
    """The clip that is worked on."""
    sound = clip.details.current.sound
    span = clip.details.current.span
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in clip.reasons)
    distance = clip.details.distance
    like = f" Distance to the speaker {distance:.2f}." if distance is not None else ""
    facts = (
        f"{escape(Path(clip.details.recording_name).name)}, {span.start_seconds:.2f} to {span.end_seconds:.2f} s. "
        f"Voice {sound.speech_dbfs:.0f} dB, {sound.speech_over_noise_db:.0f} dB above the noise.{like}"
    )
    by_you = " by you" if clip.details.person_verdict is not None else ""
    head = f"<strong>Clip {number}: {VERDICT_WORDS[clip.verdict]}{by_you}.</strong> {facts}{_marks(clip)}"
    listed = f"<ul>{reasons}</ul>" if reasons else ""
    return says(TONES[clip.verdict], head, more=f"{listed}{_sound(clip, number, heard)}")


def _marks(clip: ClipRow) -> str:
    marks = []
    if clip.is_reference:
        marks.append("stands for the voice")
    if clip.held_out:
        marks.append("kept apart to judge with")
    return "".join(f' <span class="mark">{mark}</span>' for mark in marks)


def _sound(clip: ClipRow, number: int, heard: HeardClip | None) -> str:
    if heard is None:
        return '<span class="facts">The sound is gone. Prepare the dataset again.</span>'
    label = f"Clip {number}, {clip.seconds:.1f} seconds"
    return (
        waveform_svg(heard.envelope, f"Waveform of clip {number}")
        + f'<audio controls preload="none" src="{file_url(heard.path)}" aria-label="{label}"></audio>'
    )


def changes_html(changes: Sequence[TranscriptChange], numbers: Mapping[str, int], language: str) -> str:
    """Where something else was heard than the texts say; equal clips are not shown."""
    if not changes:
        return says("good", "Heard again: every text says what was heard.")
    shown = changes[:MAX_CHANGES]
    items = "".join(_change_item(change, numbers.get(change.key, 0), language) for change in shown)
    more = f" These are the first {len(shown)}; others follow." if len(shown) < len(changes) else ""
    return (
        f'<div class="changes"><p>Something else was heard in {count_of(len(changes), "clip")}. '
        f"Nothing is changed until you take it over.{more}</p><ul>{items}</ul></div>"
    )


def _change_item(change: TranscriptChange, number: int, language: str) -> str:
    # Imported here: Whisper's rules for spelling bring all of it along, which takes seconds to load.
    from backend.transcription.differences import ChangeKind, compare_texts  # noqa: PLC0415 - see above

    parts = []
    for piece in compare_texts(change.before, change.after, language).changes:
        if piece.kind is ChangeKind.EQUAL:
            parts.append(escape(piece.expected))
            continue
        if piece.expected:
            parts.append(f"<del>{escape(piece.expected)}</del>")
        if piece.heard:
            parts.append(f"<ins>{escape(piece.heard)}</ins>")
    return (
        f"<li><strong>Clip {number}</strong> ({change.confidence:.0%} sure): {' '.join(parts)} "
        f'<button type="button" class="take-text" data-clip="{escape(change.key)}" '
        f'aria-label="Take over what was heard in clip {number}">Take it over</button></li>'
    )
