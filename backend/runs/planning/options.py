"""What a person wants otherwise than a preset has it: told apart, and refused where it cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from backend.runs.errors import RunNotPossible
from backend.runs.planning.launch import LaunchOptions
from training.job import FineTuneJob

_DECIDED_HERE = frozenset({"voice", "dataset", "dataset_digest", "base_model", "output", "export_at_end"})


def split_options(options: Mapping[str, Any]) -> tuple[LaunchOptions, dict[str, Any]]:
    """Options of the launch, and those of the job, which names the misspelt ones. Raises RunNotPossible."""
    if decided := sorted(_DECIDED_HERE & options.keys()):
        raise RunNotPossible(f"The run itself decides {decided[0]}, so it cannot be set. Leave it out.")
    launch = {name: value for name, value in options.items() if name in LaunchOptions.model_fields}
    try:
        chosen = LaunchOptions.model_validate(launch)
    except ValidationError as error:
        first = error.errors()[0]
        raise RunNotPossible(f"{first['loc'][0]} cannot be {first['input']!r}: {first['msg']}. Correct it.") from error
    if chosen.judge and not chosen.num_held_out + chosen.num_standard:
        raise RunNotPossible(
            "There is no sentence to judge by. Raise num_held_out or num_standard, or set judge=false."
        )
    return chosen, {name: value for name, value in options.items() if name not in launch}


def check_workers(job: FineTuneJob, options: LaunchOptions) -> None:
    """Refuse a range of workers that is none, or that the job could not follow. Raises RunNotPossible."""
    fewest = options.min_workers or job.num_workers
    if fewest > job.num_workers:
        raise RunNotPossible(f"min_workers is {fewest}, more than the {job.num_workers} workers. Lower it.")
    if fewest == job.num_workers:
        return
    if job.strategy == "fsdp2-hybrid":
        raise RunNotPossible("fsdp2-hybrid needs an even number of workers. Leave min_workers out, or use fsdp2.")
    if job.offload == "nvme":
        raise RunNotPossible("With offload to nvme workers stay as many. Leave min_workers out, or offload to cpu.")
