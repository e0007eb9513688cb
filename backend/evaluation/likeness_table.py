"""Who sounds like whom: takes of several speakers, each compared with the recordings of all of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from backend.evaluation.scores import EvaluatedTake


@dataclass(frozen=True, kw_only=True)
class LikenessRow:
    """The takes of one speaker.

    Attributes:
        speaker: whose voice they should be.
        similarities: to each speaker's recordings, on average.
        counts: how many takes resemble each speaker most.
    """

    speaker: str
    similarities: tuple[float, ...]
    counts: tuple[int, ...]

    @property
    def num_takes(self) -> int:
        """Takes that could be compared."""
        return sum(self.counts)


@dataclass(frozen=True, kw_only=True)
class LikenessTable:
    """A row for each speaker, with a number for each in the same order.

    Attributes:
        judge: which speaker verifier compared them; None for the model's own encoder.
    """

    speakers: tuple[str, ...]
    rows: tuple[LikenessRow, ...]
    judge: str | None

    @property
    def num_taken_for_another(self) -> int:
        """Takes that resemble another speaker more than their own."""
        return sum(row.num_takes - row.counts[place] for place, row in enumerate(self.rows))

    @property
    def num_takes(self) -> int:
        """All that were compared."""
        return sum(row.num_takes for row in self.rows)

    def in_words(self) -> str:
        """How often they are mistaken for each other, in a sentence; the most frequent mistake with it."""
        if not self.num_taken_for_another:
            return f"All {self.num_takes} takes resemble their own speaker most."
        mistakes = [
            (count, row.speaker, self.speakers[other])
            for place, row in enumerate(self.rows)
            for other, count in enumerate(row.counts)
            if other != place
        ]
        count, own, other = max(mistakes, key=lambda one: one[0])
        return (
            f"{self.num_taken_for_another} of {self.num_takes} takes resemble another speaker more than their own, "
            f"most often {own} sounds like {other} ({count})."
        )

    def lines(self) -> list[str]:
        """The table as text, a line for each row: similarity, and in brackets how many takes are most like whom."""
        of, width = max(8, *map(len, self.speakers)), max(9, *map(len, self.speakers))
        lines = [f"{'takes of':<{of}}  " + "  ".join(f"{name:>{width}}" for name in self.speakers)]
        for row in self.rows:
            cells = (f"{one:.2f} ({count})" for one, count in zip(row.similarities, row.counts, strict=True))
            lines.append(f"{row.speaker:<{of}}  " + "  ".join(f"{cell:>{width}}" for cell in cells))
        return lines


def who_sounds_like_whom(takes: Sequence[EvaluatedTake]) -> LikenessTable | None:
    """Compare the takes of one checkpoint; None where there is one speaker, or nothing was heard of one."""
    speakers = tuple(dict.fromkeys(take.speaker for take in takes))
    if len(speakers) < 2:
        return None
    rows = []
    for speaker in speakers:
        heard = [take.likeness for take in takes if take.speaker == speaker and speakers == tuple(take.likeness)]
        if not heard:
            return None
        nearest = [max(one, key=one.__getitem__) for one in heard]
        rows.append(
            LikenessRow(
                speaker=speaker,
                similarities=tuple(statistics.fmean(one[other] for one in heard) for other in speakers),
                counts=tuple(nearest.count(other) for other in speakers),
            )
        )
    judge = next((take.verifier for take in takes if take.verifier is not None), None)
    return LikenessTable(speakers=speakers, rows=tuple(rows), judge=judge)
