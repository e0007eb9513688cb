"""A run before it starts: the job, what it will take, and every reason why it could not work."""

from __future__ import annotations

import difflib
import math
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict

from backend.evaluation.plan import EvaluationPlan, plan_judging
from backend.runs.errors import RunNotPossible
from backend.runs.planning.launch import LaunchOptions, LaunchPlan
from backend.runs.planning.options import check_workers, split_options
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.store.database import Database
from backend.voices.consent import Consent, require_consent
from backend.voices.errors import VoiceNameTaken, VoiceNotFound
from backend.voices.names import clean_name, name_key
from backend.voices.registry import Voices
from training import preflight as trainable
from training.data.code_rows import ROWS_FILE, DatasetCard, read_card, read_code_rows
from training.job import FineTuneJob
from training.machine import Machine
from training.model.checkpoint.names import SPEECH_TOKENIZER_FOLDER
from training.model.checkpoint.reading import find_weights, load_weights, read_config, read_speech_tokenizer_config
from training.model.hub.hub import resolve_model
from training.model.speech_tokenizer.fingerprint import tokenizer_fingerprint
from training.model.speech_tokenizer.tokenizer import SpeechTokenizer
from training.plan import RunPlan
from training.presets import PRESETS, Preset, preset_fields
from training.worker import plan_data

DATASETS_FOLDER = "datasets"
MIN_CLIPS = 2
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
    judging: EvaluationPlan
    consent: Consent
    plan: RunPlan
    """What it will take: steps, minutes, memory per worker, disk."""

    @property
    def num_steps(self) -> int:
        """Of the whole run."""
        return self.plan.num_steps

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a person should know before starting, one plain sentence each."""
        return describe(self)


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
    chosen, job_options = split_options(options)
    name = _free_name(database, home, voice, keeps_voice=chosen.name_voice)
    folder, card = _find_dataset(home, dataset)
    check_clips(folder, card)
    base_model = resolve_model(model)
    check_model(base_model, card, model)
    run_id = _new_run_id()
    fixed = {
        "voice": name,
        "dataset": folder,
        "dataset_digest": card.digest,
        "base_model": base_model,
        "output": RunFolder.of(home, run_id).path,
        # The best checkpoint is exported once all have been listened to, which is seldom the last.
        "export_at_end": False,
    }
    # A misspelt option is told before minutes of reading, whatever the preset would say.
    first = FineTuneJob.parse({**job_options, **fixed})
    _, training_set, _ = plan_data(first)
    job = FineTuneJob.parse({**preset_fields(_check_preset(preset), training_set, first), **job_options, **fixed})
    machine = Machine.here(num_cpus)
    plan = _check_resources(job, machine, chosen)
    return Prepared(
        run_id=run_id,
        dataset=card.name,
        model=model,
        preset=preset,
        job=job,
        launch=_plan_launch(job, machine, chosen, run_id),
        judging=plan_judging(
            folder,
            base_model,
            speaker=training_set.speaker_D.tolist(),
            # Without judging it is still what knows the voice's embedding and reference.
            num_held_out=chosen.num_held_out if chosen.judge else 1,
            num_standard=chosen.num_standard,
            seed=job.seed,
        ),
        consent=agreed,
        plan=plan,
    )


def check_wish(
    database: Database,
    home: Path,
    *,
    voice: str,
    model: str,
    preset: str,
    num_cpus: int | None,
    options: Mapping[str, Any],
) -> None:
    """Refuse, before there is a dataset, what would be refused whatever it held.

    Raises:
        EncoreError: the name is taken, an option is wrong, the model or the strategy cannot be used here.
    """
    chosen, job_options = split_options(options)
    name = _free_name(database, home, voice, keeps_voice=chosen.name_voice)
    _check_preset(preset)
    nothing = {"dataset": home, "dataset_digest": "not made yet", "output": home, "base_model": resolve_model(model)}
    job = FineTuneJob.parse({**job_options, "voice": name, **nothing})
    check_workers(job, chosen)
    room = _room(job, Machine.here(num_cpus))
    found = trainable.model_problems(job), trainable.machine_problems(job, room), trainable.strategy_problems(job)
    if problems := [problem for kind in found for problem in kind]:
        raise RunNotPossible(" ".join(problems))


def describe(prepared: Prepared) -> tuple[str, ...]:
    """What a run will take and what to mind."""
    plan, job = prepared.plan, prepared.job
    workers = "1 worker" if job.num_workers == 1 else f"{job.num_workers} workers"
    told = [
        f"{plan.num_clips} clips with {plan.data_minutes:.1f} min of speech, {plan.num_steps} steps, "
        f"about {max(1, math.ceil(plan.minutes))} min on {workers}.",
        f"Each worker needs about {plan.memory.total / 2**30:.1f} GiB of memory; checkpoints and export take up to "
        f"{plan.disk_bytes / 1e9:.1f} GB of disk.",
    ]
    if plan.num_too_long:
        told.append(f"{plan.num_too_long} clips are too long to train on and are left out.")
    if not any(sentence.held_out for sentence in prepared.judging.sentences):
        told.append("No clip is held out, so checkpoints are judged by sentences that were trained on.")
    if prepared.launch.machine.address is not None:
        gpus = ", on its GPUs if there are enough" if job.device == "auto" else ""
        told.append(
            f"It runs on the Ray cluster at {prepared.launch.machine.address}{gpus}; the cluster must see {job.output}."
        )
    return tuple(told)


def _free_name(database: Database, home: Path, voice: str, *, keeps_voice: bool) -> str:
    """The name as it will be stored, if nobody has it or is about to."""
    name = clean_name(voice)
    if not keeps_voice:
        return name
    try:
        Voices(database, home).get(name)
    except VoiceNotFound:
        pass
    else:
        raise VoiceNameTaken(f"There is a voice {name!r} already. Choose another name, or delete that voice first.")
    for run in RunTable(database).list():
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


def check_clips(folder: Path, card: DatasetCard) -> None:
    """Refuse a dataset with too little in it. Raises RunNotPossible."""
    rows = read_code_rows(folder / ROWS_FILE)
    if not rows:
        raise RunNotPossible(f"The dataset {card.name} has no accepted clips. Accept some, or add recordings.")
    if len(rows) < MIN_CLIPS:
        raise RunNotPossible(
            f"The dataset {card.name} has one accepted clip, and a fine-tune needs {MIN_CLIPS} or more. "
            "Add recordings, or clone the voice without fine-tuning."
        )


def check_model(folder: Path, card: DatasetCard, model: str) -> None:
    """Refuse a model that is no base model, or that does not speak the dataset's codes. Raises RunNotPossible."""
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


def fingerprint_of(folder: Path) -> str:
    """Which codes a checkpoint folder speaks."""
    with torch.device("meta"):
        tokenizer = SpeechTokenizer(read_speech_tokenizer_config(folder))
    files = find_weights(folder / SPEECH_TOKENIZER_FOLDER)
    load_weights(tokenizer, files, "", dtype=torch.float32, device=torch.device("cpu"))
    return tokenizer_fingerprint(tokenizer)


def _check_preset(name: str) -> Preset:
    for preset in PRESETS:
        if preset == name:
            return preset
    near = difflib.get_close_matches(name, PRESETS, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise RunNotPossible(f"There is no preset {name[:40]!r}; there are {', '.join(PRESETS)}.{hint}")


def _check_resources(job: FineTuneJob, machine: Machine, options: LaunchOptions) -> RunPlan:
    """What the run will take, if there is room for it; of a cluster only its own answer at the start counts."""
    check_workers(job, options)
    return trainable.preflight(job, _room(job, machine))


def _room(job: FineTuneJob, machine: Machine) -> trainable.Machine:
    """Where there is to be room for a job: on a cluster, as far as anybody knows before it is joined."""
    if machine.address is None:
        return trainable.Machine(num_cpus=machine.num_cpus, num_gpus=machine.num_gpus)
    gpus = job.num_workers if job.device == "cuda" else 0
    return trainable.Machine(num_cpus=job.num_workers, num_gpus=gpus, where=f"the cluster at {machine.address}")


def _plan_launch(job: FineTuneJob, machine: Machine, options: LaunchOptions, run_id: str) -> LaunchPlan:
    """Where it will run."""
    use_gpu = job.device == "cuda" or (job.device == "auto" and machine.address is None and machine.num_gpus > 0)
    return LaunchPlan(
        **options.model_dump(), run_id=run_id, machine=machine, max_workers=job.num_workers, use_gpu=use_gpu
    )


def _new_run_id() -> str:
    """Sorts by time, and two started in the same second differ."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
