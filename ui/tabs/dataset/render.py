"""What the Data tab says around its clips: progress, how much there is, statistics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from markupsafe import Markup

from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.stage_counts import STAGES, Stage
from backend.dataset.clips.thresholds import GateSettings
from backend.dataset.clips.views import BuildProgress, BuildState, DatasetView, RecordingView, StageProgress
from backend.voices.consent import Consent
from training.charts import histogram
from ui.html.messages import NOTHING, download_link, note, says
from ui.html.templates import html, render
from ui.html.words import consent_in_words, time_in_words
from ui.tabs.dataset.clip_rows import clips_in_words
from ui.tabs.dataset.not_used import files_not_used_html, reasons_of_files, reasons_of_stretches, shortened
from ui.words.sentences import translated
from ui.words.words import say

WANTED_MINUTES = 10.0
"""Of one person's speech: a good start for a fine-tune."""

STAGE_NAMES: dict[Stage, str] = {
    "decode": "data.stage_decode",
    "transcribe": "data.stage_transcribe",
    "cut": "data.stage_cut",
    "tokenize": "data.stage_tokenize",
}

_WEIGHTS: dict[Stage, float] = {"decode": 0.05, "transcribe": 0.55, "cut": 0.05, "tokenize": 0.35}
"""Of all the work, about."""

BUILD_ENDINGS = {
    BuildState.DONE: ("good", "data.ready"),
    BuildState.FAILED: ("bad", "data.failed"),
    BuildState.CANCELLED: ("mixed", "data.cancelled"),
    BuildState.INTERRUPTED: ("mixed", "data.interrupted"),
}

_MAX_LISTED = 20


def sources_line(num_files: int, *, has_voice: bool) -> Markup:
    """What would be prepared of what was dropped here; the choice beside it tells of the Speak tab."""
    if num_files:
        return note(say("data.num_files", number=num_files))
    return NOTHING if has_voice else note(say("data.no_recordings"))


def progress_html(
    progress: BuildProgress | None,
    *,
    recordings: Sequence[RecordingView] = (),
    uses_ray: bool = True,
    is_there: bool = False,
    is_cancelling: bool = False,
) -> Markup:
    """A build as one bar with its stage and what is left, or how it ended and what became of its `recordings`;
    `is_there` where a cluster was joined.
    """
    if progress is None:
        return NOTHING
    if not progress.is_running:
        return _ended_html(progress, recordings)
    if is_cancelling:
        return cancelling_html(progress)
    now, left = _now(progress, uses_ray=uses_ray, is_there=is_there), _left(progress)
    return render(
        "dataset",
        "progress",
        title=say("data.preparing", name=progress.name),
        stage=now,
        percent=percent_done(progress),
        left=say("data.left", time=time_in_words(left)) if left else "",
        steps=[(_step(progress.stage(stage)), _state(progress.stage(stage))) for stage in STAGES],
        notice=translated(progress.notice),
        stays=say("data.goes_on"),
    )


def _ended_html(progress: BuildProgress, recordings: Sequence[RecordingView]) -> Markup:
    tone, words = BUILD_ENDINGS[progress.state]
    took, not_used = "", Markup()
    if progress.state is BuildState.DONE:
        not_used = files_not_used_html(recordings)
        tone = "mixed" if not_used else tone
        if progress.finished_at is not None:
            took = say("data.took", time=time_in_words(progress.finished_at - progress.started_at))
    elif progress.state is BuildState.FAILED and not any(one.num_clips for one in recordings):
        # Otherwise it failed for another reason, and these are of the build before.
        not_used = files_not_used_html(recordings)
    role = "alert" if progress.state is BuildState.FAILED else "status"
    said = html("<strong>{}</strong> {} {}", say(words), translated(progress.problem or progress.notice), took)
    return says(tone, said, more=not_used, role=role)


def cancelling_html(progress: BuildProgress) -> Markup:
    """A build that was asked to stop: what it has begun is brought to an end."""
    return render(
        "dataset",
        "progress",
        title=say("data.preparing", name=progress.name),
        stage=say("data.cancelling"),
        percent=percent_done(progress),
        left="",
        steps=[],
        notice="",
        stays=say("data.is_kept"),
    )


def percent_done(progress: BuildProgress) -> int:
    """Of all stages together."""
    return round(100 * sum(_WEIGHTS[stage] * _share(progress.stage(stage)) for stage in STAGES))


def _share(stage: StageProgress) -> float:
    return min(1.0, stage.num_done / stage.num_total) if stage.num_total else 0.0


def _state(stage: StageProgress) -> str:
    if stage.num_total and stage.num_done >= stage.num_total:
        return "done"
    return "now" if stage.num_done else "later"


def _step(stage: StageProgress) -> str:
    """A stage with its count."""
    words = say(STAGE_NAMES[stage.stage])
    if not stage.num_done:
        return words
    count = f"{words} {stage.num_done}" + (f" / {stage.num_total}" if stage.num_total else "")
    if stage.num_reused:
        count += f", {say('data.reused', number=stage.num_reused)}"
    return count + (f", {say('data.num_failed', number=stage.num_failed)}" if stage.num_failed else "")


def _now(progress: BuildProgress, *, uses_ray: bool, is_there: bool) -> str:
    """The stage that is worked on, or what is being waited for."""
    if not progress.num_done:
        if not uses_ray:
            return say("data.starting")
        return say("data.joining_ray" if is_there else "data.starting_ray")
    working = next((one for one in STAGES if _state(progress.stage(one)) != "done"), STAGES[-1])
    return f"{say(STAGE_NAMES[working])} …"


def _left(progress: BuildProgress) -> float | None:
    """Seconds of all stages together; None while none is known."""
    known = [one.seconds_left for one in progress.stages if one.seconds_left]
    return sum(known) if known else None


def summary_html(view: DatasetView, consents: Iterable[Consent | None]) -> Markup:
    """How much of it can be learned from, what to do about it, and who agreed."""
    usable = view.minutes(Verdict.ACCEPTED) + view.minutes(Verdict.WARNED)
    verdicts = {
        "data.num_good": Verdict.ACCEPTED,
        "data.num_doubtful": Verdict.WARNED,
        "data.num_needs_text": Verdict.NEEDS_TEXT,
        "data.num_left_out": Verdict.REJECTED,
    }
    counts = [say(words, number=view.count(verdict)) for words, verdict in verdicts.items() if view.count(verdict)]
    num_clips = clips_in_words(len(view.clips))
    listed = list(consents)
    return render(
        "dataset",
        "summary",
        percent=min(100, round(100 * usable / WANTED_MINUTES)),
        number=say("data.minutes", number=f"{usable:.1f}"),
        words=say("data.of_wanted", wanted=f"{WANTED_MINUTES:g}"),
        facts=" · ".join([num_clips, *counts]),
        advice=_advice(view, usable),
        consent=_consent(listed),
        is_agreed=None not in listed,
    )


def _advice(view: DatasetView, usable: float) -> str:
    if not usable:
        return say("data.nothing_usable")
    if view.count(Verdict.NEEDS_TEXT):
        return say("data.type_texts")
    return say("data.enough") if usable >= WANTED_MINUTES else say("data.more_is_better")


def _consent(consents: list[Consent | None]) -> dict[str, object] | None:
    """Who agreed, as a line to unfold."""
    if not consents:
        return None
    lines = sorted({consent_in_words(one) for one in consents if one is not None})
    missing = consents.count(None)
    title = say("data.consent_missing", number=missing) if missing else say("data.consent_given")
    return {"title": title, "lines": lines or [say("data.consent_asked")]}


def statistics_html(view: DatasetView) -> Markup:
    """Length, noise and likeness of all clips, who listened, and what was left out."""
    facts = [say("data.minutes_of", usable=f"{_usable(view):.1f}", total=f"{view.minutes():.1f}")]
    if held_out := sum(clip.held_out for clip in view.clips):
        facts.append(say("data.num_held_out", number=held_out))
    if view.transcribers:
        facts.append(say("data.listened", listeners=", ".join(view.transcribers)))
    if made := [Path(one.name).name for one in view.recordings if one.details.made_by_encore]:
        facts.append(say("data.made_by_encore", files=", ".join(made[:_MAX_LISTED])))
    left_out = [*reasons_of_files(view.recordings), *reasons_of_stretches(view.recordings)]
    return render(
        "dataset",
        "statistics",
        counts=" ".join(facts),
        plots=plots_html(view),
        num_left_out=say("data.num_not_used", number=len(left_out)),
        left_out=shortened(left_out),
    )


def _usable(view: DatasetView) -> float:
    return view.minutes(Verdict.ACCEPTED) + view.minutes(Verdict.WARNED)


def plots_html(view: DatasetView) -> Markup:
    """Length, noise and likeness of all clips."""
    limits = GateSettings()
    current = [clip.details.current for clip in view.clips]
    distances = [clip.details.distance for clip in view.clips if clip.details.distance is not None]
    plots = [
        histogram(
            say("data.plot_length"),
            [clip.seconds for clip in view.clips],
            unit="s",
            limits=(limits.short_seconds, limits.long_seconds),
        ),
        histogram(
            say("data.plot_noise"),
            [clip.sound.speech_over_noise_db for clip in current],
            unit="dB",
            limits=(limits.min_speech_over_noise_db, limits.speech_over_noise_db),
        ),
        histogram(say("data.plot_speaker"), distances, unit="", limits=(limits.odd_distance,)),
    ]
    drawn = Markup("".join(plots))
    return html('<div class="plots">{}</div>', drawn) if drawn else NOTHING


def stale_line(*, are_current: bool) -> Markup:
    """That the files do not reflect the latest changes."""
    return NOTHING if are_current else says("mixed", say("data.stale"))


def exported_line(name: str, path: Path, num_clips: int) -> Markup:
    """Where the exported files are."""
    link = download_link(path, path.name)
    return says("good", html("<strong>{}:</strong> {} {}", name, say("data.exported", number=num_clips), link))
