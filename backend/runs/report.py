"""A run as one page to keep and to send: everything in the file, nothing fetched, nothing executed."""

from __future__ import annotations

import base64
import html
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from backend.errors import OutputRefused
from backend.evaluation.scores import EvaluatedTake
from backend.runs.charts import line_chart
from backend.runs.storage.records import CheckpointRecord, EventRecord, MetricRecord, RunRecord
from backend.store.artifacts import write_whole

_STYLE = Path(__file__).with_name("report.css")
_LOSSES = ("talker_loss", "code_predictor_loss")

_COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("character_error", "Characters wrong", lambda value: f"{value:.1%}"),
    ("word_error", "Words wrong", lambda value: f"{value:.1%}"),
    ("verified_similarity", "Similarity (independent)", lambda value: f"{value:.3f}"),
    ("speaker_similarity", "Similarity (by the model itself, biased)", lambda value: f"{value:.3f}"),
    ("duration_ratio", "Length / expected", lambda value: f"{value:.2f}"),
    ("finished_share", "Ended by itself", lambda value: f"{value:.0%}"),
    ("clipped_share", "Clipped samples", lambda value: f"{value:.2%}"),
)


def write_report(
    path: Path,
    run: RunRecord,
    metrics: Sequence[MetricRecord],
    checkpoints: Sequence[CheckpointRecord],
    events: Sequence[EventRecord],
    run_folder: Path,
) -> None:
    """Write the page, whole or not at all.

    Raises:
        OutputRefused: the place named for it cannot take it.
        EncoreError: the disk is full.
    """
    if path.is_dir():
        raise OutputRefused(f"{path} is a folder. Name a file to write, such as {path / 'report.html'}.")
    write_whole(path, render_report(run, metrics, checkpoints, events, run_folder).encode())


def render_report(
    run: RunRecord,
    metrics: Sequence[MetricRecord],
    checkpoints: Sequence[CheckpointRecord],
    events: Sequence[EventRecord],
    run_folder: Path,
) -> str:
    """The page; text from outside is escaped, sound is embedded."""
    sections = [
        _heading(run),
        _section("How it sounds", _scores_table(checkpoints, run.best_checkpoint)),
        _section("Listen", _players(run, checkpoints, run_folder)),
        _section("How it learned", _charts(metrics)),
        _section("What happened", _event_list(events)),
        _section("The recipe", f"<pre>{html.escape(run.job.model_dump_json(indent=1))}</pre>"),
    ]
    title = html.escape(f"{run.voice}: fine-tune {run.id}")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; media-src data:; '
        "style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{_STYLE.read_text(encoding='utf-8')}</style></head>"
        f"<body><main>{''.join(sections)}</main></body></html>\n"
    )


def _heading(run: RunRecord) -> str:
    verdict = run.verdict or run.message or f"The run is {run.state}."
    facts = [
        ("Voice", run.voice),
        ("Dataset", run.dataset),
        ("Model", run.model),
        ("Recipe", run.preset),
        ("Strategy", f"{run.strategy}, {run.num_workers} worker{'s' if run.num_workers != 1 else ''}"),
        ("Steps", f"{run.step} of {run.num_steps}"),
        ("State", str(run.state)),
        ("Started", _date(run.started_at or run.created_at)),
        ("Took", _duration(run)),
    ]
    rows = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in facts)
    return f'<h1>{html.escape(run.voice)}</h1><p class="verdict">{html.escape(verdict)}</p><dl>{rows}</dl>'


def _section(title: str, content: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{content}</section>" if content else ""


def _scores_table(checkpoints: Sequence[CheckpointRecord], best: str | None) -> str:
    if not checkpoints:
        return ""
    shown = [
        column
        for column in _COLUMNS
        if any(point.scores is not None and getattr(point.scores, column[0]) is not None for point in checkpoints)
    ]
    head = "".join(f'<th scope="col">{html.escape(title)}</th>' for _, title, _ in shown)
    rows = "".join(_scores_row(point, shown, is_best=point.name == best) for point in checkpoints)
    return f'<div class="wide"><table><tr><th scope="col">Checkpoint</th>{head}</tr>{rows}</table></div>'


def _scores_row(
    point: CheckpointRecord, columns: Sequence[tuple[str, str, Callable[[float], str]]], *, is_best: bool
) -> str:
    name = "Base model, zero-shot" if point.is_base else f"Step {point.step}"
    mark = " ★ best" if is_best else ""
    if point.scores is None:
        reason = html.escape(point.problem or f"Not evaluated ({point.state}).")
        cells = f'<td colspan="{max(1, len(columns))}">{reason}</td>'
    else:
        values = ((getattr(point.scores, field), show) for field, _, show in columns)
        cells = "".join(f"<td>{show(value) if value is not None else '-'}</td>" for value, show in values)
    style = ' class="best"' if is_best else ""
    return f'<tr{style}><th scope="row">{html.escape(name + mark)}</th>{cells}</tr>'


def _players(run: RunRecord, checkpoints: Sequence[CheckpointRecord], run_folder: Path) -> str:
    """The same sentences by the base model and by the best checkpoint, side by side."""
    base = {take.position: take for point in checkpoints if point.is_base for take in point.takes}
    tuned = {take.position: take for point in checkpoints if point.name == run.best_checkpoint for take in point.takes}
    rows = []
    for position in sorted(base.keys() | tuned.keys()):
        take = base.get(position) or tuned[position]
        origin = "said by the person too" if take.held_out else "standard sentence"
        rows.append(
            f'<tr><th scope="row">{html.escape(take.text)}<small>{origin}, seed {take.seed}</small></th>'
            f'<td data-who="Base model">{_player(base.get(position), "Base model", run_folder)}</td>'
            f'<td data-who="Fine-tuned">{_player(tuned.get(position), "Fine-tuned", run_folder)}</td></tr>'
        )
    if not rows:
        return ""
    head = '<tr><th scope="col">Sentence</th><th scope="col">Base model</th><th scope="col">Fine-tuned</th></tr>'
    return f'<div class="wide"><table class="takes">{head}{"".join(rows)}</table></div>'


def _player(take: EvaluatedTake | None, who: str, run_folder: Path) -> str:
    if take is None:
        return "-"
    try:
        sound = base64.b64encode((run_folder / take.file).read_bytes()).decode()
    except OSError:
        return "The recording is gone."
    facts = f"{take.seconds:.1f} s"
    if take.finish_reason != "eos":
        facts += ", stopped because it did not end"
    if take.transcript is not None:
        facts += f", heard: “{take.transcript}”"
    label = html.escape(f"{who}: {take.text}", quote=True)
    return (
        f'<audio controls preload="none" aria-label="{label}" src="data:audio/wav;base64,{sound}"></audio>'
        f"<small>{html.escape(facts)}</small>"
    )


def _charts(metrics: Sequence[MetricRecord]) -> str:
    def points(name: str) -> list[tuple[float, float]]:
        return [(record.step, record.measures[name]) for record in metrics if name in record.measures]

    losses = line_chart("Loss per frame", {name.replace("_", " "): points(name) for name in _LOSSES})
    rate = line_chart("Learning rate", {"learning rate": points("learning_rate")})
    gradient = line_chart("Gradient norm", {"gradient norm": points("gradient_norm")})
    note = "<p>A falling loss says that the model fits the clips; only the scores above say how it sounds.</p>"
    return f"{losses}{note}{gradient}{rate}" if losses else ""


def _event_list(events: Sequence[EventRecord]) -> str:
    items = "".join(f"<li><time>{_date(event.at)}</time> {html.escape(event.sentence)}</li>" for event in events)
    return f"<ul>{items}</ul>" if items else ""


def _date(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment))


def _duration(run: RunRecord) -> str:
    begin, end = run.started_at or run.created_at, run.ended_at or run.heartbeat_at or run.created_at
    minutes, seconds = divmod(max(0, round(end - begin)), 60)
    return f"{minutes} min {seconds} s"
