"""What the Data tab says: progress, totals, clips and what is wrong with them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.stage_counts import Stage
from backend.dataset.clips.thresholds import GateSettings
from backend.dataset.clips.views import (
    BuildProgress,
    BuildState,
    ClipDetails,
    ClipRow,
    DatasetView,
    StageProgress,
    TranscriptChange,
)
from backend.transcription.text_difference import ChangeKind, compare_texts
from training.charts import histogram
from ui.html.messages import NOTHING, download_link, note, progress_bar, says
from ui.html.templates import html, render
from ui.html.waveform import waveform_svg
from ui.html.words import count_of, time_in_words, time_left

ABOUT = (
    "A fine-tune learns from clips: single sentences, each with what it says. Ten minutes of one person are a good "
    "start."
)
NO_RECORDINGS = "Add recordings here, or on the Speak tab, or choose a sample voice there."
STALE = "You have changed clips. Apply the changes before you fine-tune or export."

STAGE_NAMES: dict[Stage, str] = {
    "decode": "Reading recordings",
    "transcribe": "Transcribing",
    "cut": "Cutting clips",
    "tokenize": "Turning clips into codes",
}

VERDICT_WORDS = {
    Verdict.ACCEPTED: "accepted",
    Verdict.WARNED: "accepted, with a doubt",
    Verdict.NEEDS_TEXT: "needs your text",
    Verdict.REJECTED: "rejected",
}
BUILD_ENDINGS = {
    BuildState.DONE: ("good", html("<strong>Ready.</strong>")),
    BuildState.FAILED: ("bad", html("<strong>It could not be prepared.</strong>")),
    BuildState.CANCELLED: (
        "mixed",
        html("<strong>Cancelled.</strong> What is done is kept; prepare again to resume."),
    ),
    BuildState.INTERRUPTED: ("mixed", html("<strong>Interrupted.</strong>")),
}

TONES = {
    Verdict.ACCEPTED: "good",
    Verdict.WARNED: "mixed",
    Verdict.NEEDS_TEXT: "mixed",
    Verdict.REJECTED: "bad",
}

ORIGINS = {"whisper": "transcribed", "file": "from a file", "person": "by you", "none": "missing"}

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
    "needs your text": "Needs your text",
    "rejected": "Rejected",
    "edited": "Changed by you",
}

PAGE_CLIPS = 10
MAX_CHANGES = 30
"""Shown at a time: comparing two texts word by word takes some milliseconds."""

_MAX_LISTED = 20


@dataclass(frozen=True, kw_only=True)
class HeardClip:
    """What a clip needs to be seen and heard: its WAV as the page may fetch it, and its peaks."""

    path: Path
    envelope: tuple[float, ...]


def sources_line(names: Sequence[str], num_more: int) -> Markup:
    """What would be prepared."""
    if not names and not num_more:
        return note(NO_RECORDINGS)
    parts = []
    if names:
        listed = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
        parts.append(f"{count_of(len(names), 'recording')} from the Speak tab ({listed})")
    if num_more:
        parts.append(f"{count_of(num_more, 'file')} from here")
    return note(f"To be prepared: {' and '.join(parts)}.")


def progress_html(progress: BuildProgress | None) -> Markup:
    """Progress of a build, stage by stage, or how it ended."""
    if progress is None:
        return NOTHING
    if not progress.is_running:
        tone, words = BUILD_ENDINGS[progress.state]
        took = ""
        if progress.state is BuildState.DONE and progress.finished_at is not None:
            took = f" It took {time_in_words(progress.finished_at - progress.started_at)}."
        role = "alert" if progress.state is BuildState.FAILED else "status"
        return says(tone, html("{} {}{}", words, progress.problem or progress.notice, took), role=role)
    stages = Markup().join(_stage_row(progress.stage(stage), words) for stage, words in STAGE_NAMES.items())
    text = html(
        "<strong>Preparing {} …</strong> It goes on when this page is closed. {}", progress.name, progress.notice
    )
    return says("", text, more=html('<ul class="stages">{}</ul>', stages))


def _stage_row(stage: StageProgress, words: str) -> Markup:
    total = stage.num_total
    facts = f"{words}: {stage.num_done}" + (f" of {total}" if total is not None else "")
    if stage.num_reused:
        facts += f", {stage.num_reused} ready from before"
    if stage.num_failed:
        facts += f", {stage.num_failed} failed"
    bar = progress_bar(words, 100 * stage.num_done // total if total else 0)
    return html("<li>{}{}{}</li>", facts, time_left(stage.seconds_left), bar)


def totals_html(view: DatasetView) -> Markup:
    """How much of it can be learned from, and what was left out."""
    usable = view.minutes(Verdict.ACCEPTED) + view.minutes(Verdict.WARNED)
    counts = (
        f"{count_of(len(view.clips), 'clip')}: {view.count(Verdict.ACCEPTED)} good, "
        f"{view.count(Verdict.WARNED)} with a doubt, {view.count(Verdict.REJECTED)} rejected."
    )
    if needs_text := view.count(Verdict.NEEDS_TEXT):
        counts += f" {count_of(needs_text, 'clip')} without a text: type what is said in them."
    if held_out := sum(clip.held_out for clip in view.clips):
        counts += f" {count_of(held_out, 'clip')} held out for evaluation."
    if view.transcribers:
        counts += f" {' and '.join(view.transcribers)} listened."
    if made := [Path(one.name).name for one in view.recordings if one.details.made_by_encore]:
        counts += f" {', '.join(made[:_MAX_LISTED])}: made by Encore. A fine-tune asks whether to learn from that."
    left_out = [recording.problem for recording in view.recordings if recording.problem]
    left_out += [
        f"{Path(recording.name).name}, {lost.span.start_seconds:.1f} to {lost.span.end_seconds:.1f} s: {lost.problem}"
        for recording in view.recordings
        for lost in recording.details.lost
    ]
    return render(
        "dataset",
        "totals",
        usable=usable,
        minutes=view.minutes(),
        counts=counts,
        num_left_out=len(left_out),
        left_out=left_out[:_MAX_LISTED],
    )


def stale_line(*, are_current: bool) -> Markup:
    """That the files do not reflect the latest changes."""
    return NOTHING if are_current else says("mixed", STALE)


def plots_html(view: DatasetView) -> Markup:
    """Length, noise and likeness of all clips."""
    limits = GateSettings()
    current = [clip.details.current for clip in view.clips]
    distances = [clip.details.distance for clip in view.clips if clip.details.distance is not None]
    plots = [
        histogram(
            "Length",
            [clip.seconds for clip in view.clips],
            unit="s",
            limits=(limits.short_seconds, limits.long_seconds),
        ),
        histogram(
            "Voice above noise",
            [clip.sound.speech_over_noise_db for clip in current],
            unit="dB",
            limits=(limits.min_speech_over_noise_db, limits.speech_over_noise_db),
        ),
        histogram("Distance to the speaker", distances, unit="", limits=(limits.odd_distance,)),
    ]
    drawn = Markup("".join(plots))
    return html('<div class="plots">{}</div>', drawn) if drawn else NOTHING


def exported_line(name: str, path: Path, num_clips: int) -> Markup:
    """Where the exported files are."""
    link = download_link(path, path.name)
    return says(
        "good", html("<strong>{}:</strong> {} with their texts in {}.", name, count_of(num_clips, "clip"), link)
    )


def numbers_of(view: DatasetView) -> dict[str, int]:
    """What clips are called on the page, by their keys."""
    return {clip.key: number for number, clip in enumerate(view.clips, 1)}


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


def clips_table(clips: Sequence[ClipRow], numbers: Mapping[str, int], heard: Mapping[str, HeardClip]) -> Markup:
    """One row for each clip, with buttons that `clip_buttons.js` makes work."""
    if not clips:
        return note("No clips match this filter.")
    rows = [_facts(clip, numbers[clip.key], heard.get(clip.key)) for clip in clips]
    return render("dataset", "clips_table", rows=rows)


def clip_card(clip: ClipRow, number: int, heard: HeardClip | None) -> Markup:
    """The clip that is edited."""
    return render("dataset", "clip_card", row=_facts(clip, number, heard))


def _facts(clip: ClipRow, number: int, heard: HeardClip | None) -> dict[str, object]:
    """Of a clip, what the templates show."""
    marks = {"reference clip": clip.is_reference, "held out for evaluation": clip.held_out}
    return {
        "clip": clip,
        "number": number,
        "file": Path(clip.details.recording_name).name,
        "origin": _origin(clip.details),
        "tone": TONES[clip.verdict],
        "verdict": VERDICT_WORDS[clip.verdict] + (" by you" if clip.details.person_verdict is not None else ""),
        "marks": [words for words, is_marked in marks.items() if is_marked],
        "waveform": waveform_svg(heard.envelope, f"Waveform of clip {number}", heard.path)
        if heard is not None
        else None,
        "path": heard.path if heard is not None else None,
    }


def _origin(details: ClipDetails) -> str:
    """Where a text comes from, and who listened."""
    origin, listener = ORIGINS[details.text_source], details.current.transcriber
    if details.text_source == "whisper":
        return f"{origin} by {listener or 'Whisper'}"
    return origin if details.discrepancy is None else f"{origin}, compared with what {listener or 'Whisper'} heard"


def changes_html(changes: Sequence[TranscriptChange], numbers: Mapping[str, int], language: str) -> Markup:
    """Where something else was heard than the texts say; equal clips are not shown."""
    if not changes:
        return says("good", "Heard again: every text says what was heard.")
    shown = [(change, numbers.get(change.key, 0), _differences(change, language)) for change in changes[:MAX_CHANGES]]
    return render("dataset", "changes", changes=shown, total=len(changes))


def _differences(change: TranscriptChange, language: str) -> list[tuple[str, str]]:
    """Tag and words of each stretch: unchanged (no tag), in the text only (del), heard only (ins)."""
    parts = []
    for piece in compare_texts(change.before, change.after, language).changes:
        if piece.kind is ChangeKind.EQUAL:
            parts.append(("", piece.expected))
        else:
            parts += [(tag, words) for tag, words in (("del", piece.expected), ("ins", piece.heard)) if words]
    return parts
