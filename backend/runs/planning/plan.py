"""A run is planned here, once: its job, what it will take, what it is evaluated by, and what stands in its way."""

from __future__ import annotations

import difflib
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Self

import torch
from pydantic import BaseModel, ConfigDict

from backend.evaluation.plan import EvaluationPlan, plan_evaluation
from backend.runs.errors import RunInvalid
from backend.runs.planning.base_model import check_model
from backend.runs.planning.launch import FORMER_NAMES, LaunchOptions, LaunchPlan
from backend.runs.planning.request import RunRequest
from backend.runs.planning.speakers import (
    Speaker,
    dataset_problems,
    find_speakers,
    first_name,
)
from backend.runs.storage.run_folder import RunFolder
from backend.settings import Settings
from backend.store.home import Home
from training.data.balance import frames_per_epoch
from training.data.training_set import TrainingSet
from training.estimate import RunEstimate, estimate_run, free_bytes
from training.former_names import with_current_names
from training.job import PRESETS, STRATEGIES, FineTuneJob, Method, Preset, Strategy
from training.job_data import plan_batches, read_data
from training.machine import Machine
from training.memory_plan import Tensors, WorkerMemory, network_tensors, worker_memory
from training.model.config import ModelConfig
from training.model.device import choose_device
from training.model.device_memory import free_bytes as free_bytes_of
from training.model.device_memory import total_bytes
from training.model.errors import ModelError
from training.model.hub.hub import resolve_model
from training.model.prompt.length import FRAMES_PER_SECOND
from training.preflight import disk_problems, job_problems, memory_problems, uses_gpus
from training.presets import preset_fields
from training.strategies.learner import frozen_dtype

WORKER_COUNTS = (1, 2, 4, 8)
LITTLE_MINUTES, MUCH_MINUTES = 3.0, 30.0
"""With less there is not enough to repeat; with more, longer training still finds something new."""

_DECIDED_HERE = frozenset(
    {"voice", "dataset", "dataset_digest", "more_speakers", "base_model", "output", "export_at_end", "method"}
)


class MemoryCell(BaseModel):
    """What a worker would hold with one strategy and one number of workers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    strategy: Strategy
    num_workers: int
    memory: WorkerMemory


class SpeakerMinutes(BaseModel):
    """Speech of one of several speakers.

    Attributes:
        voice: name of the voice.
        minutes: that there are to learn from.
        per_epoch: that every epoch has.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    voice: str
    minutes: float
    per_epoch: float


class DataPlan(BaseModel):
    """The part of a plan that depends on the dataset.

    Attributes:
        dataset: its name; of several all names.
        speakers: minutes of speech of each speaker, and how many of them an epoch has; none where there is one speaker.
        preset: as asked for, or as chosen.
        estimate: steps, minutes, memory and disk.
        evaluation: what checkpoints will speak.
        memory: of every strategy and number of workers.
        worker_bytes: memory that each worker could have on this machine; None where that is not known.
        main_bytes: main memory that each worker on a GPU could offload to; None where that is not known.
        full_bytes: memory that a worker would need to train all weights, where an adapter was chosen for that reason.
        free_disk_bytes: where the run will be stored.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: str
    speakers: tuple[SpeakerMinutes, ...] = ()
    preset: Preset
    estimate: RunEstimate
    evaluation: EvaluationPlan
    memory: tuple[MemoryCell, ...]
    worker_bytes: int | None
    main_bytes: int | None = None
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
        if (main := estimate.memory.main) > 0:
            notes.append(f"Each worker also keeps {main / 2**30:.1f} GiB in the main memory, where it offloads to.")
        if self.data.speakers:
            listed = "; ".join(
                f"{one.voice}: {one.minutes:.1f} min, {one.per_epoch:.1f} in every epoch" for one in self.data.speakers
            )
            notes.append(f"{len(self.data.speakers)} speakers learn in one run. {listed}.")
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
            if (storage := Settings.from_environment().storage) is not None:
                notes.append(f"It runs on the Ray cluster at {address}{gpus}, which must reach {storage}.")
            else:
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
    # The best checkpoint is exported once all have been evaluated; it is seldom the last.
    output = RunFolder.of(home.folder, run_id).path
    fixed = {"method": method or "full", "output": output, "export_at_end": False}
    machine = Machine.here(num_cpus)
    if request.dataset is None:
        voice = first_name(home, request.voice, keeps_voice=chosen.name_voice)
        draft = {**job_options, **fixed, "voice": voice, "dataset": home.folder, "dataset_digest": "not built yet"}
        job = FineTuneJob.parse({**draft, "base_model": resolve_model(request.model)})
        launch = _plan_launch(job, machine, chosen, run_id)
        return RunPlan(run_id=run_id, request=request, job=job, launch=launch, problems=_problems(job, launch))
    speakers = find_speakers(home, request.dataset, request.voice, request.more_speakers, keeps_voice=chosen.name_voice)
    base_model = resolve_model(request.model)
    for speaker in speakers:
        check_model(base_model, speaker.card, request.model)
    first, *more = (speaker.of_job.model_dump() for speaker in speakers)
    job = FineTuneJob.parse({**job_options, **fixed, **first, "more_speakers": more, "base_model": base_model})
    training_set = read_data(job, [speaker.rows for speaker in speakers])
    preset = preset or recommend_preset(training_set.num_frames / FRAMES_PER_SECOND / 60 / len(speakers))
    job, asked = _with_preset(job, preset, training_set), job
    launch = _plan_launch(job, machine, chosen, run_id)
    evaluation = _plan_evaluation(speakers, job, training_set, chosen)
    names = ", ".join(speaker.card.name for speaker in speakers)
    data = _plan_data(job, launch, training_set, names, preset, evaluation)
    needed = data.estimate.memory.total
    is_open = method is None and not job.train_text_embedding
    if is_open and data.worker_bytes is not None and needed > data.worker_bytes:
        job = _with_preset(asked.model_copy(update={"method": "lora"}), preset, training_set)
        data = _plan_data(job, launch, training_set, names, preset, evaluation)
        data = data.model_copy(update={"full_bytes": needed})
    accepts = request.accept_synthetic
    of_datasets = [dataset_problems(home, speaker.folder, accepts_synthetic=accepts) for speaker in speakers]
    problems = (
        *_problems(job, launch),
        *disk_problems(job, data.estimate),
        *memory_problems(job, data.estimate, data.worker_bytes, data.main_bytes),
        *chain.from_iterable(of_datasets),
    )
    return RunPlan(run_id=run_id, request=request, job=job, launch=launch, problems=problems, data=data)


def _plan_evaluation(
    speakers: Sequence[Speaker], job: FineTuneJob, training_set: TrainingSet, options: LaunchOptions
) -> EvaluationPlan:
    """What checkpoints will speak in each voice."""
    first, *more = (
        plan_evaluation(
            speaker.folder,
            speaker.card,
            speaker.rows,
            job.base_model,
            speaker=embedding.tolist(),
            # Without evaluation it is still what knows the voice's embedding and reference.
            num_held_out=options.num_held_out if options.evaluate else 1,
            num_standard=options.num_standard,
            seed=job.seed,
            voice=speaker.voice if len(speakers) > 1 else "",
            follows_instructions=training_set.config.follows_instructions,
        )
        for speaker, embedding in zip(speakers, training_set.speakers_SD, strict=True)
    )
    return first.model_copy(update={"more_speakers": tuple(more)})


def _speaker_minutes(job: FineTuneJob, training_set: TrainingSet) -> tuple[SpeakerMinutes, ...]:
    """Nothing where there is one speaker."""
    if not job.more_speakers:
        return ()
    frames = training_set.frames_by_speaker
    return tuple(
        SpeakerMinutes(
            voice=speaker.voice,
            minutes=own / FRAMES_PER_SECOND / 60,
            per_epoch=share / FRAMES_PER_SECOND / 60,
        )
        for speaker, own, share in zip(job.speakers, frames, frames_per_epoch(frames), strict=True)
    )


def _plan_data(
    job: FineTuneJob,
    launch: LaunchPlan,
    training_set: TrainingSet,
    dataset: str,
    preset: Preset,
    evaluation: EvaluationPlan,
) -> DataPlan:
    """What training on these clips takes: steps, time, memory and disk."""
    device = _planned_device(job, launch)
    config = training_set.config
    tensors = network_tensors(config, train_text_embedding=job.train_text_embedding, lora=job.lora)
    estimate = estimate_run(job, training_set, plan_batches(job, training_set), device=device, tensors=tensors)
    return DataPlan(
        dataset=dataset,
        speakers=_speaker_minutes(job, training_set),
        preset=preset,
        estimate=estimate,
        evaluation=evaluation,
        memory=_memory_cells(config, job, tensors, device),
        worker_bytes=_worker_bytes(job.num_workers, device, launch.machine),
        main_bytes=_main_bytes(job.num_workers, device, launch.machine),
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


def _new_run_id() -> str:
    """Sorts by time, and two started in the same second differ."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"


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
    dtype = torch.bfloat16 if device.type in ("cuda", "xpu") else torch.float32
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
                offload=job.offload,
                on_gpu=device.type != "cpu",
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
    if device.type in ("cuda", "xpu"):
        return total_bytes(device)
    return free_bytes_of(device) // num_workers


def _main_bytes(num_workers: int, device: torch.device, machine: Machine) -> int | None:
    """Workers on GPUs share the machine's memory, which is the device's own of all others."""
    if machine.address is not None or device.type == "cpu":
        return None
    return free_bytes_of(torch.device("cpu")) // num_workers


def _planned_device(job: FineTuneJob, launch: LaunchPlan) -> torch.device:
    """Of the kind that the workers will have, as far as it is here: a cluster's GPUs may be of any."""
    if not launch.use_gpu and job.device in ("cuda", "xpu"):
        return torch.device("cpu")
    try:
        chosen = choose_device(job.device)
    except ModelError:
        return torch.device("cpu")
    is_alone = job.num_workers == 1 and launch.machine.address is None
    return chosen if launch.use_gpu or (chosen.type == "mps" and is_alone) else torch.device("cpu")
