"""Guessing gets slower, is forgotten, and takes no more memory than was decided."""

from __future__ import annotations

import pytest

from backend.web.attempts import FORGET_SECONDS, MAX_ENTRIES, MAX_HOLD_SECONDS, MAX_WAIT_SECONDS, NUM_FREE, Attempts


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def attempts(clock):
    return Attempts(clock)


def test_a_few_mistakes_cost_nothing_and_more_cost_ever_more(attempts, clock):
    waits = []
    for _ in range(NUM_FREE + 10):
        waits.append(attempts.wait_seconds("203.0.113.7"))
        clock.now += waits[-1]
        attempts.begin("203.0.113.7")
    assert waits[:NUM_FREE] == [0.0] * NUM_FREE
    assert waits[NUM_FREE : NUM_FREE + 4] == [1.0, 2.0, 4.0, 8.0]
    assert waits[-1] == MAX_WAIT_SECONDS
    assert attempts.wait_seconds("203.0.113.8") == 0.0
    clock.now += FORGET_SECONDS + 1
    assert attempts.wait_seconds("203.0.113.7") == 0.0


def test_those_at_the_same_time_count_each(attempts):
    for _ in range(100):
        attempts.begin("203.0.113.7")
    assert attempts.wait_seconds("203.0.113.7") == MAX_WAIT_SECONDS


def test_what_was_right_is_no_mistake_and_forgives_none(attempts):
    for _ in range(100):
        attempts.begin("203.0.113.7")
        attempts.succeed("203.0.113.7")
    assert attempts.wait_seconds("203.0.113.7") == 0.0
    for _ in range(NUM_FREE + 1):
        attempts.begin("203.0.113.7")
    attempts.begin("203.0.113.7")
    attempts.succeed("203.0.113.7")
    assert attempts.wait_seconds("203.0.113.7") > 0.0


def test_a_name_that_many_guess_at_is_held_and_never_shut(attempts):
    for number in range(1000):
        attempts.begin(f"203.0.113.{number}")
        attempts.begin_name("ann")
    assert attempts.hold_seconds("ann") == MAX_HOLD_SECONDS
    assert attempts.hold_seconds("bob") == 0.0
    assert attempts.wait_seconds("198.51.100.1") == 0.0


def test_one_network_is_one_address(attempts):
    for number in range(100):
        attempts.begin(f"2001:db8:1:2::{number:x}")
    assert attempts.wait_seconds("2001:db8:1:2:ffff::1") == MAX_WAIT_SECONDS
    assert attempts.wait_seconds("2001:db8:1:3::1") == 0.0


def test_memory_is_bounded(attempts):
    for number in range(3 * MAX_ENTRIES):
        attempts.begin(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
        attempts.begin_name(f"name {number}")
    assert attempts.num_entries <= 2 * MAX_ENTRIES
