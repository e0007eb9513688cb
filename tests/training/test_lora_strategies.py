"""However an adapter is spread over workers, it learns the same; its checkpoints are small and name their base."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from tests.golden import GOLDEN_CHECKPOINT
from tests.training.finetuning import make_job, make_rows, run_stages, stage, task, write_dataset
from tests.training.recorded_runs import FEW_STEPS, FRAME_COUNTS, HALF, Runs, assert_same_learning
from tests.training.strategy_worker import RecordingContext
from training.errors import ResumeError, TrainingError
from training.export import read_weights
from training.memory_plan import network_tensors, worker_memory
from training.model.checkpoint.digest import checkpoint_digest
from training.model.checkpoint.reading import read_config
from training.model.network.lora import is_adapter_weight
from training.run_checkpoints import list_checkpoints
from training.worker import run_worker

ADAPTER = {
    "method": "lora",
    "lora_rank": 4,
    "lora_dropout": 0.1,
    "lora_layers": ["attention", "mlp", "code-predictor"],
    "learning_rate": 1e-2,
    "num_steps": FEW_STEPS,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    runs = Runs(tmp_path_factory.mktemp("lora"))
    runs.results.mkdir()
    write_dataset(runs.folder / "dataset", make_rows(FRAME_COUNTS, num_held_out=2))

    def job(name, strategy="ddp", num_workers=1, **changes):
        return runs.job(name, strategy, num_workers, **{**ADAPTER, **changes})

    runs.here("single", job("single"))
    runs.here("recompute", job("recompute", activation_checkpointing=True))
    runs.here("stopped-1", job("stopped"), stop_after=HALF)
    runs.here("stopped", job("stopped"))
    # With layers of the code predictor that have nothing to train at all.
    runs.here("talker", job("talker", lora_layers=["mlp"]))
    two = [task(name, job(name, name, 2)) for name in ("ddp", "fsdp2", "fsdp2-no-reshard")]
    two.append(task("talker-fsdp2", job("talker-fsdp2", "fsdp2", 2, lora_layers=["mlp"])))
    two.append(task("half", job("half", "fsdp2", 2), stop_after=HALF))
    three = [task("half-to-3", job("half-to-3", "fsdp2", 3))]
    copies = [(runs.folder / "half", runs.folder / f"half-to-{number}") for number in (1, 3)]
    four = [task("fsdp2-hybrid", job("fsdp2-hybrid", "fsdp2-hybrid", 4))]
    run_stages(runs.folder / "workers", [stage(2, two), stage(3, three, copies), stage(4, four)], runs.results)
    runs.here("half-to-1", job("half-to-1"))
    return runs


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "fsdp2-no-reshard", "fsdp2-hybrid", "recompute"])
def test_all_strategies_learn_the_same(runs, name):
    assert_same_learning(runs, name, "single")


def test_layers_with_nothing_to_train_are_sharded_too(runs):
    assert_same_learning(runs, "talker-fsdp2", "talker")
    losses = [report["talker_loss"] for report in runs.reports("talker")]
    assert losses != [report["talker_loss"] for report in runs.reports("single")]


def test_a_stopped_run_goes_on_bit_for_bit(runs):
    whole, rest = runs.reports("single"), runs.reports("stopped")
    assert [report["step"] for report in rest] == list(range(HALF + 1, FEW_STEPS + 1))
    for key in ("talker_loss", "code_predictor_loss", "gradient_norm", "learning_rate"):
        assert [report[key] for report in rest] == [report[key] for report in whole[HALF:]], key
    expected, found = runs.weights("single"), runs.weights("stopped")
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("name", ["half-to-1", "half-to-3"])
def test_another_number_of_workers_goes_on_too(runs, name):
    assert_same_learning(runs, name, "single", first_step=HALF)


@pytest.mark.parametrize(
    ("name", "strategy", "num_workers"),
    [
        ("single", "ddp", 1),
        ("ddp", "ddp", 2),
        ("fsdp2", "fsdp2", 2),
        ("fsdp2-no-reshard", "fsdp2-no-reshard", 2),
        ("half-to-3", "fsdp2", 3),
        ("fsdp2-hybrid", "fsdp2-hybrid", 4),
    ],
)
def test_memory_is_as_planned(runs, name, strategy, num_workers):
    config = read_config(GOLDEN_CHECKPOINT)
    tensors = network_tensors(config, lora=runs.job("planned", "ddp", 1, **ADAPTER).lora)
    planned = worker_memory(config, strategy, num_workers, compute_bytes=4, tensors=tensors).state.total
    assert runs.reports(name)[-1]["state_bytes"] == pytest.approx(planned, rel=0.01)


@pytest.mark.parametrize("name", ["single", "fsdp2"])
def test_a_checkpoint_holds_the_adapter_its_moments_and_the_name_of_its_base(runs, name):
    newest = list_checkpoints(runs.folder / name)[-1]
    stored = FileSystemReader(newest.state).read_metadata().state_dict_metadata
    weights = [key for key in stored if key.startswith("model.")]
    assert weights
    assert all(map(is_adapter_weight, weights))
    tensors = network_tensors(read_config(GOLDEN_CHECKPOINT), lora=newest.job().lora)
    elements = sum(one.size.numel() for one in stored.values() if isinstance(one, TensorStorageMetadata))
    # Weights and two moments, and how many steps each has had.
    assert elements == 3 * tensors.num_trained + len(weights)
    assert newest.progress.base_digest == checkpoint_digest(GOLDEN_CHECKPOINT)


@pytest.mark.parametrize("method", [ADAPTER, {}], ids=["adapter", "all weights"])
def test_what_was_trained_is_not_put_onto_another_base(tmp_path, method):
    write_dataset(tmp_path / "dataset", make_rows((9, 16, 23)))
    shutil.copytree(GOLDEN_CHECKPOINT, tmp_path / "model")
    changes = {**method, "base_model": tmp_path / "model", "num_steps": 2, "export_at_end": False}
    job = make_job(tmp_path, **changes, checkpoint_every=1)
    run_worker(job, RecordingContext(0, 1, stop_after=1))
    weights = tmp_path / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(TrainingError, match=r"trained on a base model whose weights.* Put the original model back"):
        run_worker(job, RecordingContext(0, 1))
    with pytest.raises(TrainingError, match="trained on a base model whose weights"):
        read_weights(list_checkpoints(job.output)[-1], torch.zeros(1, 1))


def test_a_run_is_not_gone_on_with_by_another_method(runs):
    job = make_job(runs.folder, output=runs.folder / "single", num_steps=FEW_STEPS, learning_rate=1e-2)
    with pytest.raises(ResumeError, match="started with another method"):
        run_worker(job, RecordingContext(0, 1))


def test_a_job_of_an_earlier_version_trains_all_weights(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    before = {name: value for name, value in json.loads(job.model_dump_json()).items() if "lora" not in name}
    del before["method"]
    assert type(job).parse(before) == job
    assert job.lora is None
