"""How many replicas are wanted: as many as the takes need slots, and one more where sound comes too late."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.serving.deploy.autoscaling import FULL_SHARE, LATE_CHUNKS, SLOTS_IN_USE, SlotPolicy, wanted_replicas

SLOTS = st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 40), max_size=6)
LATE = st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 5), max_size=6)


def wanted(in_use, late=None, num_queued=0.0, num_slots=8, num_replicas=None):
    count = len(in_use) if num_replicas is None else num_replicas
    return wanted_replicas(
        num_replicas=count, num_slots=num_slots, num_queued=num_queued, slots_in_use=in_use, late_chunks=late or {}
    )


@pytest.mark.parametrize(
    ("in_use", "late", "num_queued", "expected"),
    [
        ({}, {}, 0, 0),
        ({"a": 6}, {}, 0, 1),
        ({"a": 7}, {}, 0, 2),
        ({"a": 8}, {}, 12, 4),
        ({"a": 3, "b": 3}, {}, 0, 1),
        # Sound comes too late while slots are free: the machine is slower than its slots.
        ({"a": 3, "b": 2}, {"b": 0.2}, 0, 3),
        # One take alone that comes too late does so on any other replica of this kind.
        ({"a": 1, "b": 2}, {"a": 0.2}, 0, 1),
        ({"a": 3}, {"a": 0.0}, 0, 1),
        # One that is gone already.
        ({"a": 3}, {"gone": 4.0}, 0, 1),
    ],
)
def test_what_is_wanted(in_use, late, num_queued, expected):
    assert math.ceil(wanted(in_use, late, num_queued)) == expected


@given(SLOTS, LATE, st.floats(0, 50), st.integers(1, 32))
def test_there_are_slots_for_all_and_never_fewer_for_more(in_use, late, num_queued, num_slots):
    count = math.ceil(wanted(in_use, late, num_queued, num_slots))
    demand = sum(in_use.values()) + num_queued
    assert count * num_slots * FULL_SHARE >= demand - 1e-6
    assert wanted(in_use, late, num_queued + 1, num_slots) >= wanted(in_use, late, num_queued, num_slots)
    assert wanted(in_use, {}, num_queued, num_slots) <= wanted(in_use, late, num_queued, num_slots)
    # Late sound asks for one more, and for no other one until that runs.
    assert count <= max(math.ceil(demand / (FULL_SHARE * num_slots)), len(in_use) + 1)


class Context:
    """Of Serve, as far as it is looked at."""

    def __init__(self, metrics, num_queued=0.0):
        self.aggregated_metrics, self.total_queued_requests = metrics, num_queued
        self.current_num_replicas = 1


def test_the_policy_reads_what_replicas_report():
    metrics = {SLOTS_IN_USE: {"a": 4.0}, LATE_CHUNKS: {"a": 0.5}}
    policy = SlotPolicy(num_slots=4)
    assert policy(Context(metrics)) == (2, {})
    assert policy(Context({SLOTS_IN_USE: {"a": 4.0}}, num_queued=6.0)) == (10 / (FULL_SHARE * 4), {})
    # None has reported yet.
    assert policy(Context(None)) == (0.0, {})
