"""ZeRO trains an adapter as one process does, and its checkpoints are taken up by as many workers or by others."""

from __future__ import annotations

import pytest
import torch

from tests.golden import GOLDEN_CHECKPOINT
from tests.training.finetuning import make_rows, run_stages, stage, task, write_dataset
from tests.training.recorded_runs import FRAME_COUNTS, HALF, Runs, assert_same_learning
from tests.training.test_lora_strategies import ADAPTER
from training.export import EXPORTS_FOLDER
from training.job import ADAPTER_FOLDER
from training.memory_plan import network_tensors, worker_memory
from training.model.checkpoint.reading import read_config
from training.model.checkpoint.rounding import round_on_average
from training.model.voice_model import VoiceModel
from training.run_checkpoints import list_checkpoints

pytestmark = pytest.mark.deepspeed

STAGES = ("zero1", "zero2", "zero3")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    runs = Runs(tmp_path_factory.mktemp("lora-zero"))
    runs.results.mkdir()
    write_dataset(runs.folder / "dataset", make_rows(FRAME_COUNTS, num_held_out=2))

    def job(name, strategy, num_workers, **changes):
        return runs.job(name, strategy, num_workers, **{**ADAPTER, **changes})

    runs.here("single", job("single", "ddp", 1))
    two = [task(name, job(name, name, 2, export_at_end=name == "zero3")) for name in STAGES]
    two.append(task("stopped-1", job("stopped", "zero2", 2), stop_after=HALF))
    # On two machines without a common folder, and then on one that has nothing but what they have stored.
    two.append(task("far-1", job("half-to-1", "zero2", 2), stop_after=HALF, storage=runs.storage))
    one = [task("half-to-1", job("half-to-1", "zero2", 1), storage=runs.storage)]
    again = [task("stopped", job("stopped", "zero2", 2))]
    stages = [stage(2, two), stage(1, one), stage(2, again)]
    run_stages(runs.folder / "workers", stages, runs.results, with_deepspeed=True)
    runs.fetch("half-to-1")
    return runs


@pytest.mark.parametrize("name", STAGES)
def test_all_stages_learn_the_same(runs, name):
    assert_same_learning(runs, name, "single")


@pytest.mark.parametrize("name", ["stopped", "half-to-1"])
def test_a_stopped_run_goes_on_also_with_another_number_of_workers(runs, name):
    assert_same_learning(runs, name, "single", first_step=HALF)


@pytest.mark.parametrize("name", STAGES)
def test_memory_is_as_planned(runs, name):
    config = read_config(GOLDEN_CHECKPOINT)
    tensors = network_tensors(config, lora=runs.job("planned", name, 2, **ADAPTER).lora)
    planned = worker_memory(config, name, 2, compute_bytes=4, tensors=tensors).state.total
    assert runs.reports(name)[-1]["state_bytes"] == pytest.approx(planned, rel=0.01)


def test_a_checkpoint_is_small(runs):
    base = (GOLDEN_CHECKPOINT / "model.safetensors").stat().st_size
    for name in STAGES:
        state = list_checkpoints(runs.folder / name)[-1].state
        assert sum(path.stat().st_size for path in state.rglob("*") if path.is_file()) < base / 2, name


def test_gathered_adapters_are_exported(runs):
    exports = runs.folder / "zero3" / EXPORTS_FOLDER
    assert (exports / ADAPTER_FOLDER).is_dir()
    exported = VoiceModel.load(exports / "base", precision="fp32", device="cpu").talker.state_dict()
    for name, weight in runs.weights("zero3").items():
        assert torch.equal(exported[name], round_on_average(weight, f"talker.{name}").float()), name
