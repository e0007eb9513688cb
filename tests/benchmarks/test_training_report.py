from __future__ import annotations

import pytest

from tests.benchmarks.training_report import Party, table, times_as_fast, times_by_clock


def party(name, *rounds):
    answers = [
        {"clips": clips, "processor_seconds": processor, "seconds": wall, "loading_bytes": 2**30, "peak_bytes": 2**31}
        for clips, processor, wall in rounds
    ]
    return Party(name, answers, [1.0, 2.0])


def test_the_least_disturbed_rounds_are_compared_by_what_a_sample_takes():
    # Eight samples in 4 s beside four in 1 s: 500 and 250 ms each, whatever the other rounds took.
    slow, fast = party("reference, one", (8, 4.0, 16.0), (8, 40.0, 8.0)), party("ours", (4, 9.0, 9.0), (4, 1.0, 2.0))
    assert times_as_fast(fast, slow) == pytest.approx(2.0)
    assert times_by_clock(fast, slow) == pytest.approx(2.0)
    assert min(fast.milliseconds) == pytest.approx(250.0)


def test_every_party_of_ours_stands_beside_every_reference():
    references = [party("reference, one", (1, 3.0, 3.0)), party("reference, other", (1, 6.0, 9.0))]
    rows = table([*references, party("ours", (1, 1.0, 1.0))]).splitlines()
    assert [cell.strip() for cell in rows[-1].strip("|").split("|")] == ["ours", "3.00", "3.00", "6.00", "9.00"]
    assert sum(row.startswith("| reference") for row in rows) == len(references)
    assert "2.00 GiB" in rows[2]


def test_without_a_reference_nothing_is_compared():
    assert "Times as fast" not in table([party("ours", (1, 1.0, 1.0))])
