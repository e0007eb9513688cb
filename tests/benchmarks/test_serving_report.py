from __future__ import annotations

from tests.benchmarks.serving_report import Load, crowd_lines, open_loop_table, percentile, serving_table


def load(wall_seconds, **changes):
    facts = {
        "wall_seconds": wall_seconds,
        "processor_seconds": wall_seconds / 2,
        "sound_seconds": 12.0,
        "first_audio_seconds": [0.1, 0.2, 0.3, 0.4],
        "num_underruns": 2,
        "max_pause_seconds": 0.5,
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
    assert "| 1.50 (1.00 to 2.00) | 1 | 3.00 (2.00 to 4.00) | 1 | 200 | 400 | 0.50 | 0.50 | 1.00 GiB |" in slow
    gain = "**3.50 (3.00 to 4.00)**"
    assert f"| 5.00 (4.00 to 6.00) | {gain} | 10.00 (8.00 to 12.00) | {gain} | 200 | 400 | 0.25 (0.00 to 0.50)" in fast


def listener(status=200, sound_seconds=2.0, first_audio_seconds=0.1):
    return {
        "status": status,
        "sound_seconds": sound_seconds,
        "first_audio_seconds": first_audio_seconds,
        "num_underruns": 1,
        "max_pause_seconds": 0.3,
        "num_chunks": 10,
        "lead": {"seconds": 0.24, "waited_seconds": 0.05, "num_underruns": 0, "max_pause_seconds": 0.0},
        "ended_at": 5.0,
    }


REFUSED = listener(status=429, sound_seconds=0.0, first_audio_seconds=0.0)


def test_who_was_turned_away_has_no_first_audio():
    heard = [listener(), listener(first_audio_seconds=0.2), REFUSED]
    line = open_loop_table({4: (8.0, heard)}).splitlines()[2]
    assert line == "| 4 | 3 | 1 | 0.50 | 100 | 200 | 1.00 | 0.30 | 10.0 | 0.0 | 0.00 | 0.24, 0.24 | 50, 50 |"


def test_every_request_of_a_crowd_is_accounted_for():
    first, _, second = crowd_lines([listener(), REFUSED, REFUSED], 6.0, 9, 10, [2**20, 3 * 2**20])
    assert "3 requests at once: 1 heard" in first
    assert "2 were answered with 429, the last of them after 5.0 s, and 0 otherwise" in first
    assert "9 of 10" in second
    assert second.endswith("1, 3.")
