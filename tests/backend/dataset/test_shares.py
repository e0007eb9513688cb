"""How a cluster is divided: never all of it."""

from __future__ import annotations

import pytest

from backend.dataset.build.ray_pipeline import share_of


@pytest.mark.parametrize("cores", [1.0, 2.0, 3.0, 4.0, 64.0])
@pytest.mark.parametrize("wanted", [None, 1, 2, 3, 7])
def test_actors_leave_room_for_reading(cores: float, wanted: int | None):
    share = share_of({"CPU": cores}, wanted, use_gpu=False)
    assert share.num_actors == (wanted or min(4, max(1, int(cores - 1))))
    assert (share.num_cpus > 0) == (cores > 1)
    assert share.num_cpus <= 1
    # A task that reads or cuts takes a whole core.
    assert share.num_actors * share.num_cpus <= cores - 1 + 1e-9


@pytest.mark.parametrize("cores", [1.0, 2.0, 8.0])
@pytest.mark.parametrize("machines", [2, 3, 8])
def test_a_machine_that_is_lost_leaves_room_for_reading(cores: float, machines: int):
    share = share_of({"CPU": cores * machines}, None, use_gpu=False, spare_cpus=cores)
    assert share.num_actors == share_of({"CPU": cores * machines}, None, use_gpu=False).num_actors
    assert share.num_actors * share.num_cpus <= cores * (machines - 1) - 1 + 1e-9


def test_a_gpu_is_shared_by_those_who_ask_for_it():
    assert share_of({"CPU": 8.0, "GPU": 1.0}, 2, use_gpu=True).num_gpus == 0.5
    assert share_of({"CPU": 8.0, "GPU": 4.0}, None, use_gpu=True).num_actors == 4
    assert share_of({"CPU": 8.0, "GPU": 1.0}, 2, use_gpu=False).num_gpus == 0
