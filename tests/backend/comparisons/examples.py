"""Comparisons as they are stored, without any sound."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from backend.comparisons.comparison import LETTERS, ComparedTake, Comparison
from backend.comparisons.contenders import Contender
from backend.evaluation.scores import TakeScores
from training.model.generation.finish_reason import FinishReason


def side(name: str, way: str = "x-vector") -> Contender:
    return Contender(source="voice", id=name, way=way, label=f"{name}: {way}")


def comparison(*sides: Contender, is_blind: bool = True) -> Comparison:
    takes = tuple(
        ComparedTake(
            letter=letter,
            side=one,
            seconds=1.0,
            finish_reason=FinishReason.EOS,
            gain_db=0.0,
            scores=TakeScores(duration_ratio=1.0, clipped_share=0.0, verified_similarity=0.5),
        )
        for letter, one in zip(LETTERS, sides, strict=False)
    )
    return Comparison(
        id=uuid.uuid4().hex,
        made_at=datetime.now(UTC),
        text="Hello.",
        language="auto",
        seed=2**63 - 1,
        is_blind=is_blind,
        takes=takes,
    )
