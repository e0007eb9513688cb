"""The driver of a fine-tune: an actor that takes no processor and holds Ray Train's `fit`."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import Any

from backend.cluster.connect import release_placement_groups
from backend.runs.planning.launch import LaunchPlan
from backend.runs.storage.control import Control
from backend.runs.storage.run_folder import RunFolder
from training.allocator import ENVIRONMENT

ELASTIC_RESIZE_SECONDS = 60.0
START_SECONDS, ELASTIC_START_SECONDS = 300, 30
"""Ray Train's own minute for workers to find their places is too short for a crowded machine, which then begins again
and again. A run that can do with fewer asks again soon: for a while after a machine is lost, Ray still offers it."""
NOTICE_SECONDS = 1.0
"""How often Ray Train looks for machines that are being taken away; clouds give some of them half a minute."""


class Driver:
    """Made into an actor by the supervisor; killing it ends the workers and frees what they held."""

    def fit(
        self, raw_job: dict[str, Any], raw_launch: dict[str, Any], folder: str, attempt: int, storage: str | None
    ) -> None:
        """Train until done, stopped, or given up; `storage` is where workers keep their checkpoints as well.

        Workers that leave a machine which is being taken away are replaced by others; that is no failure.

        Raises:
            TrainingFailedError: workers failed more often than the plan allows.
            TrainingDataError: the dataset cannot be read.
            StorageError: the storage is not there.
        """
        launch, run_folder = LaunchPlan.model_validate(raw_launch), RunFolder(Path(folder))
        # Handed on to the controller, which reads it.
        patience = ELASTIC_START_SECONDS if launch.is_elastic else START_SECONDS
        os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(patience))
        os.environ.setdefault("RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S", str(NOTICE_SECONDS))
        # The trainer of a driver that was killed lives a moment longer: it may have sent for other workers since then.
        release_placement_groups()
        for number in count():
            # A new name each time: what to resume from is in the run's own checkpoints, not in Ray's notes.
            name = f"attempt-{attempt}" + (f"-{number + 1}" if number else "")
            result = _trainer(name, raw_job, launch, run_folder, attempt, storage).fit()
            if not result.return_value or Control.read(run_folder.control).stop is not None:
                return


def _trainer(
    name: str, raw_job: dict[str, Any], launch: LaunchPlan, folder: RunFolder, attempt: int, storage: str | None
) -> Any:  # of Ray Train, in the actor's process only
    import ray.train  # noqa: PLC0415 - in the actor's process only
    from ray.train.torch import TorchConfig, TorchTrainer  # noqa: PLC0415

    from backend.runs.process.loopback_group import LoopbackConfig  # noqa: PLC0415
    from backend.runs.process.ray_dataset import SHARD, rows_for_everyone  # noqa: PLC0415
    from backend.runs.process.ray_worker import (  # noqa: PLC0415
        FaultLog,
        inputs_for_other_machines,
        ray_storage,
        share_rows_recording_problems,
        train_under_ray,
    )

    # Typed as Ray Train's first version, which shares the names of the second, which is the one that runs.
    train: Any = ray.train
    workers: int | tuple[int, int] = launch.max_workers
    if launch.is_elastic:
        workers = (launch.smallest_world_size, launch.max_workers)
    is_own_ray = launch.machine.address is None
    config = {"job": raw_job, "folder": str(folder.path), "attempt": attempt, "storage": storage}
    # A Ray of this machine alone sees all that is here, and has nowhere to move to.
    config |= inputs_for_other_machines(raw_job, None if is_own_ray else storage, folder, attempt)
    return _without_cleaner(TorchTrainer)(
        train_under_ray,
        train_loop_config=config | {"can_move": not is_own_ray},
        torch_config=(LoopbackConfig if is_own_ray else TorchConfig)(backend=_backend(launch, raw_job)),
        datasets={SHARD: share_rows_recording_problems(raw_job, folder, attempt)},
        dataset_config=rows_for_everyone(),
        scaling_config=train.ScalingConfig(
            num_workers=workers,
            use_gpu=launch.use_gpu,
            resources_per_worker={"CPU": 1.0, "GPU": 1.0} if launch.use_gpu else {"CPU": 1.0},
            elastic_resize_monitor_interval_s=ELASTIC_RESIZE_SECONDS,
        ),
        run_config=train.RunConfig(
            name=name,
            **ray_storage(storage, folder, attempt),
            worker_runtime_env={"env_vars": ENVIRONMENT},
            # Workers that are gone with a machine whose end was announced do not count.
            failure_config=train.FailureConfig(max_failures=launch.max_failures, max_preemption_failures=-1),
            callbacks=[FaultLog(folder, attempt)],
        ),
    )


def _without_cleaner(trainer: Any) -> Any:  # a class of Ray Train's, and one derived from it
    """A trainer that, if it is killed, leaves it to the supervisor to free what it held."""

    class Trainer(trainer):  # type: ignore[misc]  # the base is only known once Ray Train is imported
        """Without the callback that asks Ray's dashboard."""

        def _create_default_callbacks(self) -> list[Any]:
            callbacks = super()._create_default_callbacks()
            return [one for one in callbacks if type(one).__name__ != "PlacementGroupCleanerCallback"]

    return Trainer


def _backend(launch: LaunchPlan, raw_job: dict[str, Any]) -> str:
    from training.workers import distributed_backend  # noqa: PLC0415 - imports torch

    # A cluster's GPUs are taken for CUDA's unless the job names Intel's.
    gpu = "xpu" if raw_job.get("device") == "xpu" else "cuda"
    return distributed_backend(gpu if launch.use_gpu else "cpu", str(raw_job.get("offload", "none")))
