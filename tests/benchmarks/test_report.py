from __future__ import annotations

from tests.benchmarks.report import Party, Spread, best_ratio, ratios, table

FAST = {
    "frame": [10.0, 30.0, 20.0],
    "talker": [5.0],
    "code_predictor": [15.0],
    "codec_4": [20.0],
    "codec_one_shot": [16.0],
}
SLOW = {name: [3 * value for value in values] for name, values in FAST.items()}


def party(name, *rounds):
    return Party(name, [{**answer, "peak_bytes": 2**30 * number} for number, answer in enumerate(rounds, 1)], 80.0)


def rows_of(markdown):
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown.splitlines()]
    return {first: rest for first, *rest in cells}


def test_a_busy_round_slows_both_sides_and_leaves_the_ratio():
    ours, reference = (
        party("ours", FAST, SLOW),
        party("reference", SLOW, {k: [9 * v for v in vs] for k, vs in FAST.items()}),
    )
    assert ratios(reference.per_round("frame"), ours.per_round("frame")) == [3.0, 3.0]


def test_the_least_disturbed_rounds_are_compared_whenever_they_were():
    assert best_ratio([30.0, 90.0, 600.0], [50.0, 10.0, 15.0]) == [3.0]


def test_a_round_counts_with_its_median():
    assert party("ours", FAST, SLOW).per_round("frame") == [20.0, 60.0]
    assert Spread.of([3.0, 1.0, 8.0]).show(0) == "3 (1 to 8)"


def test_real_time_is_frame_and_codec_by_what_is_heard():
    assert party("ours", FAST, SLOW).real_time_factors == [0.5, 1.5]


def test_the_table_leaves_empty_what_a_party_cannot_do():
    reference = party("reference", {name: SLOW[name] for name in ("frame", "talker", "code_predictor")})
    rows = rows_of(table([party("ours", FAST)], reference, prompt_rows=60))
    assert rows["**frame: times as fast as the reference**"] == ["1", "3.00"]
    assert rows["**codec, 4 frames per call : one shot**"] == ["", "1.25"]
    assert rows["peak memory of the process"] == ["1.00 GiB", "1.00 GiB"]
    assert "**frame: times as fast as the reference**" not in rows_of(
        table([party("ours", FAST)], None, prompt_rows=60)
    )
