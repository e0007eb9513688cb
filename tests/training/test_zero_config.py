"""DeepSpeed's JSON as a job asks for it, and as a person extends it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.training.finetuning import make_job
from training import preflight
from training.strategies.zero import deepspeed_config


def config_of(folder, stage, *, on_gpu=False, **changes):
    job = make_job(folder, strategy=f"zero{stage}", num_workers=2, **changes)
    return deepspeed_config(job, torch.bfloat16, stage=stage, num_trained=1000, largest=501, on_gpu=on_gpu)


def test_offload_to_a_disk_names_it_for_weights_and_optimizer(tmp_path):
    zero = config_of(tmp_path, 3, offload="nvme", nvme_folder=tmp_path / "disk", on_gpu=True)["zero_optimization"]
    place = {"device": "nvme", "nvme_path": str(tmp_path / "disk" / "encore-run"), "pin_memory": True}
    assert zero["offload_optimizer"] == place
    # Two workers read halves of tensors.
    assert zero["offload_param"] == place | {"buffer_size": 251}


@pytest.mark.parametrize("stage", [1, 2])
def test_below_stage_three_only_the_optimizer_is_offloaded(tmp_path, stage):
    zero = config_of(tmp_path, stage, offload="cpu")["zero_optimization"]
    assert zero["offload_optimizer"] == {"device": "cpu", "pin_memory": False}
    assert "offload_param" not in zero
    assert "offload_optimizer" not in config_of(tmp_path, stage)["zero_optimization"]


@pytest.mark.parametrize(("stage", "overlaps"), [(1, False), (2, True), (3, True)])
def test_gradients_are_summed_beside_the_backward_pass_where_deepspeed_lets_them(tmp_path, stage, overlaps):
    config = config_of(tmp_path, stage, on_gpu=True)
    assert config["zero_optimization"]["overlap_comm"] is overlaps
    # DeepSpeed's own check: with steps of any number of micro-batches it overlaps only what is sharded.
    assert config["managed_gradient_accumulation"] is False
    assert config_of(tmp_path, stage)["zero_optimization"]["overlap_comm"] is False


def test_a_jobs_own_entries_lie_over_what_the_strategy_says(tmp_path):
    plain = config_of(tmp_path, 3)
    own = {"zero_optimization": {"reduce_bucket_size": 7}, "aio": {"queue_depth": 32}, "gradient_clipping": 0.5}
    extended = config_of(tmp_path, 3, deepspeed=own)
    assert extended["zero_optimization"] == plain["zero_optimization"] | {"reduce_bucket_size": 7}
    assert (extended["aio"], extended["gradient_clipping"]) == ({"queue_depth": 32}, 0.5)
    rest = {"zero_optimization", "aio", "gradient_clipping"}
    assert {name: value for name, value in extended.items() if name not in rest} == {
        name: value for name, value in plain.items() if name not in rest
    }


@pytest.mark.deepspeed
@pytest.mark.parametrize(
    ("section", "told"),
    [({"reduce_bucket_sise": 5}, "zero_optimization.reduce_bucket_sise"), ({"stage": 9}, "stage"), (5, "is 5")],
)
def test_an_option_that_deepspeed_does_not_know_is_told_before(tmp_path, section, told):
    (problem,) = preflight.strategy_problems(
        make_job(tmp_path, strategy="zero2", deepspeed={"zero_optimization": section})
    )
    assert told in problem


def test_what_offload_to_a_disk_lacks_is_one_sentence(tmp_path: Path, monkeypatch):
    (tmp_path / "disk").mkdir()
    job = make_job(tmp_path, strategy="zero3", offload="nvme", nvme_folder=tmp_path / "disk")
    monkeypatch.setattr(preflight, "_has_ninja", lambda: True)
    monkeypatch.setattr(preflight.shutil, "which", lambda command: f"/usr/bin/{command}")
    monkeypatch.setattr(preflight.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(preflight, "_has_async_io", lambda: False)
    (problem,) = preflight.strategy_problems(job)
    assert "libaio" in problem
    assert problem.count(". ") == 1
    monkeypatch.setattr(preflight, "_has_async_io", lambda: True)
    assert preflight.strategy_problems(job) == []
