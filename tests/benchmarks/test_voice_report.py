from __future__ import annotations

from dataclasses import replace

import pytest

from tests.benchmarks.voice_report import Column, Judged, voice_table

CLEAR = Judged(
    text="Seven ducks crossed.",
    heard="seven ducks crossed",
    similarity=0.9,
    is_nearest=True,
    length_ratio=1.0,
    is_clipped=False,
)
TAKE = replace(
    CLEAR,
    heard="seven dogs crossed",
    ended=True,
    chunk_difference=0.0,
    real_time_factor=0.1,
    first_audio_seconds=0.12,
)


def cells(columns: list[Column]) -> dict[str, list[str]]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in voice_table(columns).splitlines()]
    return {first: rest for first, *rest in rows}


def test_errors_are_counted_over_all_sentences_and_compared_with_the_source():
    source = Column(name="source", judged=[CLEAR, replace(CLEAR, heard="seven duck crossed")])
    clone = Column(name="clone", judged=[TAKE, TAKE])
    assert source.character_error == pytest.approx(1 / 38)
    found = cells([source, clone])
    assert found[""] == ["source", "clone"]
    assert found["times the source's"] == ["1.0", f"{clone.character_error * 38:.1f}"]
    assert found["word error"] == ["16.7 %", "33.3 %"]


def test_the_interval_of_errors_holds_them_and_narrows_with_more_sentences():
    mixed = [CLEAR, TAKE, replace(CLEAR, heard="seven duck crossed")]
    few, many = Column(name="clone", judged=mixed), Column(name="clone", judged=mixed * 20)
    (low, high), (later_low, later_high) = few.character_error_interval(), many.character_error_interval()
    assert low <= later_low < many.character_error < later_high <= high
    assert Column(name="clone", judged=[TAKE] * 5).character_error_interval() == pytest.approx((3 / 19, 3 / 19))


def test_case_and_punctuation_are_no_errors():
    assert Column(name="source", judged=[CLEAR]).character_error == 0.0


def test_what_a_way_of_speaking_does_not_have_stays_empty():
    found = cells([Column(name="source", judged=[CLEAR]), Column(name="clone", judged=[TAKE])])
    assert found["end of speech reached"] == ["", "1 of 1"]
    assert found["first audio, ms"] == ["", "120"]
    assert found["times the source's"][1] == ""


@pytest.mark.parametrize(("ratio", "within"), [(0.86, "1 of 1"), (1.14, "1 of 1"), (0.8, "0 of 1"), (1.2, "0 of 1")])
def test_takes_of_the_wrong_length_are_counted(ratio: float, within: str):
    column = Column(name="clone", judged=[replace(TAKE, length_ratio=ratio)])
    assert cells([column])["length within 15%"] == [within]


def test_the_second_verifier_is_shown_where_it_was_asked():
    asked = replace(CLEAR, second_similarity=0.7, is_nearest_to_second=True)
    found = cells([Column(name="source", judged=[asked, replace(asked, is_nearest_to_second=False)])])
    assert found["similarity by CAM++"] == ["0.70"]
    assert found["nearest by CAM++"] == ["1 of 2"]
    assert cells([Column(name="source", judged=[CLEAR])])["similarity by CAM++"] == [""]
