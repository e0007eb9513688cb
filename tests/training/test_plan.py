"""Presets, and what a run is said to take before it starts."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.benchmarks.finetune import memory_table
from tests.golden import GOLDEN_CHECKPOINT
from tests.training.finetuning import make_job, make_rows, write_dataset
from training.data.batching import generator_of
from training.errors import JobInvalid
from training.estimate import estimate_run
from training.job import PRESETS, STRATEGIES, FineTuneJob, Preset
from training.job_data import plan_data, read_data
from training.loss import SpeechLoss
from training.machine import Machine
from training.memory_plan import activation_bytes, network_tensors, worker_memory
from training.model.config import ModelConfig
from training.model.device_names import DEVICES
from training.model.errors import EncoreError
from training.model.lora_config import ADAPTED_LAYERS, LoraConfig
from training.model.voice_model import VoiceModel
from training.preflight import disk_problems, job_problems, memory_problems, uses_gpus
from training.presets import preset_fields
from training.strategies.learner import StateBytes, frozen_dtype
from training.workers import device_of_worker, distributed_backend

MACHINE = Machine(num_cpus=2, num_gpus=0)
CONTRACT = Path(GOLDEN_CHECKPOINT).parent / "contract" / "1.7b-base.json"


def job_from_preset(preset: Preset, fields: dict[str, Any]) -> FineTuneJob:
    """What `fields` leave open is the preset's."""
    draft = FineTuneJob.parse(fields)
    return FineTuneJob.parse({**preset_fields(preset, read_data(draft), draft), **fields})


@pytest.fixture(scope="module")
def large() -> ModelConfig:
    return ModelConfig.from_json(json.loads(CONTRACT.read_text())["config"])


@pytest.fixture
def folder(tmp_path) -> Path:
    write_dataset(tmp_path / "dataset", make_rows((9, 16, 23, 30, 12, 18), num_held_out=1))
    return tmp_path


@pytest.mark.parametrize("strategy", ["fsdp2", "zero3"])
def test_four_workers_hold_a_quarter_each_of_the_large_model(large, strategy):
    one, four = (worker_memory(large, strategy, number).state.total for number in (1, 4))
    assert four == pytest.approx(one / 4, rel=0.01)


def test_the_large_model_has_its_published_size(large):
    tensors = network_tensors(large)
    assert tensors.num_trained + tensors.num_frozen == pytest.approx(1.92e9, rel=0.01)
    assert tensors.num_frozen == 151936 * 2048
    # Weights of all, and 12 bytes more for what is trained.
    assert worker_memory(large, "ddp", 4).state.total == 4 * tensors.num_frozen + 16 * tensors.num_trained


@pytest.mark.parametrize("layers", [("attention", "mlp"), ADAPTED_LAYERS], ids="+".join)
def test_an_adapter_of_the_large_model_takes_a_fraction_of_its_memory(large, layers):
    whole = network_tensors(large)
    tensors = network_tensors(large, lora=LoraConfig(rank=16, alpha=32, layers=layers))
    assert tensors.num_frozen == whole.num_trained + whole.num_frozen
    # Its checkpoints: weights and two moments.
    assert 12 * tensors.num_trained < 300e6
    full, on_gpu = worker_memory(large, "ddp", 1), worker_memory(large, "ddp", 1, frozen_bytes=2, tensors=tensors)
    assert on_gpu.state.total == 2 * tensors.num_frozen + 16 * tensors.num_trained
    assert on_gpu.state.total < full.state.total / 6
    # Where the arithmetic is bfloat16 and the base is not, every weight that is multiplied with is copied.
    on_cpu = worker_memory(large, "ddp", 1, frozen_bytes=4, tensors=tensors)
    assert on_cpu.gathered - on_gpu.gathered == 2 * (tensors.num_frozen - whole.num_frozen)
    shares = [worker_memory(large, "fsdp2", n, frozen_bytes=2, tensors=tensors).state.total for n in (1, 4)]
    assert shares[1] == pytest.approx(shares[0] / 4, rel=0.01)


@pytest.mark.parametrize(
    ("method", "device", "expected"),
    [
        ("lora", "cuda", torch.bfloat16),
        ("lora", "cpu", torch.float32),
        ("full", "cuda", torch.float32),
    ],
)
def test_the_frozen_base_of_an_adapter_is_halved_on_a_gpu(tmp_path, method, device, expected):
    job = make_job(tmp_path, method=method)
    assert frozen_dtype(job, torch.device(device), torch.bfloat16) == expected
    assert frozen_dtype(job, torch.device(device), torch.float32) == torch.float32


def test_the_table_of_the_benchmark_report_shows_all_strategies(large):
    lines = memory_table(large).splitlines()
    rows = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in lines if line.startswith("| ")}
    assert tuple(rows)[1:] == STRATEGIES
    sizes = [float(cell.split()[0]) for cell in rows["fsdp2"]]
    assert sizes[2] == pytest.approx(sizes[0] / 4, abs=0.1)


def test_recomputing_keeps_a_fraction_of_the_activations(large):
    whole, few = (
        activation_bytes(large, micro_batch_tokens=1024, compute_bytes=2, activation_checkpointing=recompute)
        for recompute in (False, True)
    )
    assert few < 0.4 * whole


def test_activations_are_about_what_autograd_keeps(tmp_path):
    """Counted by autograd itself; the estimate is for three frames in four rows, and so is the batch."""
    write_dataset(tmp_path / "dataset", make_rows((90, 90, 90)))
    job = make_job(tmp_path, micro_batch_tokens=1000, micro_batches=1, in_context_ratio=0.0)
    config, _, batches = plan_data(job)
    micro_batch = batches.step(0).micro_batches[0]
    talker = VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu").talker.train()
    module = SpeechLoss(talker)
    batch = batches.collate(micro_batch)
    kept: dict[int, int] = {}
    parameters = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        losses = module(batch, generator_of(micro_batch))
    rows = batch.labels_BT.numel()
    planned = activation_bytes(config, micro_batch_tokens=rows, compute_bytes=4)
    assert 0.5 * sum(kept.values()) < planned < 2 * sum(kept.values())
    assert losses.talker.isfinite()


def test_only_small_models_are_known_to_gain_by_mishearing(folder, monkeypatch):
    training_set = plan_data(make_job(folder))[1]
    assert preset_fields("quick", training_set)["misheard_share"] > 0
    monkeypatch.setattr("training.presets.LARGE_MODEL_PARAMETERS", 1)
    assert preset_fields("quick", training_set)["misheard_share"] == 0


def test_presets_make_jobs_that_grow(folder):
    fields = {
        name: value
        for name, value in make_job(folder).model_dump().items()
        if name in ("voice", "dataset", "dataset_digest", "base_model", "output", "device")
    }
    jobs = [job_from_preset(preset, fields) for preset in PRESETS]
    assert [job.num_steps for job in jobs] == sorted({job.num_steps for job in jobs})
    assert [job.code_predictor_fraction for job in jobs] == [0.25, 0.5, 1.0]
    # Few clips are soon known by heart, and the first checkpoint must come before.
    assert all(job.checkpoint_every <= min(24, job.num_steps // 3) for job in jobs)
    assert all(job.interpolation_alpha < 1 for job in jobs)
    assert all(job.misheard_share > 0 for job in jobs)
    assert job_from_preset("quick", {**fields, "num_steps": 7}).num_steps == 7
    # The rest is made to fit: as many checkpoints to choose among, and epochs where somebody asks for them.
    assert job_from_preset("quick", {**fields, "num_steps": 900}).checkpoint_every == 300
    epochs = job_from_preset("quick", {**fields, "num_epochs": 30})
    assert (epochs.num_steps, plan_data(epochs)[2].num_steps) == (None, 30)
    assert epochs.checkpoint_every == 10
    with pytest.raises(JobInvalid, match="did you mean 'num_steps'"):
        job_from_preset("quick", {**fields, "num_step": 7})


def test_presets_train_longer_on_more_data(tmp_path):
    steps = []
    for name, num_clips in (("few", 6), ("many", 400)):
        write_dataset(tmp_path / name / "dataset", make_rows([60] * num_clips))
        job = make_job(tmp_path / name)
        _, training_set, _ = plan_data(job)
        steps.append([preset_fields(preset, training_set)["num_steps"] for preset in PRESETS])
    assert all(more > few for few, more in zip(*steps, strict=True))
    # Never hundreds of times over a handful of clips.
    assert max(steps[0]) < 100


def test_styles_are_learned_by_continuing_clips_of_them(tmp_path):
    ratios = {}
    for name, style in (("plain", ""), ("styled", "calm")):
        rows = [replace(row, style=style) for row in make_rows([60] * 6)]
        write_dataset(tmp_path / name / "dataset", rows)
        training_set = plan_data(make_job(tmp_path / name))[1]
        ratios[name] = [preset_fields(preset, training_set)["in_context_ratio"] for preset in PRESETS]
    assert ratios["plain"][0] == 0.0
    assert all(ratio > 0 for ratio in ratios["styled"])
    assert ratios["styled"][1:] == ratios["plain"][1:]


def test_a_plan_knows_steps_time_and_disk(folder):
    job = make_job(folder, num_steps=None, num_epochs=4)
    _, training_set, batches = plan_data(job)
    plan = estimate_run(job, training_set, batches, device=torch.device("cpu"), seconds_per_step=30.0)
    assert plan.num_steps == batches.num_steps >= 4
    assert plan.num_clips == 5
    assert plan.minutes == plan.num_steps / 2
    weights = sum(p.numel() for p in VoiceModel.load(GOLDEN_CHECKPOINT, device="cpu").talker.parameters())
    assert plan.disk_bytes > 12 * weights * job.keep_checkpoints * 0.9
    twice = make_job(folder, num_steps=None, num_epochs=8)
    _, training_set, batches = plan_data(twice)
    assert estimate_run(twice, training_set, batches, device=torch.device("cpu")).minutes > 0


def test_a_job_that_can_run_passes(folder):
    assert job_problems(make_job(folder), MACHINE) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_workers": 3}, "3 workers need 3 CPUs, and this machine has 2 CPUs. Use at most 2 workers"),
        ({"device": "cuda"}, "There is no GPU on this machine"),
        ({"base_model": "/nowhere"}, "There is no folder /nowhere"),
        ({"output": f"{__file__}/run"}, "is a file, so the run cannot be written"),
        ({"strategy": "zero3", "offload": "nvme", "nvme_folder": "/nowhere"}, "no folder /nowhere to offload to"),
    ],
    ids=["workers", "gpu", "no model", "output", "nvme"],
)
def test_what_is_missing_is_said_before_anything_starts(folder, changes, message):
    problems = job_problems(make_job(folder, **changes), MACHINE)
    assert sum(message in problem for problem in problems) == 1
    # Offloading to disk needs a compiler as well, which a machine may lack.
    assert len(problems) == 1 or changes.get("offload") == "nvme"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset_digest": "older"}, "was changed since this run was planned"),
        ({"dataset": "/nowhere"}, "/nowhere holds no dataset"),
    ],
    ids=["edited", "no data"],
)
def test_data_that_cannot_be_trained_on_is_refused(folder, changes, message):
    with pytest.raises(EncoreError, match=message):
        read_data(make_job(folder, **changes))


def test_devices_without_collectives_or_kernels_of_a_strategy_are_refused(folder):
    for changes, message in (
        ({"device": "mps", "num_workers": 2}, "Workers on Apple GPUs cannot train together"),
        ({"device": "xpu", "strategy": "zero2"}, "DeepSpeed's strategies are for CPUs and CUDA"),
    ):
        assert any(message in problem for problem in job_problems(make_job(folder, **changes), MACHINE))
    with_gpus = MACHINE.model_copy(update={"num_gpus": 2})
    used = {device: uses_gpus(make_job(folder, device=device), with_gpus) for device in DEVICES}
    assert used == {"auto": True, "cpu": False, "cuda": True, "mps": False, "xpu": True}


def test_a_run_whose_weights_alone_do_not_fit_is_refused_with_what_would(folder):
    job = make_job(folder)
    _, training_set, batches = plan_data(job)
    estimate = estimate_run(job, training_set, batches, device=torch.device("cpu"))
    state = estimate.memory.state.total
    assert memory_problems(job, estimate, state) == memory_problems(job, estimate, None) == []
    (problem,) = memory_problems(job, estimate, state - 1)
    assert "--method lora" in problem
    assert "--strategy fsdp2" in problem
    sharded = job.model_copy(update={"method": "lora", "strategy": "fsdp2"})
    (problem,) = memory_problems(sharded, estimate, state - 1)
    assert "--" not in problem


NOTHING = StateBytes(parameters=0, gradients=0, optimizer=0)


@pytest.mark.parametrize("strategy", ["fsdp2", "fsdp2-no-reshard", "fsdp2-hybrid"])
def test_fsdp2_offloads_all_of_its_shards(large, strategy):
    plain, offloaded = (worker_memory(large, strategy, 4, offload=offload) for offload in ("none", "cpu"))
    assert (plain.main, offloaded.state, offloaded.main) == (0, NOTHING, plain.state.total)
    assert (offloaded.gathered, offloaded.activations) == (plain.gathered, plain.activations)
    # On CPUs it is the same memory.
    assert worker_memory(large, strategy, 4, offload="cpu", on_gpu=False) == plain


@pytest.mark.parametrize("strategy", ["zero1", "zero2"])
def test_zero_offloads_the_optimizer_and_what_it_updates_from(large, strategy):
    plain, offloaded = (worker_memory(large, strategy, 1, offload=offload) for offload in ("none", "cpu"))
    trained = network_tensors(large).num_trained
    assert offloaded.state.parameters == plain.state.parameters
    assert offloaded.state.gradients == (plain.state.gradients if strategy == "zero1" else 0)
    assert offloaded.state.optimizer == 0
    # Master weights, two moments and gradients in float32; gradients and weights in bfloat16.
    assert offloaded.main == pytest.approx(20 * trained, rel=1e-6)
    on_cpu = worker_memory(large, strategy, 1, offload="cpu", on_gpu=False)
    assert (on_cpu.state.total, on_cpu.main) == (offloaded.state.total + offloaded.main, 0)


def test_zero3_offloads_weights_too_and_a_disk_leaves_buffers(large):
    plain, cpu, disk = (worker_memory(large, "zero3", 1, offload=offload) for offload in ("none", "cpu", "nvme"))
    assert cpu.state == disk.state == NOTHING
    assert cpu.main > plain.state.total
    assert disk.main < cpu.main
    assert cpu.gathered == disk.gathered == plain.gathered


@pytest.mark.parametrize(("strategy", "offload", "num_workers"), [("ddp", "cpu", 4), ("fsdp2", "cpu", 1)])
def test_what_offloads_nothing_is_not_planned_to(large, strategy, offload, num_workers):
    plain = worker_memory(large, strategy, num_workers)
    assert worker_memory(large, strategy, num_workers, offload=offload) == plain


def test_offloaded_state_must_fit_into_the_main_memory_only(folder):
    job = make_job(folder, strategy="zero3", offload="cpu")
    _, training_set, batches = plan_data(job)
    estimate = estimate_run(job, training_set, batches, device=torch.device("cuda"))
    memory = estimate.memory
    assert memory.main > 0
    assert memory_problems(job, estimate, 0, memory.main) == memory_problems(job, estimate, 0, None) == []
    (problem,) = memory_problems(job, estimate, 0, memory.main - 1)
    assert "to the main memory" in problem


def test_workers_send_through_what_their_devices_have():
    backends = [distributed_backend(device, "none") for device in ("cpu", "mps", "cuda", "xpu")]
    assert backends == ["gloo", "gloo", "nccl", "cpu:gloo,xpu:xccl"]


@pytest.mark.parametrize(("num_workers", "expected"), [(1, "mps"), (2, "cpu")])
def test_an_apple_gpu_trains_alone(monkeypatch, num_workers, expected):
    monkeypatch.setattr("training.workers.choose_device", lambda name: torch.device("mps"))
    assert device_of_worker("auto", 0, num_workers).type == expected


def test_the_size_of_a_cluster_is_not_known_before_it_is_joined(folder):
    cluster = MACHINE.model_copy(update={"address": "there:1"})
    assert job_problems(make_job(folder, num_workers=64, device="cuda"), cluster) == []


def test_a_compiler_is_asked_for_only_where_deepspeed_needs_one(folder, monkeypatch):
    monkeypatch.setenv("PATH", str(folder))
    for offload in ("none", "cpu"):
        assert job_problems(make_job(folder, strategy="zero3", offload=offload), MACHINE) == []
    (problem,) = job_problems(make_job(folder, strategy="zero3", offload="nvme", nvme_folder=folder), MACHINE)
    assert "needs a C++ compiler and ninja" in problem


def test_a_model_of_another_family_is_refused(folder):
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text('{"model_type": "llama"}')
    (problem,) = job_problems(make_job(folder, base_model=folder / "model"), MACHINE)
    assert "model_type is 'llama', not 'qwen3_tts'" in problem


def test_a_model_whose_weights_are_cut_off_is_refused(folder):
    model = folder / "model"
    shutil.copytree(GOLDEN_CHECKPOINT, model)
    os.truncate(model / "model.safetensors", 5000)
    (problem,) = job_problems(make_job(folder, base_model=model), MACHINE)
    assert "model.safetensors" in problem


def test_a_full_disk_is_noticed_before(folder, monkeypatch):
    monkeypatch.setattr("training.preflight.free_bytes", lambda path: 1000)
    job = make_job(folder)
    _, training_set, batches = plan_data(job)
    (problem,) = disk_problems(job, estimate_run(job, training_set, batches, device=torch.device("cpu")))
    assert "Free some space" in problem
