"""A run as one page to keep and to send: everything in the file, nothing fetched, nothing executed."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template

from backend.errors import EncoreError, OutputInvalid
from backend.evaluation.likeness_table import LikenessTable, who_sounds_like_whom
from backend.evaluation.score_words import describe_errors, describe_hearings, describe_likeness
from backend.evaluation.scores import CheckpointScores, EvaluatedTake
from backend.runs.method_table import MethodRow
from backend.runs.storage.records import CheckpointRecord, EventRecord, MetricRecord, RunRecord
from backend.store.artifacts import write_whole
from training.charts import line_chart
from training.data.code_rows import read_card

_STYLE, _TEMPLATE = (Path(__file__).with_name(name) for name in ("report.css", "report.html"))
_LOSSES = ("talker_loss", "code_predictor_loss")

_Column = tuple[str, str, Callable[[float], str]]
"""Field of the scores, title, and how a value is written."""

_COLUMNS: tuple[_Column, ...] = (
    ("character_error", "Characters wrong", "{:.1%}".format),
    ("word_error", "Words wrong", "{:.1%}".format),
    ("verified_similarity", "Similarity (speaker verifier)", "{:.3f}".format),
    ("speaker_similarity", "Similarity (the model's own opinion, biased)", "{:.3f}".format),
    ("duration_ratio", "Length / expected", "{:.2f}".format),
    ("finished_share", "Ended by itself", "{:.0%}".format),
    ("clipped_share", "Clipped samples", "{:.2%}".format),
)


def write_report(
    path: Path,
    run: RunRecord,
    metrics: Sequence[MetricRecord],
    checkpoints: Sequence[CheckpointRecord],
    events: Sequence[EventRecord],
    run_folder: Path,
    methods: Sequence[MethodRow] = (),
    *,
    starred: str | None = None,
) -> None:
    """Write the page, whole or not at all; `starred` names what sounds best, the base model included.

    Raises:
        OutputInvalid: the place named for it cannot take it.
        EncoreError: the disk is full.
    """
    if path.is_dir():
        raise OutputInvalid(f"{path} is a folder. Name a file to write, such as {path / 'report.html'}.")
    write_whole(path, render_report(run, metrics, checkpoints, events, run_folder, methods, starred=starred).encode())


def render_report(
    run: RunRecord,
    metrics: Sequence[MetricRecord],
    checkpoints: Sequence[CheckpointRecord],
    events: Sequence[EventRecord],
    run_folder: Path,
    methods: Sequence[MethodRow] = (),
    *,
    starred: str | None = None,
) -> str:
    """The page; text from outside is escaped, sound is embedded."""
    return _template().render(
        style=_STYLE.read_text(encoding="utf-8"),
        run=run,
        facts=_facts(run),
        notes=[(_name(point), note) for point in checkpoints for note in _notes(point)],
        hearings=describe_hearings,
        columns=[title for _, title, _ in _shown_columns(checkpoints)],
        checkpoints=[_row(point, _shown_columns(checkpoints), starred) for point in checkpoints],
        methods=[_method(row, run) for row in methods],
        sentences=_sentences(run, checkpoints, run_folder),
        speakers=_speakers(checkpoints, run.best_checkpoint),
        alike=_alike(checkpoints, run.best_checkpoint),
        charts=_charts(metrics),
        events=[(_date(event.at), event.sentence) for event in events],
        recipe=run.job.model_dump_json(indent=1),
    )


@cache
def _template() -> Template:
    # The charts and the style are markup of our own; everything else is escaped.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))


def _facts(run: RunRecord) -> dict[str, str]:
    return {
        "Voice": run.voice,
        "Dataset": run.dataset + _heard_by(run),
        "Model": run.model,
        "Recipe": run.preset,
        "Trained": run.job.method_in_words,
        "Strategy": f"{run.strategy}, {run.num_workers} worker{'s' if run.num_workers != 1 else ''}",
        "Steps": f"{run.step} of {run.num_steps}",
        "State": str(run.state),
        "Started": _date(run.started_at or run.created_at),
        "Took": _duration(run),
    }


def _heard_by(run: RunRecord) -> str:
    """Who listened to the clips, as long as the dataset is the one that was trained on."""
    try:
        card = read_card(run.job.dataset)
    except EncoreError:
        return ""
    is_same = card.digest == run.job.dataset_digest
    return f" ({' and '.join(card.transcribers)} listened)" if card.transcribers and is_same else ""


def _shown_columns(checkpoints: Sequence[CheckpointRecord]) -> list[_Column]:
    """The scores that at least one checkpoint has."""
    scores = [point.scores for point in checkpoints if point.scores is not None]
    return [column for column in _COLUMNS if any(getattr(one, column[0]) is not None for one in scores)]


def _row(point: CheckpointRecord, columns: Sequence[_Column], best: str | None) -> dict[str, object]:
    return {
        "name": _name(point),
        "is_best": point.name == best,
        "values": _values(point.scores, columns) if point.scores is not None else None,
        "reason": point.problem or f"Not evaluated ({point.state}).",
    }


def _values(scores: CheckpointScores, columns: Sequence[_Column]) -> list[str]:
    values = ((getattr(scores, field), show) for field, _, show in columns)
    return [show(value) if value is not None else "-" for value, show in values]


def _speakers(checkpoints: Sequence[CheckpointRecord], best: str | None) -> dict[str, object] | None:
    """Each speaker's scores with the base model and with the best checkpoint; None with one speaker."""
    shown = [point for point in checkpoints if point.scores is not None and (point.is_base or point.name == best)]
    own = [
        (f"{name}: {_name(point)}", scores)
        for point in shown
        if point.scores is not None
        for name, scores in point.scores.speakers.items()
    ]
    if not own:
        return None
    columns = [column for column in _COLUMNS if any(getattr(scores, column[0]) is not None for _, scores in own)]
    rows = sorted((name, _values(scores, columns)) for name, scores in own)
    return {"columns": [title for _, title, _ in columns], "rows": rows}


def _alike(checkpoints: Sequence[CheckpointRecord], best: str | None) -> list[tuple[str, LikenessTable]]:
    """Who sounds like whom, with the base model and with the best checkpoint; nothing with one speaker."""
    shown = [point for point in checkpoints if point.is_base or point.name == best]
    tables = ((_name(point), who_sounds_like_whom(point.takes)) for point in shown)
    return [(name, table) for name, table in tables if table is not None]


def _method(row: MethodRow, run: RunRecord) -> dict[str, object]:
    """One way in which the clips were learnt, and what it came to."""
    way = "zero-shot" if row.run is None else f"{row.run.job.method_in_words}, {row.run.preset}"
    wrong = row.scores.character_error if row.scores is not None else None
    return {
        "name": way[0].upper() + way[1:],
        "is_this": row.run is not None and row.run.id == run.id,
        "values": [
            "-" if value is None else show(value)
            for value, show in (
                (row.likeness, "{:.3f}".format),
                (wrong, "{:.1%}".format),
                (None if row.seconds is None else row.seconds / 60, "{:.1f} min".format),
                (None if row.state_bytes is None else row.state_bytes / 1e6, "{:.0f} MB".format),
                (None if row.size_bytes is None else row.size_bytes / 1e6, "{:.1f} MB".format),
            )
        ],
    }


def _name(point: CheckpointRecord) -> str:
    return "Base model, zero-shot" if point.is_base else f"Step {point.step}"


def _notes(point: CheckpointRecord) -> list[str]:
    """Who measured what of a checkpoint, in words."""
    if point.scores is None:
        return []
    errors, likeness = describe_errors(point.scores), describe_likeness(point.scores)
    words = ([f"characters wrong: {errors}"] if errors else []) + ([f"similarity: {likeness}"] if likeness else [])
    return [". ".join(words)] if words else []


def _sentences(run: RunRecord, checkpoints: Sequence[CheckpointRecord], run_folder: Path) -> list[dict[str, object]]:
    """The same sentences by the base model and by the best checkpoint, side by side."""
    base = {take.position: take for point in checkpoints if point.is_base for take in point.takes}
    tuned = {take.position: take for point in checkpoints if point.name == run.best_checkpoint for take in point.takes}
    return [
        {
            "take": base.get(position) or tuned[position],
            "players": {
                "Base model": _player(base.get(position), run_folder),
                "Fine-tuned": _player(tuned.get(position), run_folder),
            },
        }
        for position in sorted(base.keys() | tuned.keys())
    ]


def _player(take: EvaluatedTake | None, run_folder: Path) -> dict[str, object] | None:
    """A take and its sound, which is None if the recording is gone."""
    if take is None:
        return None
    try:
        sound = base64.b64encode((run_folder / take.file).read_bytes()).decode()
    except OSError:
        sound = None
    return {"take": take, "sound": sound}


def _charts(metrics: Sequence[MetricRecord]) -> str:
    def points(name: str) -> list[tuple[float, float]]:
        return [(record.step, record.measures[name]) for record in metrics if name in record.measures]

    losses = line_chart("Loss per frame", {name.replace("_", " "): points(name) for name in _LOSSES})
    rate = line_chart("Learning rate", {"learning rate": points("learning_rate")})
    gradient = line_chart("Gradient norm", {"gradient norm": points("gradient_norm")})
    note = "<p>A falling loss says that the model fits the clips; only the scores above say how it sounds.</p>"
    return f"{losses}{note}{gradient}{rate}" if losses else ""


def _date(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment))


def _duration(run: RunRecord) -> str:
    begin, end = run.started_at or run.created_at, run.ended_at or run.heartbeat_at or run.created_at
    minutes, seconds = divmod(max(0, round(end - begin)), 60)
    return f"{minutes} min {seconds} s"
