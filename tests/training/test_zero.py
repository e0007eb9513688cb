"""ZeRO learns the same as one process does, and its checkpoints are taken up by as many workers or by others."""

from __future__ import annotations

import pytest
import torch

from tests.golden import GOLDEN_CHECKPOINT
from tests.training.finetuning import make_rows, run_stages, stage, task, write_dataset
from tests.training.recorded_runs import FEW_STEPS, FRAME_COUNTS, HALF, Runs, assert_same_learning
from training.export import EXPORTS_FOLDER
from training.job import FineTuneJob
from training.memory_plan import worker_memory
from training.model.checkpoint.reading import read_config
from training.model.checkpoint.rounding import round_on_average
from training.model.voice_model import VoiceModel

pytestmark = pytest.mark.deepspeed

STAGES = ("zero1", "zero2", "zero3")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    runs = Runs(tmp_path_factory.mktemp("zero"))
    runs.results.mkdir()
    write_dataset(runs.folder / "dataset", make_rows(FRAME_COUNTS, num_held_out=2))
    runs.here("single", runs.job("single", "ddp", 1))
    options = {"zero_optimization": {"reduce_bucket_size": 20_000}}
    changes = {"zero1": {}, "zero2": {"deepspeed": options}, "zero3": {"export_at_end": True}}
    two = [task(name, runs.job(name, name, 2, **changes[name])) for name in STAGES]
    runs.here("few", runs.job("few", "ddp", 1, num_steps=FEW_STEPS))
    stopped = runs.job("stopped", "zero2", 2, num_steps=FEW_STEPS)
    two += [task("stopped-1", stopped, stop_after=HALF)]
    again = [task("stopped", stopped)]
    # On two machines without a common folder, with as many workers again and then with twice as many.
    two += [task("far-1", far(runs, 2), stop_after=HALF - 1, storage=runs.storage)]
    again += [task("far-2", far(runs, 2), stop_after=1, storage=runs.storage)]
    one = [task("half-to-1", runs.job("half-to-1", "zero2", 1, num_steps=FEW_STEPS))]
    copy = [(runs.folder / "stopped", runs.folder / "half-to-1")]
    # What optimizers hold is seen at the second step.
    one += [task(f"{name}-1", runs.job(f"{name}-1", name, 1, num_steps=2)) for name in STAGES]
    four = [task(f"{name}-4", runs.job(f"{name}-4", name, 4, num_steps=2)) for name in STAGES]
    four += [task("far", far(runs, 4), storage=runs.storage)]
    run_stages(
        runs.folder / "workers",
        [stage(2, two), stage(1, one, copy), stage(2, again), stage(4, four)],
        runs.results,
        with_deepspeed=True,
    )
    runs.fetch("far")
    return runs


def far(runs: Runs, num_workers: int) -> FineTuneJob:
    return runs.job("far", "zero3", num_workers, num_steps=FEW_STEPS)


@pytest.mark.parametrize("name", STAGES)
def test_all_stages_learn_the_same(runs, name):
    assert_same_learning(runs, name, "single")


def test_a_stopped_run_goes_on_as_if_never_stopped(runs):
    assert_same_learning(runs, "stopped", "few", first_step=HALF)


def test_another_number_of_workers_goes_on_too(runs):
    assert_same_learning(runs, "half-to-1", "few", first_step=HALF)


def test_machines_without_a_common_folder_go_on_too_also_with_another_number_of_workers(runs):
    assert_same_learning(runs, "far", "few", first_step=HALF)
    before = [*runs.reports("far-1"), *runs.reports("far-2")]
    assert [report["step"] for report in before] == list(range(1, HALF + 1))
    for found, expected in zip(before, runs.reports("few"), strict=False):
        assert found["talker_loss"] == pytest.approx(expected["talker_loss"], rel=1e-5)
    left = [path for path in runs.folder.glob("machine-*/**/step-*") if path.is_dir()]
    assert not left, "what each machine had has done what it was for"


@pytest.mark.parametrize("num_workers", [1, 2, 4])
@pytest.mark.parametrize("name", STAGES)
def test_memory_is_as_planned(runs, name, num_workers):
    config = read_config(GOLDEN_CHECKPOINT)
    planned = worker_memory(config, name, num_workers, compute_bytes=4).state.total
    reports = runs.reports(name if num_workers == 2 else f"{name}-{num_workers}")
    assert reports[-1]["state_bytes"] == pytest.approx(planned, rel=0.01)


def test_gathered_weights_are_exported(runs):
    folder = runs.folder / "zero3" / EXPORTS_FOLDER / "base"
    exported = VoiceModel.load(folder, precision="fp32", device="cpu").talker.state_dict()
    for name, weight in runs.weights("zero3").items():
        assert torch.equal(exported[name], round_on_average(weight, f"talker.{name}").float()), name
