"""What the fine-tune tab says: what a run would take, how it is doing, and how its checkpoints sound. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

from backend.background_tasks import TaskState
from backend.evaluation.scores import CheckpointScores
from backend.runs.charts import line_chart
from backend.runs.planning.plan import WORKER_COUNTS, MemoryCell, RunPlan
from backend.runs.storage.records import CheckpointRecord, EventRecord, MetricRecord, RunRecord
from backend.runs.storage.states import RunState
from ui.html.base import NOTHING, file_url, says, size_in_words, time_in_words
from ui.tabs.dataset.render import count_of, progress_bar

GIB = 2**30

PRESET_WORDS = {
    "quick": "Quick: once through the clips",
    "standard": "Standard: the usual choice",
    "thorough": "Thorough: longer, more to choose from",
}

STATE_WORDS = {
    RunState.QUEUED: ("", "Waiting to begin"),
    RunState.STARTING: ("", "Starting the workers"),
    RunState.RUNNING: ("", "Training"),
    RunState.JUDGING: ("", "Listening to the checkpoints"),
    RunState.PAUSED: ("mixed", "Paused"),
    RunState.DONE: ("good", "Done"),
    RunState.FAILED: ("bad", "Failed"),
    RunState.CANCELLED: ("mixed", "Cancelled"),
    RunState.INTERRUPTED: ("mixed", "Interrupted"),
}

PARTS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "gathered": "gathered for a moment",
    "activations": "activations",
}

SCORES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("character_error", "Characters wrong", lambda value: f"{value:.1%}"),
    ("verified_similarity", "Likeness (independent)", lambda value: f"{value:.2f}"),
    ("speaker_similarity", "Likeness (by the model itself)", lambda value: f"{value:.2f}"),
    ("duration_ratio", "Length / expected", lambda value: f"{value:.2f}"),
    ("finished_share", "Ended by itself", lambda value: f"{value:.0%}"),
)

NOTHING_TO_LEARN_FROM = (
    "There is nothing to learn from yet. Choose a sample voice or add recordings on the Voice tab, or prepare a "
    "dataset on the Dataset tab."
)
NO_MEMORY_YET = '<p class="note">It is drawn with the plan, as soon as there is a dataset.</p>'
STARTED = '<strong>It has begun.</strong> How it is doing is <a href="#runs-section">shown below</a>.'
PLANNED_LATER = (
    "<strong>One click does it all:</strong> clips are made first, and then the run is planned for them, checked and "
    "started. To see the plan before, or to correct the clips, prepare them on the Dataset tab."
)

_LOSSES = {"talker_loss": "first code", "code_predictor_loss": "other codes"}
_MAX_EVENTS = 8


def plan_html(state: TaskState | None) -> str:
    """What a run would take, and what stands in its way."""
    if state is None:
        return NOTHING
    if state.is_running:
        return says("", "Planning …")
    if state.result is None and not state.problem:
        return says("", PLANNED_LATER)
    if not isinstance(state.result, RunPlan):
        return says("bad", f"<strong>This cannot be fine-tuned yet.</strong> {escape(state.problem)}", role="alert")
    return estimate_html(state.result)


def estimate_html(plan: RunPlan) -> str:
    """The plan in words, with problems first."""
    assert plan.data is not None, "planned without a dataset"
    data, job = plan.data.estimate, plan.job
    problems = "".join(f"<li>{escape(problem)}</li>" for problem in plan.problems)
    left_out = f" {data.num_too_long} clips are too long and are left out." if data.num_too_long else ""
    minutes = max(1, math.ceil(data.minutes))
    text = (
        f"<strong>{data.num_steps} steps, about {time_in_words(60 * minutes)}</strong> on "
        f"{count_of(job.num_workers, 'worker')}, from {data.num_clips} clips with {data.data_minutes:.1f} min of "
        f"speech.{left_out} Each worker holds about {gib(data.memory.total)} of memory besides PyTorch itself. "
        f"Checkpoints take up to {size_in_words(data.disk_bytes)} of disk; "
        f"{size_in_words(plan.data.free_disk_bytes)} are free."
    )
    return says("bad" if problems else "good", text, more=f"<ul>{problems}</ul>" if problems else "")


def made_first(sample: str, num_recordings: int) -> str:
    """A dataset that is yet to be made, among those to choose from."""
    return f"New, of {count_of(num_recordings, 'recording') if num_recordings else f'the sample {sample.title()}'}"


def memory_html(plan: RunPlan) -> str:
    """Memory of a worker for every strategy and number of workers, as bars of one scale."""
    assert plan.data is not None, "planned without a dataset"
    cells_planned, worker_bytes = plan.data.memory, plan.data.worker_bytes
    most = max(cell.memory.total for cell in cells_planned)
    by_place = {(cell.strategy, cell.num_workers): cell for cell in cells_planned}
    strategies = list(dict.fromkeys(cell.strategy for cell in cells_planned))
    chosen = (plan.job.strategy, plan.job.num_workers)
    rows = ""
    for strategy in strategies:
        cells = "".join(
            _memory_cell(by_place.get((strategy, count)), most, is_chosen=(strategy, count) == chosen)
            for count in WORKER_COUNTS
        )
        rows += f'<tr><th scope="row">{strategy}</th>{cells}</tr>'
    head = "".join(f'<th scope="col">{count_of(count, "worker")}</th>' for count in WORKER_COUNTS)
    key = "".join(f'<span><i class="part-{part}"></i>{words}</span>' for part, words in PARTS.items())
    room = ""
    if worker_bytes is not None:
        room = f" Each could have {gib(worker_bytes)} here now."
    note = f"What each worker holds in memory besides PyTorch itself, by strategy.{room}"
    return (
        f'<p class="note">{note}</p><div class="memory-key">{key}</div>'
        f'<div class="wide" tabindex="0" role="region" aria-label="Memory per worker"><table class="memory"><thead>'
        f'<tr><th scope="col">Strategy</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _memory_cell(cell: MemoryCell | None, most: int, *, is_chosen: bool) -> str:
    if cell is None:
        return "<td>-</td>"
    memory = cell.memory
    parts = {
        "weights": memory.state.parameters,
        "gradients": memory.state.gradients,
        "optimizer": memory.state.optimizer,
        "gathered": memory.gathered,
        "activations": memory.activations,
    }
    bars = "".join(
        f'<span class="part-{part}" style="width:{100 * size / most:.1f}%"></span>' for part, size in parts.items()
    )
    told = ", ".join(f"{PARTS[part]} {gib(size)}" for part, size in parts.items())
    chosen = ' class="chosen"' if is_chosen else ""
    return f'<td{chosen}><div class="bar" role="img" aria-label="{told}">{bars}</div>{gib(memory.total)}</td>'


def run_choice(run: RunRecord) -> str:
    """A run in a list; not how it is doing, because a list does not change while it is shown."""
    moment = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created_at))
    return f"{run.voice}, {moment}, {run.preset}"


def run_html(run: RunRecord, measures: Mapping[str, float], seconds_left: float | None) -> str:
    """How a run is doing."""
    tone, words = STATE_WORDS[run.state]
    percent = round(100 * run.share_done)
    left = ""
    if run.state is RunState.RUNNING:
        left = f", about {time_in_words(seconds_left)} left" if seconds_left else ", measuring the pace"
    facts = [
        f"Step {run.step} of {run.num_steps}{left}.",
        f"{count_of(run.num_workers, 'worker')} with {escape(run.strategy)}.",
    ]
    if "seconds_per_step" in measures:
        facts.append(f"{measures['seconds_per_step']:.2f} s per step.")
    facts += memory_facts(measures)
    bar = progress_bar("Training", percent)
    verdict = f"<p><strong>{escape(run.verdict)}</strong></p>" if run.verdict else ""
    message = escape(run.message.removeprefix(f"{words}.").strip())
    return says(
        tone,
        f"<strong>{escape(run.voice)}: {words}.</strong> {message}",
        more=f'{bar}<p class="facts">{" ".join(facts)}</p>{verdict}',
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


def report_line(run: RunRecord, path: Path, num_bytes: int) -> str:
    """Where the report is fetched from."""
    name = f"{run.voice}, {run.id}.html"
    link = f'<a class="download" href="{file_url(path)}" download="{escape(name)}">Download the report</a>'
    return says(
        "good",
        f"{link} ({size_in_words(num_bytes)}). It holds scores, curves and all takes, and opens in any browser.",
    )


def losses_html(metrics: Sequence[MetricRecord]) -> str:
    """Both losses as curves."""
    lines = {
        words: [(float(one.step), one.measures[name]) for one in metrics if name in one.measures]
        for name, words in _LOSSES.items()
    }
    chart = line_chart("Loss", lines)
    if not chart:
        return NOTHING
    note = "A falling loss says that the model fits the clips. Only listening says how it sounds."
    return f'<div class="chart">{chart}<p class="note">{note}</p></div>'


def scores_html(checkpoints: Sequence[CheckpointRecord], best: str | None) -> str:
    """Every checkpoint with its scores."""
    if not checkpoints:
        return NOTHING
    head = "".join(f'<th scope="col">{title}</th>' for _, title, _ in SCORES)
    rows = "".join(_score_row(point, is_best=point.name == best) for point in checkpoints)
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="Scores of the checkpoints">'
        f'<table class="score-table"><thead><tr><th scope="col">Checkpoint</th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _score_row(point: CheckpointRecord, *, is_best: bool) -> str:
    name = checkpoint_name(point) + (" ★ best" if is_best else "")
    if point.scores is None:
        told = {"waiting": "Waits to be listened to.", "judging": "Is being listened to …"}.get(point.state, "")
        return f'<tr><th scope="row">{name}</th><td colspan="{len(SCORES)}">{escape(point.problem or told)}</td></tr>'
    return f'<tr><th scope="row">{name}</th>{_score_cells(point.scores)}</tr>'


def _score_cells(scores: CheckpointScores) -> str:
    values = ((title, getattr(scores, field), show) for field, title, show in SCORES)
    return "".join(
        f'<td data-name="{title}">{show(value) if value is not None else "-"}</td>' for title, value, show in values
    )


def takes_html(checkpoints: Sequence[CheckpointRecord], places: Mapping[str, Path], best: str | None) -> str:
    """The takes of each checkpoint, the newest first and open; `places` has the player's file of each."""
    spoken = [point for point in checkpoints if point.takes]
    if not spoken:
        return NOTHING
    newest = max(spoken, key=lambda point: point.step)
    shown = "".join(
        _takes_of(point, places, is_open=point in (newest,), is_best=point.name == best)
        for point in sorted(spoken, key=lambda point: -point.step)
    )
    return f'<h3>Listen to the checkpoints</h3><div class="checkpoints">{shown}</div>'


def _takes_of(point: CheckpointRecord, places: Mapping[str, Path], *, is_open: bool, is_best: bool) -> str:
    items = ""
    for take in point.takes:
        label = escape(f"{checkpoint_name(point)}: {take.text}")
        place = places.get(take.file)
        player = (
            f'<audio controls preload="none" src="{file_url(place)}" aria-label="{label}"></audio>'
            if place is not None
            else '<span class="facts">The recording is gone.</span>'
        )
        heard = f" Heard: “{escape(take.transcript)}”." if take.transcript is not None else ""
        cut = "" if take.finish_reason == "eos" else " It did not end by itself."
        items += f'<li>{escape(take.text)}{player}<p class="facts">{take.seconds:.1f} s.{heard}{cut}</p></li>'
    mark = " ★ best" if is_best else ""
    opened = " open" if is_open else ""
    return f"<details{opened}><summary>{checkpoint_name(point)}{mark}</summary><ul>{items}</ul></details>"


def checkpoint_name(point: CheckpointRecord) -> str:
    """What a person calls a checkpoint."""
    return "Base model, zero-shot" if point.is_base else f"Step {point.step}"


def events_html(events: Sequence[EventRecord]) -> str:
    """What else happened, the newest first."""
    items = "".join(
        f"<li>{time.strftime('%H:%M', time.localtime(event.at))} {escape(event.sentence)}</li>"
        for event in list(events)[-_MAX_EVENTS:][::-1]
    )
    return f'<div class="explanation"><ul>{items}</ul></div>' if items else NOTHING


def log_html(log: str) -> str:
    """The end of a log, scrolled to its last line."""
    told = escape(log) or "Nothing was written yet."
    return f'<div class="log" tabindex="0" role="log" aria-label="The end of the log"><pre>{told}</pre></div>'


def gib(num_bytes: float) -> str:
    """Memory as people quote it; small amounts keep a second digit."""
    amount = num_bytes / GIB
    return f"{amount:.1f} GiB" if amount >= 1 else f"{num_bytes / 2**20:.0f} MiB"
