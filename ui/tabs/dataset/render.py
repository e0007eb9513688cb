"""What the dataset tab says: progress, totals, clips and what is wrong with them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from backend.background_tasks import TaskState
from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.stages import Stage
from backend.dataset.clips.thresholds import GateSettings
from backend.dataset.clips.views import BuildProgress, BuildState, DatasetView, StageProgress
from ui.html.base import NOTHING, file_url, says, time_in_words
from ui.html.histogram import Distribution, histogram_svg

STAGE_NAMES: dict[Stage, str] = {
    "decode": "Reading recordings",
    "transcribe": "Writing down what they say",
    "cut": "Cutting clips",
    "tokenize": "Turning clips into codes",
}

VERDICT_WORDS = {
    Verdict.ACCEPTED: "accepted",
    Verdict.WARNED: "accepted, with a doubt",
    Verdict.REJECTED: "rejected",
}
ENDINGS = {
    BuildState.DONE: ("good", "<strong>Ready.</strong>"),
    BuildState.FAILED: ("bad", "<strong>It could not be prepared.</strong>"),
    BuildState.CANCELLED: ("mixed", "<strong>Cancelled.</strong> What is done is kept; prepare again to go on."),
    BuildState.INTERRUPTED: ("mixed", "<strong>Interrupted.</strong>"),
}

_MAX_LISTED = 20


def sources_line(names: Sequence[str], num_more: int) -> str:
    """What would be prepared."""
    if not names and not num_more:
        return '<p class="note">Add recordings here, or on the Voice tab, or choose a sample voice there.</p>'
    parts = []
    if names:
        listed = ", ".join(escape(name) for name in names[:3]) + (" …" if len(names) > 3 else "")
        parts.append(f"{count_of(len(names), 'recording')} from the Voice tab ({listed})")
    if num_more:
        parts.append(f"{count_of(num_more, 'file')} from here")
    return f'<p class="note">To be prepared: {" and ".join(parts)}.</p>'


def progress_html(progress: BuildProgress | None) -> str:
    """How far a build is, stage by stage, or how it ended."""
    if progress is None:
        return NOTHING
    if not progress.is_running:
        tone, text = ENDINGS[progress.state]
        took = ""
        if progress.state is BuildState.DONE and progress.finished_at is not None:
            took = f" It took {time_in_words(progress.finished_at - progress.started_at)}."
        role = "alert" if progress.state is BuildState.FAILED else "status"
        return says(tone, f"{text} {escape(progress.problem or progress.notice)}{took}", role=role)
    stages = "".join(_stage_row(progress.stage(stage), words) for stage, words in STAGE_NAMES.items())
    return says(
        "",
        f"<strong>Preparing {escape(progress.name)} …</strong> It goes on when this page is closed. "
        f"{escape(progress.notice)}",
        more=f'<ul class="stages">{stages}</ul>',
    )


def _stage_row(stage: StageProgress, words: str) -> str:
    total = stage.num_total
    percent = 100 * stage.num_done // total if total else 0
    count = f"{stage.num_done} of {total}" if total is not None else str(stage.num_done)
    notes = [count]
    if stage.num_reused:
        notes.append(f"{stage.num_reused} ready from before")
    if stage.num_failed:
        notes.append(f"{stage.num_failed} failed")
    if stage.seconds_left:
        notes.append(f"about {time_in_words(stage.seconds_left)} left")
    return f"<li>{words}: {', '.join(notes)}{progress_bar(words, percent)}</li>"


QUIET_SECONDS = 2.0
"""Work that takes longer says for how long it has been going on."""


def progress_bar(label: str, percent: int) -> str:
    """A bar with its value for screen readers."""
    return (
        f'<div class="progress-track" role="progressbar" aria-label="{escape(label)}" aria-valuemin="0" '
        f'aria-valuemax="100" aria-valuenow="{percent}"><div style="width:{percent}%"></div></div>'
    )


def task_line(state: TaskState | None, count: Callable[[int], str] = str) -> str:
    """How work in the background stands, what it counts as `count` writes it; nothing once it has succeeded."""
    if state is None or not (state.is_running or state.problem):
        return NOTHING
    what = escape(state.what)
    if not state.is_running:
        return says("bad", escape(state.problem), role="alert")
    if not state.num_total:
        so_far = f" {time_in_words(state.seconds_so_far)} so far." if state.seconds_so_far > QUIET_SECONDS else ""
        return says("", f"{what} …{so_far}")
    percent = 100 * state.num_done // state.num_total
    left = f", about {time_in_words(state.seconds_left)} left" if state.seconds_left else ""
    return says(
        "",
        f"{what}: {count(state.num_done)} of {count(state.num_total)}{left}.",
        more=progress_bar(state.what, percent),
    )


def totals_html(view: DatasetView) -> str:
    """How much of it can be learned from, and what was left out."""
    usable = view.minutes(Verdict.ACCEPTED) + view.minutes(Verdict.WARNED)
    counts = (
        f"{count_of(len(view.clips), 'clip')}: {view.count(Verdict.ACCEPTED)} good, "
        f"{view.count(Verdict.WARNED)} with a doubt, {view.count(Verdict.REJECTED)} rejected"
    )
    held_out = sum(clip.held_out for clip in view.clips)
    apart = f" {count_of(held_out, 'clip')} kept apart to judge with." if held_out else ""
    left_out = [escape(recording.problem) for recording in view.recordings if recording.problem]
    for recording in view.recordings:
        left_out += [
            f"{escape(Path(recording.name).name)}, {lost.span.start_seconds:.1f} to {lost.span.end_seconds:.1f} s: "
            f"{escape(lost.problem)}"
            for lost in recording.details.lost
        ]
    more = ""
    if left_out:
        items = "".join(f"<li>{line}</li>" for line in left_out[:_MAX_LISTED])
        more = f"<details><summary>Left out: {len(left_out)}</summary><ul>{items}</ul></details>"
    text = f"<strong>{usable:.1f} min accepted of {view.minutes():.1f}.</strong> {counts}.{apart}"
    return says("good" if usable else "bad", text, more=more)


def stale_line(*, are_current: bool) -> str:
    """That the files do not reflect what was changed."""
    if are_current:
        return NOTHING
    return says("mixed", "You have changed clips. Apply the changes before you fine-tune or export.")


def plots_html(view: DatasetView) -> str:
    """Length, noise and likeness of all clips."""
    limits = GateSettings()
    current = [clip.details.current for clip in view.clips]
    distances = [clip.details.distance for clip in view.clips if clip.details.distance is not None]
    plots = [
        Distribution(
            title="Length",
            unit="s",
            values=[clip.seconds for clip in view.clips],
            limits=(limits.short_seconds, limits.long_seconds),
        ),
        Distribution(
            title="Voice above noise",
            unit="dB",
            values=[clip.sound.speech_over_noise_db for clip in current],
            limits=(limits.min_speech_over_noise_db, limits.speech_over_noise_db),
        ),
        Distribution(title="Distance to the speaker", unit="", values=distances, limits=(limits.odd_distance,)),
    ]
    drawn = "".join(histogram_svg(plot) for plot in plots)
    return f'<div class="plots">{drawn}</div>' if drawn else NOTHING


def exported_line(name: str, path: Path, num_clips: int) -> str:
    """Where the exported files are."""
    link = f'<a class="download" href="{file_url(path)}" download="{escape(path.name)}">{escape(path.name)}</a>'
    return says("good", f"<strong>{escape(name)}:</strong> {count_of(num_clips, 'clip')} with their texts in {link}.")


def count_of(number: int, what: str) -> str:
    """`1 clip`, `2 clips`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
