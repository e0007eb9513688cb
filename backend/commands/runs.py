"""`app.py runs`: list, show and steer fine-tunes."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from backend.commands.finetune import conclude, follow, open_runs
from backend.commands.progress import describe_seconds
from backend.commands.trash import conclude_deletion
from backend.evaluation.likeness_table import who_sounds_like_whom
from backend.evaluation.score_words import describe_errors, describe_likeness
from backend.evaluation.scores import CheckpointScores
from backend.runs.method_table import MethodRow
from backend.runs.runs import Runs
from backend.runs.storage.records import CheckpointRecord, RunRecord
from backend.settings import Settings
from backend.store.home import Home

_NEWEST_STEPS = 5


def run_list(_: argparse.Namespace, settings: Settings) -> int:
    """All of them, the newest first."""
    runs = open_runs(settings)
    runs.reconcile(resume=False)
    found = runs.list()
    if not found:
        print("There are no runs yet. `app.py finetune` starts one.", file=sys.stderr)
    for run in found:
        age = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created_at))
        print(f"{run.id}  {run.state:<11}  step {run.step}/{run.num_steps}  {run.voice}  ({run.dataset}, {age})")
    return 0


def run_show(arguments: argparse.Namespace, settings: Settings) -> int:
    """One of them, with its checkpoints and what happened."""
    runs = open_runs(settings)
    runs.reconcile(resume=False)
    run = runs.get(arguments.run_id)
    print(describe_run(runs, run))
    return 0


def describe_run(runs: Runs, run: RunRecord) -> str:
    """Everything worth knowing, in lines."""
    lines = [
        f"{run.id}: {run.voice} from {run.dataset} with {run.model}, {run.preset}, {run.strategy}, "
        f"{run.num_workers} worker(s), training {run.job.method_in_words}",
        f"{run.state}: {run.message}",
        f"step {run.step} of {run.num_steps}, attempt {run.attempt}",
    ]
    left = runs.seconds_left(run.id)
    if run.state.is_active and left is not None:
        lines.append(f"about {describe_seconds(left)} left")
    for record in list(runs.metrics(run.id, max(0, run.step - _NEWEST_STEPS))):
        lines.append(f"  step {record.step}: " + ", ".join(f"{k} {v:.4g}" for k, v in record.measures.items()))
    lines += [_describe_checkpoint(point) for point in runs.checkpoints(run.id)]
    lines += [
        f"  {time.strftime('%H:%M:%S', time.localtime(event.at))} {event.sentence}" for event in runs.events(run.id)
    ]
    if run.verdict:
        lines.append(run.verdict)
    lines += _who_sounds_like_whom(runs.checkpoints(run.id), run.best_checkpoint)
    if run.export_folder:
        lines.append(f"exported to {run.export_folder}")
    if methods := runs.methods(run.id):
        lines.append("the same clips, learnt in other ways:")
        lines += [f"  {_describe_method(row)}" for row in methods]
    return "\n".join(lines)


def _who_sounds_like_whom(checkpoints: Sequence[CheckpointRecord], best: str | None) -> list[str]:
    """The table of the best checkpoint, where the run teaches several speakers."""
    takes = next((point.takes for point in checkpoints if point.name == best), ())
    table = who_sounds_like_whom(takes)
    if table is None:
        return []
    judge = table.judge or "the model's own encoder, which is biased"
    head = f"who sounds like whom: similarity by {judge}, and in brackets how many takes are most like them"
    return [head, *(f"  {line}" for line in table.lines()), table.in_words()]


def _describe_method(row: MethodRow) -> str:
    """One way in which the clips were learnt."""
    name = "zero-shot" if row.run is None else f"{row.run.id} ({row.run.preset}, {row.run.job.method_in_words})"
    wrong = row.scores.character_error if row.scores is not None else None
    facts = [
        f"similarity {row.likeness:.3f}" if row.likeness is not None else "",
        f"characters wrong {wrong:.1%}" if wrong is not None else "",
        f"{describe_seconds(row.seconds)} of training" if row.seconds is not None else "",
        f"{row.state_bytes / 1e6:.0f} MB of memory" if row.state_bytes is not None else "",
        f"{row.size_bytes / 1e6:.1f} MB kept" if row.size_bytes is not None else "",
    ]
    return f"{name}: {', '.join(filter(None, facts)) or 'not measured'}"


def _describe_checkpoint(point: CheckpointRecord) -> str:
    name = "base model" if point.is_base else point.name
    if point.scores is None:
        return f"  {name}: {point.problem or point.state}"
    speakers = (f"    {speaker}: {_describe_scores(scores)}" for speaker, scores in point.scores.speakers.items())
    return "\n".join([f"  {name}: {_describe_scores(point.scores)}", *speakers])


def _describe_scores(scores: CheckpointScores) -> str:
    shown = scores.model_dump(exclude={"also_heard", "speakers"}, exclude_none=True)
    numbers = (f"{key.replace('_', ' ')} {value:.3g}" for key, value in shown.items() if not isinstance(value, str))
    by = [
        f"{what}: {words}"
        for what, words in (
            ("characters wrong", describe_errors(scores)),
            ("similarity", describe_likeness(scores)),
        )
        if words
    ]
    return "\n      ".join([", ".join(numbers), *by])


def run_log(arguments: argparse.Namespace, settings: Settings) -> int:
    """What it printed."""
    print(open_runs(settings).log(arguments.run_id), end="")
    return 0


def run_cancel(arguments: argparse.Namespace, settings: Settings) -> int:
    """End it."""
    open_runs(settings).cancel(arguments.run_id)
    print(f"Run {arguments.run_id} is being cancelled; its last checkpoint is kept.")
    return 0


def run_pause(arguments: argparse.Namespace, settings: Settings) -> int:
    """End it after its next checkpoint."""
    open_runs(settings).pause(arguments.run_id)
    print(f"Run {arguments.run_id} pauses after its next checkpoint.")
    return 0


def run_resume(arguments: argparse.Namespace, settings: Settings) -> int:
    """Go on from its last checkpoint, and follow it."""
    runs = open_runs(settings)
    runs.resume(arguments.run_id)
    if arguments.detach:
        return 0
    return conclude(runs, follow(runs, arguments.run_id))


def run_delete(arguments: argparse.Namespace, settings: Settings) -> int:
    """Put it into the trash, or remove it for good."""
    deleted = open_runs(settings).delete(arguments.run_id)
    return conclude_deletion(Home(settings.home_folder), deleted, for_good=arguments.for_good)


def run_export(arguments: argparse.Namespace, settings: Settings) -> int:
    """Write one of its checkpoints."""
    output, name = arguments.output, arguments.checkpoint
    for folder in open_runs(settings).export(arguments.run_id, output, name, merged=arguments.merged):
        print(folder)
    return 0


def run_report(arguments: argparse.Namespace, settings: Settings) -> int:
    """Write its page."""
    print(open_runs(settings).write_report(arguments.run_id, arguments.output))
    return 0
