"""`app.py pipeline`: from recordings to a fine-tuned voice with a report, in one command."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from typing import TYPE_CHECKING

from backend.commands.checks import check_model, check_recordings, check_whisper
from backend.commands.dataset import keep_in_storage, show_build
from backend.commands.finetune import conclude, follow, training_request
from backend.commands.loading import loading
from backend.commands.options.shared import consent_of
from backend.commands.output import check_output
from backend.commands.progress import Progress
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.views import BuildProgress
from backend.dataset.datasets import Datasets
from backend.dataset.failed_build import removed_if_empty
from backend.runs.runs import Runs
from backend.runs.storage.states import RunState
from backend.settings import Settings
from backend.store.home import Home
from training.data.code_rows import TrainingDataError

if TYPE_CHECKING:
    from backend.runs.planning.plan import RunPlan

_LINES_PER_STAGE = 5
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Do it; EncoreError carries anything a person can put right."""
    # What can be wrong at the end is found out at the beginning.
    consent = consent_of(arguments)
    request = training_request(arguments, None, arguments.voice)
    if arguments.report is not None:
        check_output(arguments.report, "report.html")
    check_recordings([*arguments.recordings, *arguments.transcripts])
    check_whisper(arguments.whisper)
    check_model(arguments.model)
    home = settings.home_folder
    opened = Home(home)
    datasets, runs = Datasets(opened), Runs(opened)

    def show_plan(plan: RunPlan) -> None:
        progress.close()
        dataset = datasets.show(build.name)
        summary = f"Dataset {build.name}: {len(dataset.clips)} clips, {dataset.minutes():.1f} min in all."
        print("\n".join((summary, *plan.notes)), file=sys.stderr)

    build = BuildJob.parse(
        arguments.dataset or dataset_name(arguments.voice),
        arguments.recordings,
        model=arguments.model,
        whisper=arguments.whisper,
        language=arguments.language,
        transcripts=arguments.transcripts,
    )
    if arguments.dataset is None and not _goes_on(datasets, build):
        build = build.model_copy(update={"name": datasets.free_name(build.name)})
    with loading():
        from backend.pipeline import build_and_start  # noqa: PLC0415 - seconds

    with (
        removed_if_empty(opened, datasets, build.name),
        Progress(delay_seconds=0, num_lines=_LINES_PER_STAGE) as progress,
    ):

        def show(state: BuildProgress) -> None:
            show_build(progress, build.name, state)

        try:
            run_id = build_and_start(datasets, runs, build, request, consent, on_progress=show, on_plan=show_plan)
        except TrainingDataError as error:
            # It says that nothing is left to learn from; why, differs from clip to clip.
            if not datasets.show(build.name).clips:
                raise
            raise TrainingDataError(f"{error} `app.py dataset show {build.name}` says more.") from error
    ended = follow(runs, run_id)
    keep_in_storage(settings)
    if arguments.report is not None and ended.state is RunState.DONE:
        shutil.copyfile(runs.write_report(ended.id), arguments.report)
        print(f"Report: {arguments.report}")
    return conclude(runs, ended)


def _goes_on(datasets: Datasets, build: BuildJob) -> bool:
    """Whether the dataset of that name, if there is one, is made of these recordings."""
    return build.name not in datasets.list() or set(datasets.job(build.name).recordings) <= set(build.recordings)


def dataset_name(voice: str) -> str:
    """A voice's name as far as it can name a folder."""
    return _NO_NAME.sub("-", voice).strip("-")[:64] or "voice"
