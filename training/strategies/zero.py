"""ZeRO through DeepSpeed: stage 1 shards the optimizer, 2 also gradients, 3 also weights (Rajbhandari et al. 2020).

DeepSpeed's checkpoints are in its own format, one file per worker. For another number of workers they are converted to
its universal format first, on every machine that has a copy of its own. State offloaded to disk is saved by
`disk_state.py`, as DeepSpeed cannot read it again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import Tensor, nn
from typing_extensions import override

from training.data.example import TrainingBatch
from training.errors import ResumeError
from training.job import FineTuneJob
from training.loss import SpeechLoss, SpeechLosses
from training.strategies.compiled_parts import compile_disk_access
from training.strategies.disk_state import load_disk_state, save_disk_state
from training.strategies.learner import WHOLE_WEIGHTS_FILE, Learner, StateBytes
from training.strategies.torch_learner import make_optimizer
from training.workers import Workers

TAG = "zero"
UNIVERSAL = "universal"

# DeepSpeed holds a bucket of gradients in addition to them; its own default of half a billion is 2 GB.
MAX_BUCKET = 50_000_000


def wrap_zero(
    speech_loss: SpeechLoss, job: FineTuneJob, workers: Workers, dtype: torch.dtype, *, stage: int
) -> ZeroLearner:
    """Wrap a model with DeepSpeed; master weights are float32, the arithmetic is in `dtype`."""
    import deepspeed  # noqa: PLC0415 - takes seconds, and only runs that chose it need it

    # DeepSpeed requires the variable, which not every launcher sets.
    os.environ.setdefault("LOCAL_RANK", str(workers.device.index or 0))
    on_gpu = workers.device.type == "cuda"
    if job.offload == "nvme":
        compile_disk_access()
    speech_loss.to(workers.device)
    largest = max(p.numel() for p in speech_loss.parameters())
    num_trained = sum(p.numel() for p in speech_loss.parameters() if p.requires_grad)
    config = deepspeed_config(job, dtype, stage=stage, num_trained=num_trained, largest=largest, on_gpu=on_gpu)
    optimizer = make_optimizer(speech_loss, job)
    # On CPUs it would compile all-reduce kernels for inference, for half a minute at the first start. Training uses
    # none of them, and with an empty table it neither compiles them nor looks for a compiler.
    deepspeed.ops.__compatible_ops__ = {}
    # Its own logger reports details meant for its developers.
    deepspeed.utils.logger.setLevel("WARNING")
    engine, *_ = deepspeed.initialize(
        model=speech_loss, optimizer=optimizer, config=config, dist_init_required=not dist.is_initialized()
    )
    return ZeroLearner(engine, workers, stage=stage, on_disk=job.offload == "nvme")


def deepspeed_config(
    job: FineTuneJob, dtype: torch.dtype, *, stage: int, num_trained: int, largest: int, on_gpu: bool
) -> dict[str, Any]:
    """DeepSpeed's configuration for a job, merged with the job's own entries.

    Args:
        job: the recipe.
        dtype: of the arithmetic.
        stage: of ZeRO, 1 to 3.
        num_trained: elements of all trained tensors.
        largest: elements of the largest tensor, trained or not.
        on_gpu: whether the workers compute on GPUs.
    """
    bucket = min(MAX_BUCKET, num_trained)
    zero: dict[str, Any] = {
        "stage": stage,
        # DeepSpeed refuses it where gradients are not sharded, as no step has a fixed number of micro-batches.
        "overlap_comm": on_gpu and stage >= 2,
        "reduce_bucket_size": bucket,
        "allgather_bucket_size": bucket,
    }
    if job.offload != "none":
        place: dict[str, Any] = {"device": job.offload, "pin_memory": on_gpu}
        if job.nvme_folder is not None:
            # A folder per run, because another run may offload to the same disk under the same names.
            place["nvme_path"] = str(job.nvme_folder / f"encore-{job.output.name}")
        zero["offload_optimizer"] = place
        if stage == 3:
            zero["offload_param"] = dict(place)
            if job.offload == "nvme":
                # A worker's share of a tensor is read into one buffer. DeepSpeed's default size is too small for a
                # public checkpoint's text embedding, and takes 2 GB with a small checkpoint.
                zero["offload_param"]["buffer_size"] = -(-largest // job.num_workers)
    base: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # The number of micro-batches varies from step to step.
        "managed_gradient_accumulation": False,
        "gradient_clipping": job.max_gradient_norm,
        "bf16": {"enabled": dtype == torch.bfloat16},
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        # torch's AdamW, wherever its state is kept: the same updates as with the other strategies.
        "zero_force_ds_cpu_optimizer": False,
    }
    return _overlay(base, job.deepspeed)


def zero_options_problem(job: FineTuneJob) -> str | None:
    """The first of the job's own ZeRO entries that DeepSpeed rejects, such as a misspelt one; None if there is none."""
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig  # noqa: PLC0415 - takes seconds, and few need it

    stage = int(job.strategy.removeprefix("zero"))
    config = deepspeed_config(job, torch.float32, stage=stage, num_trained=1, largest=1, on_gpu=False)
    section = config["zero_optimization"]
    if not isinstance(section, Mapping):
        return f"deepspeed.zero_optimization is {section!r}, but must map option names to values. Correct it."
    try:
        DeepSpeedZeroConfig(**section)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, ("deepspeed", "zero_optimization", *first["loc"])))
        return f"DeepSpeed rejects {name}: {first['msg']}. Correct it, or leave it out."
    return None


class ZeroLearner(Learner):
    """A model that DeepSpeed distributes over the workers."""

    def __init__(
        self, engine: Any, workers: Workers, *, stage: int, on_disk: bool = False
    ) -> None:  # Any: DeepSpeed publishes no types
        """Wrap an initialized engine; `on_disk` if its optimizer state is offloaded to disk."""
        self.device = workers.device
        self._engine, self._workers, self._stage, self._on_disk = engine, workers, stage, on_disk

    @override
    def losses(self, batch: TrainingBatch, generator: torch.Generator, *, is_last: bool) -> SpeechLosses:
        # `is_last` is not needed: DeepSpeed sums the gradients in `step`.
        out: SpeechLosses = self._engine(batch, generator)
        return out

    @override
    def backward(self, objective: Tensor) -> None:
        # Workers' gradients are averaged, but the parts of the objective must be summed.
        self._engine.backward(objective * self._workers.size, scale_wrt_gas=False)

    @override
    def step(self, learning_rate: float, max_gradient_norm: float) -> float:
        # DeepSpeed clips to the norm in its configuration.
        for group in self._engine.optimizer.param_groups:
            group["lr"] = learning_rate
        self._engine.step()
        return float(self._engine.get_global_grad_norm())

    @override
    def state_bytes(self) -> StateBytes:
        # Master weights count as optimizer state.
        optimizer = self._engine.optimizer
        parameters = list(self._engine.module.parameters())
        if self._stage == 3:
            weights = [parameter.ds_tensor for parameter in parameters]
            masters, gradients = optimizer.fp32_partitioned_groups_flat, [optimizer.grad_partitions_flat_buffer]
        else:
            weights, masters = parameters, optimizer.single_partition_of_fp32_groups
            gradients = [tensor for group in optimizer.all_grad_tensors.values() for tensor in group or ()]
            gradients += [parameter.grad for parameter in parameters if parameter.grad is not None]
        moments = [value for of_one in optimizer.optimizer.state.values() for value in of_one.values()]
        return StateBytes(
            parameters=_num_bytes(weights),
            gradients=_num_bytes(gradients),
            optimizer=_num_bytes(masters) + _num_bytes(value for value in moments if value.dim()),
        )

    @override
    def weights(self) -> dict[str, Tensor]:
        whole = {}
        for name, parameter in self._engine.module.named_parameters():
            value = self._gather(parameter)
            if self._workers.is_first:
                whole[name.removeprefix("talker.")] = value.float().cpu().clone()
        return whole

    @override
    def start_save(self, folder: Path) -> None:
        # Synchronous: returns when everything is written.
        if not self._on_disk:
            self._engine.save_checkpoint(str(folder), tag=TAG, exclude_frozen_parameters=True)
        else:
            save_disk_state(self._engine.optimizer, folder, self._workers.rank)
            whole = self.weights()
            if self._workers.is_first:
                save_file({name: tensor.contiguous() for name, tensor in whole.items()}, folder / WHOLE_WEIGHTS_FILE)

    @override
    def finish_save(self, pending: None) -> None:
        pass

    @override
    def load(self, folder: Path, *, may_write: bool) -> None:
        if self._on_disk:
            load_disk_state(self._engine.optimizer, folder, self._workers.rank, self._workers.size)
            return
        num_writers = len(list((folder / TAG).glob("*_optim_states.pt")))
        if num_writers == self._workers.size:
            self._load(folder, TAG)
            return
        self._convert(folder, may_write=may_write)
        self._load_universal(folder)
        self._workers.wait()
        if may_write:
            shutil.rmtree(folder / UNIVERSAL, ignore_errors=True)

    def _convert(self, folder: Path, *, may_write: bool) -> None:
        """Convert a checkpoint in every folder of it; where one fails, all workers do. Raises ResumeError."""
        failure: ResumeError | None = None
        if may_write:
            try:
                convert_to_universal(folder)
            except ResumeError as error:
                failure = error
        if self._workers.total([float(failure is not None)])[0]:
            raise failure or ResumeError("Another worker says why the checkpoint cannot be converted.")

    def _load_universal(self, folder: Path) -> None:
        optimizer = self._engine.optimizer.optimizer
        settings = [{name: group[name] for name in group if name != "params"} for group in optimizer.param_groups]
        with self._reading_universal():
            self._load(folder, UNIVERSAL)
        if self._stage == 3:
            # DeepSpeed gives all groups the first one's weight decay, and one counter of steps that each advances.
            for group, own in zip(optimizer.param_groups, settings, strict=True):
                group.update(own)
            for state in optimizer.state.values():
                state["step"] = state["step"].clone()

    def _load(self, folder: Path, tag: str) -> None:
        # Not strict: frozen weights come from the base model.
        path, _ = self._engine.load_checkpoint(str(folder), tag=tag, load_module_strict=False)
        if path is None:
            raise ResumeError(f"DeepSpeed cannot read the checkpoint in {folder}. Go back to an earlier one.")

    @contextmanager
    def _reading_universal(self) -> Iterator[None]:
        # Normally set in the configuration, which is made before the checkpoint's number of workers is known.
        self._engine._config.load_universal_checkpoint = True
        try:
            yield
        finally:
            self._engine._config.load_universal_checkpoint = False

    def _gather(self, parameter: nn.Parameter) -> Tensor:
        """One full parameter: its float32 master if it is trained."""
        import deepspeed  # noqa: PLC0415 - see wrap_zero

        if parameter.requires_grad and (master := deepspeed.utils.safe_get_full_fp32_param(parameter)) is not None:
            whole: Tensor = master
            return whole
        if self._stage < 3:
            return parameter.detach()
        with deepspeed.zero.GatheredParameters([parameter]):
            return parameter.detach().clone()


def convert_to_universal(folder: Path) -> None:
    """Convert a checkpoint of any number of workers to one file per parameter, in the same folder.

    Raises:
        ResumeError: DeepSpeed's converter fails.
    """
    shutil.rmtree(folder / UNIVERSAL, ignore_errors=True)
    command = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state"]
    command += ["--input_folder", str(folder / TAG), "--output_folder", str(folder / UNIVERSAL)]
    command += ["--num_extract_workers", "1", "--num_merge_workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ResumeError(
            f"The checkpoint in {folder} cannot be converted for another number of workers: {reason}. "
            "Resume with as many workers as wrote it."
        )


def _num_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of tensors, counting shared memory once."""
    return sum({tensor.data_ptr(): tensor.numel() * tensor.element_size() for tensor in tensors}.values())


def _overlay(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in changes.items():
        inner = merged.get(name)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            value = _overlay(inner, value)
        merged[name] = value
    return merged
