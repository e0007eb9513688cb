"""What the soak concludes from its samples."""

from __future__ import annotations

import os

import pytest

from tests.soak.growth import Sample, growth, is_bounded, sample_of, table

METRICS = """
encore_memory_bytes{device="cpu",owner="weights"} 5.28e+07
encore_memory_bytes{device="cpu",owner="arena"} 1.0e+06
encore_memory_bytes{device="cuda",owner="weights"} 9.0e+09
"""


def samples(*sizes: float, every: float = 1.0) -> list[Sample]:
    return [
        Sample(minute=(number + 1) * every, resident=size * 1e6, unique=size * 9e5) for number, size in enumerate(sizes)
    ]


def test_the_end_is_compared_with_the_tenth_minute() -> None:
    """What is loaded before it is no growth."""
    hour = samples(*(100 * number for number in range(1, 10)), *([1000] * 48), 1100, 1100, 1100)
    assert growth(hour) == pytest.approx(0.1)
    assert is_bounded({"studio": hour})
    assert not is_bounded({"API": hour, "studio": [*hour[:-3], *samples(1200, 1200, 1200, every=60)]})


def test_a_single_peak_decides_nothing() -> None:
    assert growth(samples(*([1000] * 59), 5000)) == 0
    assert growth(samples(*([1000] * 9), 400, *([1000] * 50))) == 0


def test_a_short_soak_is_compared_with_its_half() -> None:
    assert growth(samples(100, 300, 400, 400, 400, 600, 600, 600, every=0.25)) == pytest.approx(0.5)
    assert growth(samples(100)) == 0


def test_the_table_names_owners_and_growth() -> None:
    here = sample_of(os.getpid(), 1.0, METRICS)
    assert here.owners == {"weights": 5.28e7, "arena": 1e6}
    assert 0 < here.unique <= here.resident
    shown = table({"API": [here, here], "studio": samples(700, 840)})
    assert "| process | minute | resident | unique | arena | weights |" in shown
    assert "| studio | 2.0 | 840 | 756 |  |  |" in shown
    assert "API: +0% since it had settled" in shown
