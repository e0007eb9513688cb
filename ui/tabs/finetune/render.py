"""What the Tune tab says: what a run would take, how it is doing, and how its checkpoints sound. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from backend.background_tasks import TaskState
from backend.evaluation.likeness_table import who_sounds_like_whom
from backend.evaluation.score_words import describe_errors, describe_hearings, describe_likeness
from backend.evaluation.scores import CheckpointScores
from backend.runs.planning.plan import WORKER_COUNTS, DataPlan, MemoryCell, RunPlan, recommend_preset
from backend.runs.process.select_checkpoint import choose, winner
from backend.runs.storage.records import CheckpointRecord, EventRecord, MetricRecord, RunRecord
from backend.runs.storage.states import RunState
from training.charts import line_chart
from ui.html.messages import NOTHING, download_link, note, says
from ui.html.sound import sound_html
from ui.html.templates import html, render
from ui.html.words import PRESET_WORDS, gib, preset_name, size_in_words, time_in_words
from ui.tabs.finetune.verdict import verdict_in_words
from ui.words.sentences import translated
from ui.words.words import say, say_count

_PRESET_USES = {"quick": "tune.quick_use", "standard": "tune.standard_use", "thorough": "tune.thorough_use"}

STATE_WORDS = {
    RunState.QUEUED: ("", "tune.queued"),
    RunState.STARTING: ("", "tune.starting"),
    RunState.RUNNING: ("", "tune.training"),
    RunState.EVALUATING: ("", "tune.evaluating"),
    RunState.PAUSED: ("mixed", "tune.paused"),
    RunState.DONE: ("good", "tune.done"),
    RunState.FAILED: ("bad", "tune.failed"),
    RunState.CANCELLED: ("mixed", "tune.cancelled"),
    RunState.INTERRUPTED: ("mixed", "tune.interrupted"),
}
_WITHOUT_MESSAGE = (RunState.QUEUED, RunState.STARTING, RunState.RUNNING, RunState.DONE)
"""What is happening is told by the stage itself."""

_MAX_DOTS = 8
UNSCORED = {"waiting": "tune.unscored_waiting", "evaluating": "tune.unscored_now"}

PARTS = {
    "weights": "tune.weights",
    "gradients": "tune.gradients",
    "optimizer": "tune.optimizer",
    "gathered": "tune.gathered",
    "activations": "tune.activations",
}

SCORES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("character_error", "tune.characters_wrong", "{:.1%}".format),
    ("verified_similarity", "tune.likeness_verified", "{:.2f}".format),
    ("speaker_similarity", "tune.likeness_own", "{:.2f}".format),
    ("duration_ratio", "tune.length_ratio", "{:.2f}".format),
    ("finished_share", "tune.ended_itself", "{:.0%}".format),
)

_LOSSES = {"talker_loss": "tune.loss_talker", "code_predictor_loss": "tune.loss_predictor"}
_MAX_EVENTS = 8


def plan_html(state: TaskState[RunPlan | None] | None) -> Markup:
    """What a run would take, and what stands in its way."""
    if state is None:
        return NOTHING
    if state.is_running:
        return says("", say("tune.planning"))
    if state.problem:
        text = html("<strong>{}</strong> {}", say("tune.cannot"), translated(state.problem))
        return says("bad", text, role="alert")
    if state.result is None:
        return says("", html("<strong>{}</strong> {}", say("tune.one_click"), say("tune.made_first")))
    return estimate_html(state.result)


def estimate_html(plan: RunPlan) -> Markup:
    """The plan in words, with problems first."""
    assert plan.data is not None, "planned without a dataset"
    data, job = plan.data.estimate, plan.job
    duration = time_in_words(60 * max(1, math.ceil(data.minutes)))
    minutes = f"{data.data_minutes:.1f}"
    work = {"steps": data.num_steps, "clips": data.num_clips, "workers": _workers(job.num_workers)}
    sizes = {"disk": size_in_words(data.disk_bytes), "free": size_in_words(plan.data.free_disk_bytes)}
    facts = [
        say("tune.plan_facts", time=duration, minutes=minutes, **work),
        say("tune.plan_left_out", number=data.num_too_long) if data.num_too_long else "",
        say("tune.plan_memory", memory=gib(data.memory.total), **sizes),
        say("tune.plan_main_memory", memory=gib(data.memory.main)) if data.memory.main else "",
    ]
    more = html(
        '<details class="why"><summary>{}</summary><p class="facts">{}</p></details>',
        *(say("tune.engineers"), " ".join(filter(None, facts))),
    )
    problems = Markup().join(html("<li>{}</li>", translated(problem)) for problem in plan.problems)
    if problems:
        return says("bad", say("tune.cannot"), more=html("<ul>{}</ul>{}", problems, more), role="alert")
    said = [say("tune.plan", time=duration, minutes=minutes)]
    if plan.data.speakers:
        said.append(say("tune.balanced", number=len(plan.data.speakers)))
    if (needed := plan.data.full_bytes) is not None and (available := plan.data.worker_bytes) is not None:
        said.append(say("tune.light_chosen", needed=gib(needed), available=gib(available)))
    return says("", " ".join(said), more=more)


def _workers(number: int) -> str:
    return say_count(number, "tune.worker", "tune.num_workers")


def made_first(sample: str, num_recordings: int, voice: str = "") -> str:
    """A dataset that is yet to be made, among those to choose from; `voice` is one of the library."""
    if voice:
        return say("tune.new_of_voice", name=voice)
    if num_recordings:
        return say("tune.new_of", what=say_count(num_recordings, "fields.recording", "fields.recordings"))
    return say("tune.new_of_sample", name=sample.title())


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
        counts={count: _workers(count) for count in WORKER_COUNTS},
        parts={part: say(words) for part, words in PARTS.items()},
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


def run_html(
    run: RunRecord,
    measures: Mapping[str, float],
    seconds_left: float | None,
    waits_for: str = "",
    *,
    is_there: bool = False,
    is_cancelling: bool = False,
) -> Markup:
    """How a run is doing; `waits_for` names the one that is before it; `is_there` where it runs on a cluster."""
    tone, words = STATE_WORDS[run.state]
    stage = say(words)
    if run.state is RunState.QUEUED and waits_for:
        stage = say("tune.waiting_for", name=waits_for)
    if run.state is RunState.STARTING and is_there:
        stage = say("tune.joining")
    if is_cancelling:
        stage = say("tune.stopping")
    left = ""
    if run.state is RunState.RUNNING and not is_cancelling:
        left = say("data.left", time=time_in_words(seconds_left)) if seconds_left else say("tune.measuring")
    engineering = [say("tune.run_workers", workers=_workers(run.num_workers), strategy=run.strategy)]
    if "seconds_per_step" in measures:
        engineering.append(say("tune.per_step", seconds=f"{measures['seconds_per_step']:.2f}"))
    engineering += memory_facts(measures)
    facts = [
        say("tune.step", step=run.step, steps=run.num_steps),
        say("tune.from", dataset=run.dataset),
        preset_name(run.preset),
    ]
    return render(
        "finetune",
        "run_head",
        percent=round(100 * run.share_done),
        tone=tone,
        voice=run.voice,
        stage=stage,
        left=left,
        facts=" · ".join(facts),
        message="" if run.state in _WITHOUT_MESSAGE else translated(run.message),
        engineering=[*engineering, *([translated(run.verdict)] if run.verdict else [])],
        is_over=not run.state.is_active,
        say=say,
    )


def dots_html(run: RunRecord, checkpoints: Sequence[CheckpointRecord], places: Mapping[str, Path]) -> Markup:
    """The checkpoints in a row, each with the same sentence to play; those to come are hollow."""
    known = sorted(checkpoints, key=lambda point: point.step)
    if not known:
        return NOTHING
    sentence = next((take.text for point in known for take in point.takes), "")
    starred = winner(run.best_checkpoint, known)
    points: list[dict[str, object]] = []
    for point in known:
        take = next((one for one in point.takes if one.text == sentence), None)
        name = say("tune.before") if point.is_base else say("tune.at_step", step=point.step)
        score = likeness(point)
        points.append(
            {
                "name": name,
                "title": f"{name}: {sentence}",
                "place": places.get(take.file) if take is not None else None,
                "state": point.state,
                "score": f"{score:.2f}" if score is not None else "",
                "is_best": point.name == starred,
            }
        )
    last, every = known[-1].step, max(1, run.job.checkpoint_every or run.num_steps)
    if run.state.is_active:
        for step in range(last + every, run.num_steps + every, every)[:_MAX_DOTS]:
            step_name = say("tune.at_step", step=min(step, run.num_steps))
            points.append({"name": step_name, "place": None, "state": "to-come", "score": "", "is_best": False})
    said = say("tune.same_sentence", sentence=sentence) if sentence else say("tune.no_sentence_yet")
    return render(
        "finetune",
        "dots",
        sentence=said,
        points=points,
        label=say("tune.checkpoints"),
        voice=run.voice,
        explained=_numbers_explained(run, known, starred) if any(point["score"] for point in points) else "",
    )


def _numbers_explained(run: RunRecord, checkpoints: Sequence[CheckpointRecord], starred: str | None) -> str:
    """What stands below the dots, why the star may be beside a lower number, and which one was kept without a star."""
    said = [say("tune.numbers", name=run.dataset)]
    if starred is not None:
        said.append(say("tune.star"))
    kept = next((point for point in checkpoints if point.name == run.best_checkpoint), None)
    if kept is not None and kept.name != starred:
        said.append(say("tune.kept_at", name=checkpoint_name(kept)))
    return " ".join(said)


def likeness(point: CheckpointRecord) -> float | None:
    """To the person, by the verifier where it heard it, else by the model's own ear."""
    return likeness_of(point.scores) if point.scores is not None else None


def likeness_of(scores: CheckpointScores) -> float | None:
    """The same of the scores of a checkpoint, or of one of its speakers."""
    verified = scores.verified_similarity
    return verified if verified is not None else scores.speaker_similarity


def result_html(
    run: RunRecord,
    checkpoints: Sequence[CheckpointRecord],
    places: Mapping[str, Path],
    voices: Mapping[str, str],
    methods: Markup = NOTHING,
) -> Markup:
    """What a finished run came to: one sentence, both voices to hear, what to do with the new one, and other ways.

    `voices` has the ids of the voices that were kept, by their names in the run.
    """
    best = next((point for point in checkpoints if point.name == run.best_checkpoint), None)
    if run.state is not RunState.DONE or best is None:
        return NOTHING
    base = next((point for point in checkpoints if point.is_base), None)
    choice = choose(checkpoints)
    is_better = choice.beats_base is not False
    lead = say("tune.done_better" if is_better else "tune.done_no_better", name=run.voice)
    if choice.likeness is not None:
        before, after = (f"{number:.2f}" for number in choice.likeness)
        change = choice.gains.get("likeness", 0.0)
        about = "tune.closer" if change > 0 else "tune.further" if change < 0 else "tune.as_close"
        lead = say(about, name=run.dataset, before=before, after=after)
    speakers = list(best.scores.speakers) if best.scores is not None else []
    sides = []
    for title, point in () if speakers else ((say("tune.zero_shot"), base), (say("tune.tuned"), best)):
        sound = _first_take(point, best, places)
        if point is not None and sound is not None:
            sides.append((title, sound_html(sound, f"{title}: {run.voice}", voice=run.voice)))
    return render(
        "finetune",
        "result",
        lead=lead,
        words=verdict_in_words(base, best, choice),
        sides=sides,
        voice_id="" if speakers else voices.get(run.job.voice, ""),
        is_better=is_better,
        methods="" if methods == NOTHING else methods,
        say=say,
        more=_speakers_html(speakers, base, best, places, voices) + alike_html(best) if speakers else "",
    )


def _speakers_html(
    speakers: Sequence[str],
    base: CheckpointRecord | None,
    best: CheckpointRecord,
    places: Mapping[str, Path],
    voices: Mapping[str, str],
) -> Markup:
    """Each speaker with the likeness before and after, both to hear, and the voice to use."""
    sides = ((say("tune.zero_shot"), base), (say("tune.tuned"), best))
    rows: list[dict[str, object]] = [
        {
            "name": name,
            "voice_id": voices.get(name, ""),
            "sides": [_speaker_side(title, point, name, places) for title, point in sides],
        }
        for name in speakers
    ]
    titles = [say("tune.speaker"), *(title for title, _ in sides)]
    return render("finetune", "speakers", titles=titles, rows=rows, use=say("tune.use"), label=say("tune.result"))


def _speaker_side(
    title: str, point: CheckpointRecord | None, name: str, places: Mapping[str, Path]
) -> dict[str, object]:
    own = point.scores.speakers.get(name) if point is not None and point.scores is not None else None
    take = next((take for take in point.takes if take.speaker == name), None) if point is not None else None
    score = likeness_of(own) if own is not None else None
    return {
        "title": title,
        "place": places.get(take.file) if take is not None else None,
        "score": f"{score:.2f}" if score is not None else "-",
    }


def alike_html(point: CheckpointRecord) -> Markup:
    """Who sounds like whom, as a small picture; empty where nothing was compared."""
    table = who_sounds_like_whom(point.takes)
    if table is None:
        return Markup()
    rows = [
        (
            row.speaker,
            [
                {
                    "similarity": f"{similarity:.2f}",
                    "percent": round(100 * min(max(similarity, 0.0), 1.0)),
                    "count": say("tune.of_takes", count=count, number=row.num_takes),
                    "is_own": other == row.speaker,
                }
                for other, similarity, count in zip(table.speakers, row.similarities, row.counts, strict=True)
            ],
        )
        for row in table.rows
    ]
    judge = say("tune.alike_judge", judge=table.judge or say("tune.own_ear"))
    return render(
        "finetune",
        "alike",
        title=say("tune.alike"),
        explained=f"{say('tune.alike_note')} {judge}",
        table=table,
        rows=rows,
        said=translated(table.in_words()),
    )


def _first_take(point: CheckpointRecord | None, best: CheckpointRecord, places: Mapping[str, Path]) -> Path | None:
    """The first sentence of the best checkpoint, as another one says it."""
    if point is None or not best.takes:
        return None
    take = next((one for one in point.takes if one.position == best.takes[0].position), None)
    return places.get(take.file) if take is not None else None


def preset_choices(plans: Mapping[str, DataPlan]) -> list[tuple[str, str]]:
    """The recipes as cards of three lines: name, time, and what fits; without plans only what each is for."""
    choices = []
    for preset, words in PRESET_WORDS.items():
        plan = plans.get(preset)
        lines = [say(words)]
        if plan is None:
            lines.append(say(_PRESET_USES[preset]))
        else:
            estimate = plan.estimate
            lines.append(say("tune.about", time=time_in_words(60 * max(1, math.ceil(estimate.minutes)))))
            minutes = estimate.data_minutes / max(1, len(plan.speakers))
            if recommend_preset(minutes) == preset:
                lines.append(say("tune.fits", minutes=f"{minutes:.1f}"))
        choices.append(("\n".join(lines), preset))
    return choices


def memory_facts(measures: Mapping[str, float]) -> list[str]:
    """What each worker holds; of a run of an earlier version only the fullest is known."""
    sizes = [size for rank in range(len(measures)) if (size := measures.get(f"worker_{rank}_bytes")) is not None]
    if len(sizes) > 1:
        listed = ", ".join(f"{number}: {gib(size)}" for number, size in enumerate(sizes, 1))
        return [say("tune.memory_of_all", sizes=listed)]
    if "memory_bytes" in measures:
        words = "tune.memory_of_one" if sizes else "tune.memory_of_fullest"
        return [say(words, size=gib(measures["memory_bytes"]))]
    return []


def report_line(run: RunRecord, path: Path, num_bytes: int) -> Markup:
    """Where the report is fetched from."""
    link = download_link(path, say("tune.get_report"), f"{run.voice}, {run.id}.html")
    size = size_in_words(num_bytes)
    return says("good", html("{} ({}). {}", link, size, say("tune.report_holds")))


def losses_html(metrics: Sequence[MetricRecord]) -> Markup:
    """Both losses as curves."""
    lines = {
        say(words): [(float(one.step), one.measures[name]) for one in metrics if name in one.measures]
        for name, words in _LOSSES.items()
    }
    chart = Markup(line_chart(say("tune.loss"), lines))
    if not chart:
        return NOTHING
    said = note(say("tune.about_losses"))
    return html('<div class="chart">{}{}</div>', chart, said)


def scores_html(checkpoints: Sequence[CheckpointRecord], best: str | None) -> Markup:
    """Every checkpoint with its scores."""
    if not checkpoints:
        return NOTHING
    rows = [
        (_named(point, best), translated(point.problem) or _unscored(point.state), _cells(point))
        for point in checkpoints
    ]
    notes = [(_named(point, best), words) for point in checkpoints if (words := _measured_by(point))]
    return render("finetune", "scores", titles=[say(title) for _, title, _ in SCORES], rows=rows, notes=notes)


def _unscored(state: str) -> str:
    return say(UNSCORED[state]) if state in UNSCORED else ""


def _measured_by(point: CheckpointRecord) -> str:
    """Who heard a checkpoint, and how like the voice it is; empty if nothing did."""
    if point.scores is None:
        return ""
    errors, likeness = (translated(describe(point.scores)) for describe in (describe_errors, describe_likeness))
    measured = ((say("tune.characters_wrong"), errors), (say("tune.likeness"), likeness))
    return " ".join(f"{what}: {words}." for what, words in measured if words)


def _cells(point: CheckpointRecord) -> list[tuple[str, str]] | None:
    """Title and value of each score; None if there are none."""
    if point.scores is None:
        return None
    values = ((say(title), getattr(point.scores, field), show) for field, title, show in SCORES)
    return [(title, show(value) if value is not None else "-") for title, value, show in values]


def takes_html(checkpoints: Sequence[CheckpointRecord], places: Mapping[str, Path], best: str | None) -> Markup:
    """The takes of each checkpoint, the newest first and open; `places` has the player's file of each."""
    spoken = sorted((point for point in checkpoints if point.takes), key=lambda point: -point.step)
    if not spoken:
        return NOTHING
    named = [(checkpoint_name(point), _named(point, best), point.takes) for point in spoken]
    return render(
        "finetune", "takes", checkpoints=named, places=places, hearings=describe_hearings, sound=sound_html, say=say
    )


def checkpoint_name(point: CheckpointRecord) -> str:
    """What a person calls a checkpoint."""
    return say("tune.base_model") if point.is_base else say("tune.at_step", step=point.step)


def _named(point: CheckpointRecord, best: str | None) -> str:
    return checkpoint_name(point) + (f" ★ {say('tune.best')}" if point.name == best else "")


def events_html(events: Sequence[EventRecord]) -> Markup:
    """What else happened, the newest first."""
    items = Markup().join(
        html("<li>{} {}</li>", time.strftime("%H:%M", time.localtime(event.at)), translated(event.sentence))
        for event in list(events)[-_MAX_EVENTS:][::-1]
    )
    return html('<div class="explanation"><ul>{}</ul></div>', items) if items else NOTHING


def log_html(log: str) -> Markup:
    """The end of a log, scrolled to its last line."""
    log_end, text = say("tune.log_end"), log or say("tune.log_empty")
    return html('<div class="log" tabindex="0" role="log" aria-label="{}"><pre>{}</pre></div>', log_end, text)
