"""A run is planned here, once: its job, what it will take, what it is evaluated by, and what stands in its way."""

from __future__ import annotations

import difflib
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import psutil
import torch
from pydantic import BaseModel, ConfigDict

from backend.dataset.storage.dataset_table import DatasetTable
from backend.evaluation.plan import EvaluationPlan, plan_evaluation
from backend.runs.errors import RunInvalid
from backend.runs.planning.launch import FORMER_NAMES, LaunchOptions, LaunchPlan
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.store.home import Home
from backend.voices.errors import VoiceNameTaken, VoiceNotFound
from backend.voices.names import clean_name, name_key
from backend.voices.registry import Voices
from training.data.code_rows import ROWS_FILE, CodeRow, DatasetCard, read_card, read_code_rows
from training.data.training_set import TrainingSet
from training.estimate import RunEstimate, estimate_run, free_bytes
from training.former_names import with_current_names
from training.job import PRESETS, STRATEGIES, FineTuneJob, Method, MethodChoice, Preset, Strategy
from training.job_data import plan_batches, read_data
from training.machine import Machine
from training.memory_plan import Tensors, WorkerMemory, network_tensors, worker_memory
from training.model.checkpoint.names import SPEECH_TOKENIZER_FOLDER
from training.model.checkpoint.reading import find_weights, load_weights, read_config, read_speech_tokenizer_config
from training.model.codec.speech_tokenizer import SpeechTokenizer, tokenizer_fingerprint
from training.model.config import ModelConfig
from training.model.hub.hub import resolve_model
from training.model.prompt.length import FRAMES_PER_SECOND
from training.preflight import disk_problems, job_problems, uses_gpus
from training.presets import preset_fields
from training.strategies.learner import frozen_dtype

DATASETS_FOLDER = "datasets"
MIN_CLIPS = 2
"""One to learn from and one to evaluate with, at the very least."""

WORKER_COUNTS = (1, 2, 4, 8)
LITTLE_MINUTES, MUCH_MINUTES = 3.0, 30.0
"""With less there is not enough to repeat; with more, longer training still finds something new."""

_UNNAMED = "voice"
_DECIDED_HERE = frozenset({"voice", "dataset", "dataset_digest", "base_model", "output", "export_at_end", "method"})


class RunRequest(BaseModel):
    """The fine-tune that a user asks for.

    Attributes:
        model: mini, a checkpoint folder or a hub id; must be on this machine unless a voice is named.
        dataset: name of one in the home, or its folder; None while it is yet to be built.
        voice: name of the new voice; None while the run is only looked at.
        preset: quick, standard or thorough; chosen by the amount of speech when None.
        method: full trains all weights, lora an adapter; auto trains an adapter where all weights do not fit.
        accept_synthetic: learn also from recordings that Encore made.
        options: fields of `FineTuneJob` and `LaunchOptions` that the preset shall not decide.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    dataset: str | Path | None = None
    voice: str | None = None
    preset: str | None = "standard"
    method: MethodChoice = "auto"
    accept_synthetic: bool = False
    options: Mapping[str, Any] = {}


class MemoryCell(BaseModel):
    """What a worker would hold with one strategy and one number of workers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    strategy: Strategy
    num_workers: int
    memory: WorkerMemory


class DataPlan(BaseModel):
    """The part of a plan that depends on the dataset.

    Attributes:
        dataset: its name.
        preset: as asked for, or as chosen.
        estimate: steps, minutes, memory and disk.
        evaluation: what checkpoints will speak.
        memory: of every strategy and number of workers.
        worker_bytes: memory that each worker could have on this machine; None where that is not known.
        full_bytes: memory that a worker would need to train all weights, where an adapter was chosen for that reason.
        free_disk_bytes: where the run will be stored.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: str
    preset: Preset
    estimate: RunEstimate
    evaluation: EvaluationPlan
    memory: tuple[MemoryCell, ...]
    worker_bytes: int | None
    full_bytes: int | None = None
    free_disk_bytes: int


class RunPlan(BaseModel):
    """A run as it would be: to be shown, then started.

    Attributes:
        problems: why it cannot start, one sentence each; empty when it can.
        data: None while the dataset is yet to be built.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_id: str
    request: RunRequest
    job: FineTuneJob
    launch: LaunchPlan
    problems: tuple[str, ...]
    data: DataPlan | None = None

    def require_possible(self) -> Self:
        """The plan itself. Raises RunInvalid with all of its problems."""
        if self.problems:
            raise RunInvalid(" ".join(self.problems))
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """What the run will take and what to be aware of, one sentence each; none without a dataset."""
        if self.data is None:
            return ()
        estimate, job = self.data.estimate, self.job
        workers = "1 worker" if job.num_workers == 1 else f"{job.num_workers} workers"
        notes = [
            f"{estimate.num_clips} clips with {estimate.data_minutes:.1f} min of speech, {estimate.num_steps} steps, "
            f"about {max(1, math.ceil(estimate.minutes))} min on {workers}.",
            f"Each worker needs about {estimate.memory.total / 2**30:.1f} GiB of memory; checkpoints and export take "
            f"up to {estimate.disk_bytes / 1e9:.1f} GB of disk.",
        ]
        if job.method == "lora":
            notes.append(f"Trained is {job.method_in_words}; the weights of the base model stay as they are.")
        if (needed := self.data.full_bytes) is not None and (available := self.data.worker_bytes) is not None:
            notes.append(
                f"All weights would need {needed / 2**30:.1f} GiB, and a worker has {available / 2**30:.1f} GiB."
            )
        if estimate.num_too_long:
            notes.append(f"{estimate.num_too_long} clips are too long to train on and are left out.")
        if not any(sentence.held_out for sentence in self.data.evaluation.sentences):
            notes.append("No clip is held out, so checkpoints are evaluated on sentences that were trained on.")
        if (address := self.launch.machine.address) is not None:
            gpus = ", on its GPUs if it has enough" if job.device == "auto" else ""
            notes.append(f"It runs on the Ray cluster at {address}{gpus}; the cluster must see {job.output}.")
        return tuple(notes)


def plan_run(request: RunRequest, home: Home, num_cpus: int | None = None) -> RunPlan:
    """Plan a run and check all that can be checked before it starts; nothing is stored.

    Args:
        request: what is asked for. Without a dataset only what does not depend on one is planned and checked.
        home: where the run would be kept.
        num_cpus: how many workers may share this machine; as many as it has processors when None.

    Raises:
        EncoreError: there is nothing to plan: an option is wrong, the name is taken, data or model cannot be read.
    """
    chosen, job_options = _split_options(request.options)
    method = _choose_method(request, job_options)
    preset = _check_preset(request.preset) if request.preset is not None else None
    run_id = _new_run_id()
    fixed = _fix_options(request, home, run_id, method=method, keeps_voice=chosen.name_voice)
    machine = Machine.here(num_cpus)
    if request.dataset is None:
        draft = {**job_options, **fixed, "dataset": home.folder, "dataset_digest": "not built yet"}
        job = FineTuneJob.parse({**draft, "base_model": resolve_model(request.model)})
        launch = _plan_launch(job, machine, chosen, run_id)
        return RunPlan(run_id=run_id, request=request, job=job, launch=launch, problems=_problems(job, launch))
    folder, card = _find_dataset(home.folder, request.dataset)
    rows = read_code_rows(folder / ROWS_FILE)
    _check_clips(rows, card)
    base_model = resolve_model(request.model)
    _check_model(base_model, card, request.model)
    job = FineTuneJob.parse(
        {**job_options, **fixed, "dataset": folder, "dataset_digest": card.digest, "base_model": base_model}
    )
    training_set = read_data(job, rows)
    preset = preset or recommend_preset(training_set.num_frames / FRAMES_PER_SECOND / 60)
    job, asked = _with_preset(job, preset, training_set), job
    launch = _plan_launch(job, machine, chosen, run_id)
    evaluation = plan_evaluation(
        folder,
        card,
        rows,
        base_model,
        speaker=training_set.speaker_D.tolist(),
        # Without evaluation it is still what knows the voice's embedding and reference.
        num_held_out=chosen.num_held_out if chosen.evaluate else 1,
        num_standard=chosen.num_standard,
        seed=job.seed,
    )
    data = _plan_data(job, launch, training_set, card.name, preset, evaluation)
    needed = data.estimate.memory.total
    is_open = method is None and not job.train_text_embedding
    if is_open and data.worker_bytes is not None and needed > data.worker_bytes:
        job = _with_preset(asked.model_copy(update={"method": "lora"}), preset, training_set)
        data = _plan_data(job, launch, training_set, card.name, preset, evaluation)
        data = data.model_copy(update={"full_bytes": needed})
    synthetic = () if request.accept_synthetic else _synthetic_problems(home, folder)
    problems = (*_problems(job, launch), *disk_problems(job, data.estimate), *synthetic)
    return RunPlan(run_id=run_id, request=request, job=job, launch=launch, problems=problems, data=data)


def _fix_options(
    request: RunRequest, home: Home, run_id: str, *, method: str | None, keeps_voice: bool
) -> dict[str, Any]:
    """The options of a job that nobody is asked for. Raises EncoreError where the voice's name is taken."""
    voice = _UNNAMED if request.voice is None else _free_name(home, request.voice, keeps_voice=keeps_voice)
    return {
        "voice": voice,
        "method": method or "full",
        "output": RunFolder.of(home.folder, run_id).path,
        # The best checkpoint is exported once all have been evaluated; it is seldom the last.
        "export_at_end": False,
    }


def _plan_data(
    job: FineTuneJob,
    launch: LaunchPlan,
    training_set: TrainingSet,
    dataset: str,
    preset: Preset,
    evaluation: EvaluationPlan,
) -> DataPlan:
    """What training on these clips takes: steps, time, memory and disk."""
    device = torch.device("cuda" if launch.use_gpu and torch.cuda.is_available() else "cpu")
    config = training_set.config
    tensors = network_tensors(config, train_text_embedding=job.train_text_embedding, lora=job.lora)
    estimate = estimate_run(job, training_set, plan_batches(job, training_set), device=device, tensors=tensors)
    return DataPlan(
        dataset=dataset,
        preset=preset,
        estimate=estimate,
        evaluation=evaluation,
        memory=_memory_cells(config, job, tensors, device),
        worker_bytes=_worker_bytes(job.num_workers, device, launch.machine),
        free_disk_bytes=free_bytes(job.output),
    )


def _choose_method(request: RunRequest, options: Mapping[str, Any]) -> Method | None:
    """The method that is asked for, by name or by an option of adapters; None to train what fits. Raises RunInvalid."""
    of_adapters = sorted(name for name in options if name.startswith("lora_"))
    if request.method == "full" and of_adapters:
        raise RunInvalid(f"{of_adapters[0]} is of adapters, and method full trains none. Leave it out, or use lora.")
    if request.method == "auto":
        return "lora" if of_adapters else None
    return request.method


def _with_preset(job: FineTuneJob, preset: Preset, training_set: TrainingSet) -> FineTuneJob:
    """The job with what a preset decides, but for the fields that were set."""
    decided = preset_fields(preset, training_set, job)
    return job.model_copy(update={name: value for name, value in decided.items() if name not in job.model_fields_set})


def recommend_preset(minutes: float) -> Preset:
    """The preset for so much speech."""
    if minutes < LITTLE_MINUTES:
        return "quick"
    return "thorough" if minutes >= MUCH_MINUTES else "standard"


def _split_options(options: Mapping[str, Any]) -> tuple[LaunchOptions, dict[str, Any]]:
    """Options of the launch, and those of the job, whose own check names misspelt ones. Raises RunInvalid."""
    if decided := sorted(_DECIDED_HERE & options.keys()):
        raise RunInvalid(f"The run itself decides {decided[0]}, so it cannot be set. Leave it out.")
    options = with_current_names(options, FORMER_NAMES)
    launch = {name: value for name, value in options.items() if name in LaunchOptions.model_fields}
    chosen = LaunchOptions.parse(launch)
    if chosen.evaluate and not chosen.num_held_out + chosen.num_standard:
        raise RunInvalid(
            "There is no sentence to evaluate with. Raise num_held_out or num_standard, or set evaluate=false."
        )
    return chosen, {name: value for name, value in options.items() if name not in launch}


def _check_preset(name: str) -> Preset:
    for preset in PRESETS:
        if preset == name:
            return preset
    near = difflib.get_close_matches(name, PRESETS, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise RunInvalid(f"There is no preset {name[:40]!r}; there are {', '.join(PRESETS)}.{hint}")


def _free_name(home: Home, voice: str, *, keeps_voice: bool) -> str:
    """The name as it will be stored, unless it is taken or about to be."""
    name = clean_name(voice)
    if not keeps_voice:
        return name
    try:
        Voices(home).get(name)
    except VoiceNotFound:
        pass
    else:
        raise VoiceNameTaken(f"There is a voice {name!r} already. Choose another name, or delete that voice first.")
    for run in RunTable(home.database).list():
        if run.state.is_active and name_key(run.voice) == name_key(name):
            raise VoiceNameTaken(f"Run {run.id} is making a voice {name!r} already. Choose another name, or cancel it.")
    return name


def _new_run_id() -> str:
    """Sorts by time, and two started in the same second differ."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"


def _find_dataset(home: Path, dataset: str | Path) -> tuple[Path, DatasetCard]:
    """A dataset of the home by its name, or any by its folder."""
    named = home / DATASETS_FOLDER / str(dataset)
    folder = named if named.is_dir() else Path(dataset).expanduser().absolute()
    if not folder.is_dir():
        found = sorted(path.name for path in named.parent.iterdir()) if named.parent.is_dir() else []
        known = f"There are: {', '.join(found[:20])}." if found else "Build one with `app.py dataset build`."
        raise RunInvalid(f"There is no dataset {str(dataset)[:100]!r}. {known}")
    return folder, read_card(folder)


def _synthetic_problems(home: Home, folder: Path) -> tuple[str, ...]:
    """Recordings of a dataset of this home that say they are Encore's own speech: learning from them is asked about."""
    if folder.parent != home.folder / DATASETS_FOLDER:
        return ()
    recordings = DatasetTable(home).recordings(folder.name)
    made = [Path(one.name).name for one in recordings if one.details.made_by_encore]
    if not made:
        return ()
    listed = ", ".join(made[:5]) + (f" and {len(made) - 5} more" if len(made) > 5 else "")
    return (
        f"Encore itself made {listed}: a voice that learns from it is a copy of a copy. Leave it out, or "
        f"choose to learn from it: --accept-synthetic, or under Advanced on the page.",
    )


def _check_clips(rows: Sequence[CodeRow], card: DatasetCard) -> None:
    """Refuse a dataset with too little in it. Raises RunInvalid."""
    if not rows:
        raise RunInvalid(f"The dataset {card.name} has no accepted clips. Accept some, or add recordings.")
    if len(rows) < MIN_CLIPS:
        raise RunInvalid(
            f"The dataset {card.name} has one accepted clip, and a fine-tune needs {MIN_CLIPS} or more. "
            "Add recordings, or clone the voice without fine-tuning."
        )


def _check_model(folder: Path, card: DatasetCard, model: str) -> None:
    """Refuse a model that is not a base model, or that uses other codes than the dataset. Raises RunInvalid."""
    config = read_config(folder)
    if config.tts_model_type != "base":
        raise RunInvalid(
            f"{model} is a {config.tts_model_type} checkpoint, and only base ones can be fine-tuned. "
            "Choose a base checkpoint, or the base variant of a fine-tuned voice."
        )
    if fingerprint_of(folder) != card.tokenizer_fingerprint:
        raise RunInvalid(
            f"The dataset {card.name} was made with {card.model}, whose codes {model} does not understand. "
            f"Build the dataset again with {model}, or fine-tune {card.model}."
        )


def fingerprint_of(folder: Path) -> str:
    """Which codes a checkpoint folder uses."""
    files = find_weights(folder / SPEECH_TOKENIZER_FOLDER)
    return _fingerprint(folder, tuple((path, path.stat().st_mtime_ns) for path in files))


@lru_cache(maxsize=4)  # reads all of the tokenizer, and the page plans again with every change of a field
def _fingerprint(folder: Path, files: tuple[tuple[Path, int], ...]) -> str:
    with torch.device("meta"):
        tokenizer = SpeechTokenizer(read_speech_tokenizer_config(folder))
    load_weights(tokenizer, [path for path, _ in files], "", dtype=torch.float32, device=torch.device("cpu"))
    return tokenizer_fingerprint(tokenizer)


def _problems(job: FineTuneJob, launch: LaunchPlan) -> tuple[str, ...]:
    return (*launch.worker_problems(job), *job_problems(job, launch.machine))


def _plan_launch(job: FineTuneJob, machine: Machine, options: LaunchOptions, run_id: str) -> LaunchPlan:
    return LaunchPlan(
        **options.model_dump(),
        run_id=run_id,
        machine=machine,
        max_workers=job.num_workers,
        use_gpu=uses_gpus(job, machine),
    )


def _memory_cells(
    config: ModelConfig, job: FineTuneJob, tensors: Tensors, device: torch.device
) -> tuple[MemoryCell, ...]:
    """Memory of every strategy with 1, 2, 4 and 8 workers; hybrid sharding needs 4 or more."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    return tuple(
        MemoryCell(
            strategy=strategy,
            num_workers=count,
            memory=worker_memory(
                config,
                strategy,
                count,
                compute_bytes=dtype.itemsize,
                frozen_bytes=frozen_dtype(job, device, dtype).itemsize,
                micro_batch_tokens=job.micro_batch_tokens,
                code_predictor_fraction=job.code_predictor_fraction,
                activation_checkpointing=job.activation_checkpointing,
                tensors=tensors,
            ),
        )
        for strategy in STRATEGIES
        for count in WORKER_COUNTS
        if strategy != "fsdp2-hybrid" or count >= 4
    )


def _worker_bytes(num_workers: int, device: torch.device, machine: Machine) -> int | None:
    """Workers on one machine share its memory, those on GPUs have one each."""
    if machine.address is not None:
        return None
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(0).total_memory)
    return int(psutil.virtual_memory().available) // num_workers
