"""Arithmetic of judging: what two texts, two voices and many takes come to."""

from __future__ import annotations

import numpy as np
import pytest

from backend.evaluation.scores import CheckpointScores, EvaluatedTake, Hearing, cosine, summarize


def take(position: int = 0, **changes: object) -> EvaluatedTake:
    fields = {
        "position": position,
        "text": "Hello there.",
        "held_out": False,
        "seed": 1,
        "seconds": 2.0,
        "expected_seconds": 2.0,
        "finish_reason": "eos",
        "file": "takes/base/00.wav",
    }
    return EvaluatedTake(**{**fields, **changes})


def test_cosine() -> None:
    one = np.array([1, 0, 1], np.float32)
    assert cosine(one, 5 * one) == pytest.approx(1)
    assert cosine(one, np.array([0, 3, 0], np.float32)) == 0
    assert cosine(one, np.zeros(3, np.float32)) == 0


def test_a_summary_skips_missing_scores() -> None:
    scores = summarize(
        [take(speaker_similarity=0.5, character_error=0.1), take(speaker_similarity=0.7), take(finish_reason="length")]
    )
    assert scores.speaker_similarity == pytest.approx(0.6)
    assert scores.character_error == pytest.approx(0.1)
    assert scores.verified_similarity is None
    assert scores.finished_share == pytest.approx(2 / 3)


def test_one_runaway_does_not_move_the_duration_ratio() -> None:
    assert summarize([take(), take(), take(seconds=100.0)]).duration_ratio == 1.0


def test_a_summary_says_who_listened_and_what_they_get_wrong_anyway() -> None:
    also = (Hearing(listener="pocketsphinx", transcript="hello", character_error=0.3, word_error=0.5),)
    heard = take(transcriber="whisper base", character_error=0.1, word_error=0.2, also_heard=also, verifier="GE2E")
    scores = summarize([heard, take()], {"": {"whisper base": 0.02, "pocketsphinx": 0.2}})
    assert scores.verifier == "GE2E"
    assert [(each.listener, each.character_error, each.own_character_error) for each in scores.listeners] == [
        ("whisper base", 0.1, 0.02),
        ("pocketsphinx", 0.3, 0.2),
    ]


def test_every_speaker_counts_as_much_as_any_other() -> None:
    takes = [take(speaker="Ann", verified_similarity=0.8, transcriber="parrot", character_error=0.1)] * 3
    takes.append(take(speaker="Ben", verified_similarity=0.4, transcriber="parrot", character_error=0.5, seconds=4.0))
    scores = summarize(takes, {"Ann": {"parrot": 0.1}, "Ben": {"parrot": 0.3}})
    assert list(scores.speakers) == ["Ann", "Ben"]
    assert scores.num_takes == 4
    assert scores.verified_similarity == pytest.approx(0.6)
    assert scores.duration_ratio == pytest.approx(1.5)
    (heard,) = scores.listeners
    assert (heard.character_error, heard.own_character_error) == pytest.approx((0.3, 0.2))
    assert scores.speakers["Ben"].own_character_error == 0.3
    assert CheckpointScores.model_validate_json(scores.model_dump_json()) == scores


def test_what_was_not_measured_of_one_speaker_is_no_mean_of_the_others() -> None:
    scores = summarize(
        [take(speaker="Ann", verified_similarity=0.8), take(speaker="Ben", transcriber="parrot", character_error=0.2)]
    )
    assert scores.verified_similarity is None
    assert scores.listeners == ()


def test_scores_of_earlier_versions_are_read() -> None:
    """They do not say who listened."""
    stored = {
        "num_takes": 1, "character_error": 0.25, "word_error": 0.5, "speaker_similarity": 0.75,
        "verified_similarity": None, "duration_ratio": 1.2, "finished_share": 1.0, "clipped_share": 0.125,
    }  # fmt: skip
    scores = CheckpointScores.model_validate(stored)
    assert [(each.listener, each.character_error, each.own_character_error) for each in scores.listeners] == [
        (None, 0.25, None)
    ]
    assert take(character_error=0.25).character_errors() == {None: 0.25}
