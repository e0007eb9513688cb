"""What the Tune tab says: what a run would take, how it is doing, and how its checkpoints sound. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from backend.background_tasks import TaskState
from backend.evaluation.score_words import describe_errors, describe_hearings, describe_likeness
from backend.runs.planning.plan import WORKER_COUNTS, MemoryCell, RunPlan
from backend.runs.storage.records import CheckpointRecord, EventRecord, MetricRecord, RunRecord
from backend.runs.storage.states import RunState
from training.charts import line_chart
from ui.html.messages import NOTHING, download_link, note, progress_bar, says
from ui.html.sound import sound_html
from ui.html.templates import html, render
from ui.html.words import count_of, gib, size_in_words, time_in_words, time_left

ABOUT = "A fine-tune changes the model itself to speak like one person. It goes on when this page is closed."
NOTHING_TO_LEARN_FROM = (
    "There is nothing to learn from yet. Choose a sample voice or add recordings on the Speak tab, or prepare a "
    "dataset on the Data tab."
)
NO_MEMORY_YET = "It is drawn with the plan, as soon as there is a dataset."
STARTED = html('<strong>Fine-tuning has started;</strong> <a href="#runs-section">follow it below</a>.')
PLANNED_LATER = html(
    "<strong>One click does it all:</strong> clips are made first, and then the run is planned for them, checked and "
    "started. To see the plan before, or to correct the clips, prepare them on the Data tab."
)

PRESET_WORDS = {
    "quick": "Quick: once through the clips",
    "standard": "Standard: the usual choice",
    "thorough": "Thorough: longer, more to choose from",
}

STATE_WORDS = {
    RunState.QUEUED: ("", "Waiting to start"),
    RunState.STARTING: ("", "Starting the workers"),
    RunState.RUNNING: ("", "Training"),
    RunState.EVALUATING: ("", "Evaluating the checkpoints"),
    RunState.PAUSED: ("mixed", "Paused"),
    RunState.DONE: ("good", "Done"),
    RunState.FAILED: ("bad", "Failed"),
    RunState.CANCELLED: ("mixed", "Cancelled"),
    RunState.INTERRUPTED: ("mixed", "Interrupted"),
}
UNSCORED = {"waiting": "Waiting to be evaluated.", "evaluating": "Being evaluated …"}

PARTS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "gathered": "gathered for a moment",
    "activations": "activations",
}

SCORES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("character_error", "Characters wrong", "{:.1%}".format),
    ("verified_similarity", "Likeness (speaker verifier)", "{:.2f}".format),
    ("speaker_similarity", "Likeness (own opinion)", "{:.2f}".format),
    ("duration_ratio", "Length / expected", "{:.2f}".format),
    ("finished_share", "Ended by itself", "{:.0%}".format),
)

_LOSSES = {"talker_loss": "codebook 0 (talker)", "code_predictor_loss": "codebooks 1-15 (code predictor)"}
_MAX_EVENTS = 8


def plan_html(state: TaskState[RunPlan | None] | None) -> Markup:
    """What a run would take, and what stands in its way."""
    if state is None:
        return NOTHING
    if state.is_running:
        return says("", "Planning …")
    if state.problem:
        text = html("<strong>This cannot be fine-tuned yet.</strong> {}", state.problem)
        return says("bad", text, role="alert")
    return says("", PLANNED_LATER) if state.result is None else estimate_html(state.result)


def estimate_html(plan: RunPlan) -> Markup:
    """The plan in words, with problems first."""
    assert plan.data is not None, "planned without a dataset"
    data, job = plan.data.estimate, plan.job
    left_out = f" {data.num_too_long} clips are too long and are left out." if data.num_too_long else ""
    duration = time_in_words(60 * max(1, math.ceil(data.minutes)))
    text = html(
        "<strong>{} steps, about {}</strong> on {}, from {} clips with {:.1f} min of speech.{} Each worker needs about "
        "{} of memory besides PyTorch itself. Checkpoints take up to {} of disk; {} are free.",
        *(data.num_steps, duration, count_of(job.num_workers, "worker"), data.num_clips, data.data_minutes, left_out),
        *(gib(data.memory.total), size_in_words(data.disk_bytes), size_in_words(plan.data.free_disk_bytes)),
    )
    problems = Markup().join(html("<li>{}</li>", problem) for problem in plan.problems)
    return says("bad" if problems else "good", text, more=html("<ul>{}</ul>", problems) if problems else "")


def made_first(sample: str, num_recordings: int) -> str:
    """A dataset that is yet to be made, among those to choose from."""
    return f"New, of {count_of(num_recordings, 'recording') if num_recordings else f'the sample {sample.title()}'}"


def memory_html(plan: RunPlan) -> Markup:
    """Memory of a worker for every strategy and number of workers, as bars of one scale."""
    assert plan.data is not None, "planned without a dataset"
    by_place = {(cell.strategy, cell.num_workers): cell for cell in plan.data.memory}
    rows = [
        (strategy, [(count, _memory_parts(by_place.get((strategy, count)))) for count in WORKER_COUNTS])
        for strategy in dict.fromkeys(cell.strategy for cell in plan.data.memory)
    ]
    return render(
        "finetune",
        "memory",
        counts=WORKER_COUNTS,
        parts=PARTS,
        rows=rows,
        most=max(cell.memory.total for cell in plan.data.memory),
        chosen=(plan.job.strategy, plan.job.num_workers),
        worker_bytes=plan.data.worker_bytes,
    )


def _memory_parts(cell: MemoryCell | None) -> dict[str, float] | None:
    if cell is None:
        return None
    memory = cell.memory
    return {
        "weights": memory.state.parameters,
        "gradients": memory.state.gradients,
        "optimizer": memory.state.optimizer,
        "gathered": memory.gathered,
        "activations": memory.activations,
        "total": memory.total,
    }


def run_choice(run: RunRecord) -> str:
    """A run in a list; not how it is doing, because a list does not change while it is shown."""
    moment = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created_at))
    return f"{run.voice}, {moment}, {run.preset}"


def run_html(run: RunRecord, measures: Mapping[str, float], seconds_left: float | None) -> Markup:
    """How a run is doing."""
    tone, words = STATE_WORDS[run.state]
    left = ""
    if run.state is RunState.RUNNING:
        left = time_left(seconds_left) or ", measuring the rate"
    facts = [
        f"Step {run.step} of {run.num_steps}{left}.",
        f"{count_of(run.num_workers, 'worker')} with {run.strategy}.",
    ]
    if "seconds_per_step" in measures:
        facts.append(f"{measures['seconds_per_step']:.2f} s per step.")
    facts += memory_facts(measures)
    verdict = html("<p><strong>{}</strong></p>", run.verdict) if run.verdict else ""
    bar = progress_bar("Training", round(100 * run.share_done))
    message = run.message.removeprefix(f"{words}.").strip()
    return says(
        tone,
        html("<strong>{}: {}.</strong> {}", run.voice, words, message),
        more=html('{}<p class="facts">{}</p>{}', bar, " ".join(facts), verdict),
        role="alert" if run.state is RunState.FAILED else "status",
    )


def memory_facts(measures: Mapping[str, float]) -> list[str]:
    """What each worker holds; of a run of an earlier version only the fullest is known."""
    sizes = [size for rank in range(len(measures)) if (size := measures.get(f"worker_{rank}_bytes")) is not None]
    if len(sizes) > 1:
        listed = ", ".join(f"{number}: {gib(size)}" for number, size in enumerate(sizes, 1))
        return [f"Memory of the workers: {listed}."]
    if "memory_bytes" in measures:
        return [f"The {'worker' if sizes else 'fullest worker'} holds {gib(measures['memory_bytes'])} of memory."]
    return []


def report_line(run: RunRecord, path: Path, num_bytes: int) -> Markup:
    """Where the report is fetched from."""
    link = download_link(path, "Download the report", f"{run.voice}, {run.id}.html")
    size = size_in_words(num_bytes)
    return says("good", html("{} ({}). It holds scores, curves and all takes, and opens in any browser.", link, size))


def losses_html(metrics: Sequence[MetricRecord]) -> Markup:
    """Both losses as curves."""
    lines = {
        words: [(float(one.step), one.measures[name]) for one in metrics if name in one.measures]
        for name, words in _LOSSES.items()
    }
    chart = Markup(line_chart("Loss", lines))
    if not chart:
        return NOTHING
    said = note("A falling loss says that the model fits the clips. Only listening says how it sounds.")
    return html('<div class="chart">{}{}</div>', chart, said)


def scores_html(checkpoints: Sequence[CheckpointRecord], best: str | None) -> Markup:
    """Every checkpoint with its scores."""
    if not checkpoints:
        return NOTHING
    rows = [
        (_named(point, best), point.problem or UNSCORED.get(point.state, ""), _cells(point)) for point in checkpoints
    ]
    notes = [(_named(point, best), words) for point in checkpoints if (words := _measured_by(point))]
    return render("finetune", "scores", titles=[title for _, title, _ in SCORES], rows=rows, notes=notes)


def _measured_by(point: CheckpointRecord) -> str:
    """Who heard a checkpoint, and how like the voice it is; empty if nothing did."""
    if point.scores is None:
        return ""
    errors, likeness = describe_errors(point.scores), describe_likeness(point.scores)
    return " ".join(
        f"{what}: {words}." for what, words in (("Characters wrong", errors), ("Likeness", likeness)) if words
    )


def _cells(point: CheckpointRecord) -> list[tuple[str, str]] | None:
    """Title and value of each score; None if there are none."""
    if point.scores is None:
        return None
    values = ((title, getattr(point.scores, field), show) for field, title, show in SCORES)
    return [(title, show(value) if value is not None else "-") for title, value, show in values]


def takes_html(checkpoints: Sequence[CheckpointRecord], places: Mapping[str, Path], best: str | None) -> Markup:
    """The takes of each checkpoint, the newest first and open; `places` has the player's file of each."""
    spoken = sorted((point for point in checkpoints if point.takes), key=lambda point: -point.step)
    if not spoken:
        return NOTHING
    named = [(checkpoint_name(point), _named(point, best), point.takes) for point in spoken]
    return render("finetune", "takes", checkpoints=named, places=places, hearings=describe_hearings, sound=sound_html)


def checkpoint_name(point: CheckpointRecord) -> str:
    """What a person calls a checkpoint."""
    return "Base model, zero-shot" if point.is_base else f"Step {point.step}"


def _named(point: CheckpointRecord, best: str | None) -> str:
    return checkpoint_name(point) + (" ★ best" if point.name == best else "")


def events_html(events: Sequence[EventRecord]) -> Markup:
    """What else happened, the newest first."""
    items = Markup().join(
        html("<li>{} {}</li>", time.strftime("%H:%M", time.localtime(event.at)), event.sentence)
        for event in list(events)[-_MAX_EVENTS:][::-1]
    )
    return html('<div class="explanation"><ul>{}</ul></div>', items) if items else NOTHING


def log_html(log: str) -> Markup:
    """The end of a log, scrolled to its last line."""
    text = log or "Nothing was written yet."
    return html('<div class="log" tabindex="0" role="log" aria-label="The end of the log"><pre>{}</pre></div>', text)
