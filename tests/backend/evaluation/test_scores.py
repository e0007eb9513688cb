"""Arithmetic of judging: what two texts, two voices and many takes come to."""

from __future__ import annotations

import numpy as np
import pytest

from backend.evaluation.scores import EvaluatedTake, cosine, spoken_form, summarize, text_errors


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


@pytest.mark.parametrize(
    ("wanted", "heard", "characters", "words"),
    [
        ("Don’t worry, Ann!", "dont worry ann", 0.0, 0.0),
        ("one two three four", "one two tree four", 1 / 15, 1 / 4),
        ("你好，世界", "你好世界", 0.0, 1.0),
        ("hello", "", 1.0, 1.0),
        ("hi", "this goes on and on and on for ever", 1.0, 1.0),
        ("...", "", 0.0, 0.0),
        ("...", "noise", 1.0, 1.0),
    ],
)
def test_text_errors(wanted: str, heard: str, characters: float, words: float) -> None:
    assert text_errors(wanted, heard) == pytest.approx((characters, words))


def test_spoken_form_keeps_accents_of_every_script() -> None:
    assert spoken_form("  Élan —  नमस्ते! ") == "élan नमस्ते"


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
