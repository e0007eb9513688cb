from __future__ import annotations

from tests.benchmarks.serving_report import Load, percentile, serving_table


def load(wall_seconds, **changes):
    facts = {
        "wall_seconds": wall_seconds,
        "sound_seconds": 12.0,
        "first_audio_seconds": [0.1, 0.2, 0.3, 0.4],
        "num_underruns": 2,
        "longest_pause_seconds": 0.5,
        "num_takes": 4,
        "peak_bytes": 2**30,
    }
    return Load(**{**facts, **changes})


def test_percentiles_are_values_that_were_measured():
    values = list(range(1, 101))
    assert (percentile(values, 0.5), percentile(values, 0.95), percentile(values, 1)) == (50, 95, 100)
    assert percentile([3.0], 0.95) == 3.0


def test_a_gain_is_taken_within_rounds():
    loads = {("slow", 2): [load(6.0), load(12.0)], ("fast", 2): [load(2.0), load(3.0, num_underruns=0)]}
    slow, fast = serving_table(loads, ("slow", "fast"), [2]).splitlines()[2:]
    assert "| 1.50 (1.00 to 2.00) | 1 | 200 | 400 | 0.50 | 0.50 | 1.00 GiB |" in slow
    assert "| 5.00 (4.00 to 6.00) | **3.50 (3.00 to 4.00)** | 200 | 400 | 0.25 (0.00 to 0.50) |" in fast
