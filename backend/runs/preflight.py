"""A run before it starts: the job, what it will take, and every reason why it could not work."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from backend.runs.cluster import Machine
from backend.runs.errors import RunNotPossible
from backend.runs.launch import LaunchOptions, LaunchPlan
from backend.runs.records import RunRows
from backend.runs.run_folder import RunFolder
from backend.store.database import Database
from backend.voices.consent import Consent, require_consent
from backend.voices.errors import VoiceNameTaken, VoiceUnknown
from backend.voices.names import clean_name, name_key
from backend.voices.registry import Voices
from training.data.code_rows import ROWS_FILE, DatasetCard, read_card, read_code_rows
from training.job import FineTuneJob
from training.model.checkpoint.reading import read_config
from training.model.hub import resolve_model
from training.worker import plan_data

DATASETS_FOLDER = "datasets"
FEWEST_CLIPS = 2
"""One to learn from and one to judge with, at the very least."""


class Prepared(BaseModel):
    """A run that could start: show it, then start it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_id: str
    dataset: str
    model: str
    preset: str
    job: FineTuneJob
    launch: LaunchPlan
    num_steps: int
    consent: Consent
    remarks: tuple[str, ...]
    """What a person should know before starting, one plain sentence each."""


def prepare(
    database: Database,
    home: Path,
    *,
    dataset: str | Path,
    voice: str,
    model: str,
    preset: str,
    consent: Consent | None,
    num_cpus: int | None,
    options: Mapping[str, Any],
) -> Prepared:
    """See `Runs.prepare`."""
    agreed = require_consent(consent)
    launch_options, job_options = _split(options)
    name = _free_name(database, home, voice, keeps_voice=launch_options.name_voice)
    folder, card = _find_dataset(home, dataset)
    num_trained, num_held_out = _check_clips(folder, card)
    base_model = resolve_model(model)
    _check_model(base_model, card, model)
    machine = Machine.here(num_cpus)
    run_id = _new_run_id()
    job = _make_job(
        {
            **_preset(preset, num_trained),
            **job_options,
            "voice": name,
            "dataset": folder,
            "dataset_digest": card.digest,
            "base_model": base_model,
            "output": RunFolder.of(home, run_id).path,
        }
    )
    launch = _plan_launch(job, machine, launch_options, run_id)
    _, _, batches = plan_data(job)
    return Prepared(
        run_id=run_id,
        dataset=card.name,
        model=model,
        preset=preset,
        job=job,
        launch=launch,
        num_steps=batches.num_steps,
        consent=agreed,
        remarks=(),
    )


def _split(options: Mapping[str, Any]) -> tuple[LaunchOptions, dict[str, Any]]:
    """Options of the launch, and those of the job, which names the misspelt ones."""
    launch = {name: value for name, value in options.items() if name in LaunchOptions.model_fields}
    try:
        chosen = LaunchOptions.model_validate(launch)
    except ValidationError as error:
        first = error.errors()[0]
        raise RunNotPossible(f"{first['loc'][0]} cannot be {first['input']!r}: {first['msg']}. Correct it.") from error
    return chosen, {name: value for name, value in options.items() if name not in launch}


def _free_name(database: Database, home: Path, voice: str, *, keeps_voice: bool) -> str:
    """The name as it will be stored, if nobody has it or is about to."""
    name = clean_name(voice)
    if not keeps_voice:
        return name
    try:
        Voices(database, home).get(name)
    except VoiceUnknown:
        pass
    else:
        raise VoiceNameTaken(f"There is a voice {name!r} already. Choose another name, or delete that voice first.")
    for run in RunRows(database).list():
        if run.state.is_active and name_key(run.voice) == name_key(name):
            raise VoiceNameTaken(f"Run {run.id} is making a voice {name!r} already. Choose another name, or cancel it.")
    return name


def _find_dataset(home: Path, dataset: str | Path) -> tuple[Path, DatasetCard]:
    """A dataset of the home by its name, or any by its folder."""
    named = home / DATASETS_FOLDER / str(dataset)
    folder = named if named.is_dir() else Path(dataset).expanduser().absolute()
    if not folder.is_dir():
        there = sorted(path.name for path in named.parent.iterdir()) if named.parent.is_dir() else []
        known = f"There are: {', '.join(there[:20])}." if there else "Build one with `app.py dataset build`."
        raise RunNotPossible(f"There is no dataset {str(dataset)[:100]!r}. {known}")
    return folder, read_card(folder)


def _check_clips(folder: Path, card: DatasetCard) -> tuple[float, int]:
    """Seconds to train on, and clips in all."""
    rows = read_code_rows(folder / ROWS_FILE)
    if not rows:
        raise RunNotPossible(f"The dataset {card.name} has no accepted clips. Accept some, or add recordings.")
    if len(rows) < FEWEST_CLIPS:
        raise RunNotPossible(
            f"The dataset {card.name} has one accepted clip, and a fine-tune needs {FEWEST_CLIPS} or more. "
            "Add recordings, or clone the voice without fine-tuning."
        )
    return sum(row.seconds for row in rows if not row.held_out), len(rows)


def _check_model(folder: Path, card: DatasetCard, model: str) -> None:
    """Refuse a model that is no base model, or that does not speak the dataset's codes."""
    config = read_config(folder)
    if config.tts_model_type != "base":
        raise RunNotPossible(
            f"{model} is a {config.tts_model_type} checkpoint, and only base ones can be fine-tuned. "
            "Choose a base checkpoint, or the base variant of a fine-tuned voice."
        )
    if fingerprint_of(folder) != card.tokenizer_fingerprint:
        raise RunNotPossible(
            f"The dataset {card.name} was made with {card.model}, whose codes {model} does not understand. "
            f"Build the dataset again with {model}, or fine-tune {card.model}."
        )


def _plan_launch(job: FineTuneJob, machine: Machine, options: LaunchOptions, run_id: str) -> LaunchPlan:
    """Where it will run; refused when there is no room for it."""
    use_gpu = job.device != "cpu" and machine.num_gpus > 0 and machine.address is None
    if job.device == "cuda" and machine.address is not None:
        use_gpu = True
    fewest = options.min_workers or job.num_workers
    if fewest > job.num_workers:
        raise RunNotPossible(f"min_workers is {fewest}, more than the {job.num_workers} workers. Lower it.")
    if machine.address is None:
        kind, there = ("GPU", machine.num_gpus) if use_gpu else ("processor", machine.num_cpus)
        if job.num_workers > there:
            plural = "s" if there != 1 else ""
            raise RunNotPossible(
                f"{job.num_workers} workers need a {kind} each, and this machine has {there} {kind}{plural}. "
                f"Use {there} or fewer, or set RAY_ADDRESS to a cluster."
            )
    return LaunchPlan(
        **options.model_dump(), run_id=run_id, machine=machine, max_workers=job.num_workers, use_gpu=use_gpu
    )


def _new_run_id() -> str:
    """Sorts by time, and two started in the same second differ."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
