"""A run whose weights and optimizer wait on a disk learns what one in memory learns, also after it was stopped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from torch.utils.cpp_extension import _get_build_directory

from tests.training.finetuning import make_rows, run_stages, stage, task, write_dataset
from tests.training.recorded_runs import Runs, assert_same_learning
from training.model.project import PROJECT_FOLDER
from training.preflight import strategy_problems

pytestmark = pytest.mark.deepspeed

# Less than a megabyte DeepSpeed does not take to a disk, so that the tiny checkpoint would stay in memory.
MODEL = PROJECT_FOLDER / "assets" / "mini"
WIDTH, NUM_CODES = 256, 256
NUM_STEPS, HALF = 4, 2
COMPILE = "ENCORE_TEST_COMPILES"


def is_built() -> bool:
    return (Path(_get_build_directory("async_io", verbose=False)) / "async_io.so").is_file()


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    runs = Runs(tmp_path_factory.mktemp("disk"))
    disk = runs.folder / "disk"
    disk.mkdir()
    small = {"base_model": MODEL, "num_steps": NUM_STEPS, "micro_batch_tokens": 64, "in_context_ratio": 0.0}
    on_disk = {"offload": "nvme", "nvme_folder": disk, **small}
    stopped = runs.job("stopped", "zero3", 1, **on_disk)
    problems = strategy_problems(stopped)
    if not problems and not is_built() and not os.environ.get(COMPILE):
        problems = [f"DeepSpeed's access to disks is not compiled yet, which takes a minute; {COMPILE}=1 does it"]
    if problems:
        pytest.skip(" ".join(problems))
    runs.results.mkdir()
    write_dataset(runs.folder / "dataset", make_rows((9, 12, 10, 8), 1, width=WIDTH, num_codes=NUM_CODES))
    runs.here("memory", runs.job("memory", "ddp", 1, **small))
    first = [task("whole", runs.job("whole", "zero3", 1, **on_disk)), task("stopped-1", stopped, stop_after=HALF)]
    stages = [stage(1, first), stage(1, [task("stopped", stopped)])]
    run_stages(runs.folder / "workers", stages, runs.results, with_deepspeed=True)
    return runs


def test_the_optimizer_lies_on_the_disk(runs):
    names = [path.name for path in (runs.folder / "disk" / "encore-whole").rglob("*.swp")]
    for state in ("exp_avg-", "exp_avg_sq-"):
        assert any(name.startswith(state) for name in names), names


def test_it_learns_the_same_as_in_memory(runs):
    assert_same_learning(runs, "whole", "memory")


def test_a_stopped_run_goes_on_as_if_never_stopped(runs):
    assert_same_learning(runs, "stopped", "whole", first_step=HALF)
