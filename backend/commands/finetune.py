"""`app.py finetune`: make a voice of a dataset by fine-tuning, on this machine or a cluster."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backend.commands.checks import check_model
from backend.commands.options.shared import consent_of, optional_consent_of
from backend.commands.progress import Progress, describe_seconds
from backend.errors import SettingsError
from backend.runs.planning.request import RunRequest
from backend.runs.planning.speakers import SpeakerRequest, find_dataset
from backend.runs.runs import Runs
from backend.runs.storage.records import RunRecord
from backend.runs.storage.states import RunState
from backend.settings import Settings
from backend.store.home import Home

_NOT_TO_SET = frozenset({"dataset", "more_speakers", "voice", "model", "preset", "method", "consent"})
"""What the command asks for by itself."""

_OPTIONS_OF_THE_JOB = (
    *("strategy", "batching", "device", "min_workers", "max_failures"),
    *("lora_rank", "lora_alpha", "lora_dropout", "lora_layers"),
)
_POLL_SECONDS = 0.5
_LINES_PER_STATE = 10
_LOSSES = {"talker_loss": "talker", "code_predictor_loss": "code predictor"}


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Do it; EncoreError carries anything a person can put right."""
    runs = open_runs(settings)
    (dataset, voice), *more = name_speakers(arguments.datasets, arguments.voice)
    request = training_request(arguments, dataset, voice, more)
    # Before the seconds that planning takes to load.
    for name in arguments.datasets:
        find_dataset(settings.home_folder, name)
    check_model(arguments.model)
    optional_consent_of(arguments)
    plan = runs.plan(request).require_possible()
    # Of several speakers it is the run that knows who is missing.
    is_asked_for = runs.needs_consent(plan) and not more
    consent = consent_of(arguments) if is_asked_for else optional_consent_of(arguments)
    print("\n".join(plan.notes), file=sys.stderr)
    run_id = runs.start(plan, consent)
    if arguments.detach:
        print(run_id)
        return 0
    return conclude(runs, follow(runs, run_id))


def conclude(runs: Runs, run: RunRecord) -> int:
    """Print how a run ended; 0 when it is done, 130 when it was cancelled, 1 otherwise."""
    print(describe_end(runs, run))
    return {RunState.DONE: 0, RunState.CANCELLED: 130, RunState.PAUSED: 130}.get(run.state, 1)


def describe_end(runs: Runs, run: RunRecord) -> str:
    """The result in one line per fact."""
    lines = [f"Run {run.id} is {run.state}. {run.message}"]
    if run.verdict:
        lines.append(run.verdict)
    if run.export_folder:
        lines.append(f"Exported to {run.export_folder}; report: {runs.folder(run.id) / 'report.html'}")
    if run.state.can_resume:
        lines.append(f"Resume it with `app.py runs resume {run.id}`; its log is {runs.folder(run.id) / 'log.txt'}")
    return "\n".join(lines)


def follow(runs: Runs, run_id: str) -> RunRecord:
    """Show a run's progress until it ends; Ctrl-C cancels it, which keeps its last checkpoint.

    A second Ctrl-C only stops showing it: the run is cancelled all the same.
    """
    with Progress(unit="step", delay_seconds=0, num_lines=_LINES_PER_STATE) as progress:
        try:
            return _wait(runs, run_id, progress)
        except KeyboardInterrupt:
            progress.close()
            print("Cancelling: the last checkpoint is kept.", file=sys.stderr)
            if runs.get(run_id).state.is_active:
                runs.cancel(run_id)
            return _wait(runs, run_id, progress)


def _wait(runs: Runs, run_id: str, progress: Progress) -> RunRecord:
    while (run := runs.get(run_id)).state.is_active:
        if not runs.is_looked_after(run_id):
            # Its process was killed; the row alone would say forever that it is running.
            runs.reconcile(resume=False)
            continue
        line = describe_progress(run, runs.seconds_left(run_id), runs.newest_measures(run_id))
        progress.show(f"{run.id}: {run.message}", run.step, run.num_steps, line=line, stage=run.state)
        time.sleep(_POLL_SECONDS)
    return run


def describe_progress(run: RunRecord, seconds_left: float | None, measures: dict[str, float]) -> str:
    """One line about a run that is under way."""
    if run.state is not RunState.RUNNING or not run.step:
        return f"{run.id}: {run.state}. {run.message}"
    parts = [f"{run.id}: step {run.step} of {run.num_steps}"]
    for name, words in _LOSSES.items():
        if name in measures:
            parts.append(f"{words} {measures[name]:.3f}")
    if seconds_left is not None:
        parts.append(f"about {describe_seconds(seconds_left)} left")
    return ", ".join(parts)


def open_runs(settings: Settings) -> Runs:
    """The runs of this person's home."""
    home = settings.home_folder
    return Runs(Home(home))


def name_speakers(datasets: Sequence[str], voices: Sequence[str]) -> list[tuple[str, str]]:
    """Each dataset with the name of its voice. Raises SettingsError where their numbers differ."""
    if voices and len(voices) != len(datasets):
        raise SettingsError(
            f"There are {len(datasets)} datasets and {len(voices)} voices. Give --voice once for each dataset, in "
            "their order, or leave it out: then the voices are called like their datasets."
        )
    return list(zip(datasets, voices or [Path(dataset).name for dataset in datasets], strict=True))


def training_request(
    arguments: argparse.Namespace, dataset: str | None, voice: str, more: Sequence[tuple[str, str]] = ()
) -> RunRequest:
    """What the command line asks for; `more` are further datasets with their voices. Raises SettingsError."""
    return RunRequest(
        model=arguments.model,
        dataset=dataset,
        voice=voice,
        more_speakers=tuple(SpeakerRequest(dataset=one, voice=name) for one, name in more),
        preset=arguments.preset,
        method=arguments.method,
        accept_synthetic=arguments.accept_synthetic,
        options=training_options(arguments),
    )


def training_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Options that the person gave, by the names that jobs know.

    Raises:
        SettingsError: `--set` without a name and a value.
    """
    options: dict[str, Any] = {"num_workers": arguments.workers}
    for name in _OPTIONS_OF_THE_JOB:
        if (value := getattr(arguments, name)) is not None:
            options[name] = value
    for given in arguments.set:
        name, equals, value = given.partition("=")
        if not equals or not name:
            raise SettingsError(f"--set {given} is not of the form option=value. Correct it.")
        if name.strip() in _NOT_TO_SET:
            raise SettingsError(f"--set cannot change {name.strip()}. `--help` shows where it is given.")
        options[name.strip()] = _parse(value)
    return options


def _parse(value: str) -> Any:
    """Numbers, lists and true or false as JSON has them; everything else is text."""
    try:
        return json.loads(value)
    except ValueError:
        return value
