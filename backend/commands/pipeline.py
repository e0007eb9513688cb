"""`app.py pipeline`: from recordings to a fine-tuned voice with a report, in one command."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from pathlib import Path

from backend.commands.consent_options import consent_of
from backend.commands.finetune import add_training_options, conclude, training_options
from backend.commands.run_progress import follow
from backend.dataset.clips.views import BuildState, DatasetView
from backend.dataset.datasets import Datasets, new_job
from backend.errors import OutputRefused, RecordingMissing
from backend.runs.runs import Runs
from backend.runs.storage.states import RunState
from backend.settings import Settings
from backend.store.database import Database
from backend.voices.consent import require_consent
from training.data.code_rows import DatasetError

_POLL_SECONDS = 0.5
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    """Describe the command's options."""
    parser = commands.add_parser("pipeline", help="recordings to a fine-tuned voice in one go", description=__doc__)
    parser.add_argument("recordings", nargs="+", type=Path, metavar="RECORDING", help="files, folders or archives")
    add_training_options(parser, settings)
    parser.add_argument("--dataset", metavar="NAME", help="name of the dataset (default: made of the voice's)")
    parser.add_argument("--language", default="auto", help="spoken in the recordings (default: %(default)s)")
    parser.add_argument(
        "--transcripts", type=Path, action="append", default=[], metavar="PATH", help="texts of the recordings"
    )
    parser.add_argument("--whisper", metavar="MODEL", help="name or path of a Whisper model, or none")
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="where the report goes as well")
    parser.set_defaults(run=lambda arguments: run(arguments, settings))


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Do it; EncoreError carries anything a person can put right."""
    # What can be wrong at the end is found out at the beginning.
    consent = require_consent(consent_of(arguments))
    options = training_options(arguments)
    if arguments.report is not None:
        check_report(arguments.report)
    for recording in arguments.recordings:
        if not recording.exists():
            raise RecordingMissing(str(recording), problem="does not exist")
    home = settings.home_folder
    database = Database(home)
    Runs(database, home).check_wish(arguments.voice, arguments.model, arguments.preset, **options)
    dataset = build_dataset(Datasets(database, home), arguments)
    print(f"Dataset {dataset.name}: {len(dataset.clips)} clips, {dataset.minutes():.1f} min in all.", file=sys.stderr)
    runs = Runs(database, home)
    prepared = runs.prepare(
        dataset.name, arguments.voice, arguments.model, arguments.preset, consent=consent, **options
    )
    print("\n".join(prepared.sentences), file=sys.stderr)
    ended = follow(runs, runs.start(prepared))
    if arguments.report is not None and ended.state is RunState.DONE:
        shutil.copyfile(runs.write_report(ended.id), arguments.report)
        print(f"Report: {arguments.report}")
    return conclude(runs, ended)


def check_report(path: Path) -> None:
    """Refuse a destination before minutes are spent on its content. Raises OutputRefused."""
    if path.is_dir():
        raise OutputRefused(f"{path} is a folder. Name a file to write, such as {path / 'report.html'}.")
    if not path.absolute().parent.is_dir():
        raise OutputRefused(f"The folder {path.absolute().parent} does not exist. Create it first.")


def build_dataset(datasets: Datasets, arguments: argparse.Namespace) -> DatasetView:
    """Build in a process of its own and show how far it is; Ctrl-C cancels it.

    Raises:
        EncoreError: it failed or was cancelled.
    """
    job = new_job(
        arguments.dataset or dataset_name(arguments.voice),
        arguments.recordings,
        model=arguments.model,
        whisper=arguments.whisper,
        language=arguments.language,
        transcripts=arguments.transcripts,
    )
    datasets.start_build(job)
    told = ""
    try:
        while (progress := datasets.progress(job.name)).is_running:
            stages = [f"{stage.stage} {stage.num_done}/{stage.num_total or '?'}" for stage in progress.stages]
            if (now := ", ".join(stages)) != told:
                print(f"Dataset {job.name}: {now}", file=sys.stderr, flush=True)
                told = now
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        datasets.cancel(job.name)
        raise
    if progress.state is not BuildState.DONE:
        raise DatasetError(progress.problem or f"The dataset {job.name} is {progress.state}. Run the command again.")
    return datasets.show(job.name)


def dataset_name(voice: str) -> str:
    """A voice's name as far as it can name a folder."""
    return _NO_NAME.sub("-", voice).strip("-")[:64] or "voice"
