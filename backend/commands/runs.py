"""`app.py runs`: list, show and steer fine-tunes."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from backend.commands.finetune import conclude, follow, open_runs
from backend.commands.progress import describe_seconds
from backend.commands.trash import add_for_good_option, conclude_deletion
from backend.evaluation.score_words import describe_errors, describe_likeness
from backend.runs.runs import Runs
from backend.runs.storage.records import CheckpointRecord, RunRecord
from backend.settings import Settings

_NEWEST_STEPS = 5


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    """Describe the command's options."""
    parser = commands.add_parser("runs", help="list, show and steer fine-tunes", description=__doc__)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="all runs, the newest first")
    listing.set_defaults(run=lambda arguments: _list(open_runs(settings)))
    for name, verb, summary in (
        ("export", _export, "write its best checkpoint, or another one"),
        ("show", _show, "state, scores and what happened"),
        ("log", _log, "what it printed"),
        ("cancel", _cancel, "end it; its last checkpoint is kept"),
        ("pause", _pause, "end it after a checkpoint, to be resumed"),
        ("resume", _resume, "go on from its last checkpoint, and follow it"),
        ("report", _report, "write its page"),
    ):
        one = verbs.add_parser(name, help=summary, description=summary)
        one.add_argument("run_id", metavar="RUN")
        if name == "resume":
            one.add_argument("--detach", action="store_true", help="return at once")
        if name == "export":
            one.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="a new folder")
            one.add_argument("--checkpoint", metavar="NAME", help="such as step-00000120 (default: the best one)")
            one.add_argument(
                "--merged",
                action="store_true",
                help="of an adapter: whole models in the public format, custom_voice and base, as other runs have",
            )
        if name == "report":
            one.add_argument("--output", type=Path, metavar="FILE.html", help="(default: in the run's folder)")
        one.set_defaults(run=lambda arguments, verb=verb: verb(open_runs(settings), arguments))
    delete = verbs.add_parser("delete", help="forget it and remove its files")
    delete.add_argument("run_id", metavar="RUN")
    add_for_good_option(delete)
    delete.set_defaults(run=lambda arguments: _delete(settings, arguments))


def _list(runs: Runs) -> int:
    runs.reconcile(resume=False)
    found = runs.list()
    if not found:
        print("There are no runs yet. `app.py finetune` starts one.", file=sys.stderr)
    for run in found:
        age = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created_at))
        print(f"{run.id}  {run.state:<11}  step {run.step}/{run.num_steps}  {run.voice}  ({run.dataset}, {age})")
    return 0


def _show(runs: Runs, arguments: argparse.Namespace) -> int:
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
    if run.export_folder:
        lines.append(f"exported to {run.export_folder}")
    return "\n".join(lines)


def _describe_checkpoint(point: CheckpointRecord) -> str:
    name = "base model" if point.is_base else point.name
    if point.scores is None:
        return f"  {name}: {point.problem or point.state}"
    shown = point.scores.model_dump(exclude={"also_heard"}, exclude_none=True)
    numbers = (f"{key.replace('_', ' ')} {value:.3g}" for key, value in shown.items() if not isinstance(value, str))
    by = [
        f"{what}: {words}"
        for what, words in (
            ("characters wrong", describe_errors(point.scores)),
            ("similarity", describe_likeness(point.scores)),
        )
        if words
    ]
    return "\n    ".join([f"  {name}: " + ", ".join(numbers), *by])


def _log(runs: Runs, arguments: argparse.Namespace) -> int:
    print(runs.log(arguments.run_id), end="")
    return 0


def _cancel(runs: Runs, arguments: argparse.Namespace) -> int:
    runs.cancel(arguments.run_id)
    print(f"Run {arguments.run_id} is being cancelled; its last checkpoint is kept.")
    return 0


def _pause(runs: Runs, arguments: argparse.Namespace) -> int:
    runs.pause(arguments.run_id)
    print(f"Run {arguments.run_id} pauses after its next checkpoint.")
    return 0


def _resume(runs: Runs, arguments: argparse.Namespace) -> int:
    runs.resume(arguments.run_id)
    if arguments.detach:
        return 0
    return conclude(runs, follow(runs, arguments.run_id))


def _delete(settings: Settings, arguments: argparse.Namespace) -> int:
    deleted = open_runs(settings).delete(arguments.run_id)
    return conclude_deletion(settings, deleted, for_good=arguments.for_good)


def _export(runs: Runs, arguments: argparse.Namespace) -> int:
    for folder in runs.export(arguments.run_id, arguments.output, arguments.checkpoint, merged=arguments.merged):
        print(folder)
    return 0


def _report(runs: Runs, arguments: argparse.Namespace) -> int:
    print(runs.write_report(arguments.run_id, arguments.output))
    return 0
