"""What judges said of a voice, to a table: one column per way of making speech, the source first."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.benchmarks.report import line
from tests.benchmarks.voice_judges import character_error, word_error
from training.pretrain.corpus.normalise import key

LENGTH_TOLERANCE = 0.15
_NUM_DRAWS = 2000


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One sentence spoken once. Fields that a way of speaking does not have are None."""

    text: str
    heard: str
    similarity: float
    is_nearest: bool
    """Closer to the right speaker than to any of the others."""
    length_ratio: float
    is_clipped: bool
    second_similarity: float | None = None
    """By the second verifier, where it is installed; as is the next."""
    is_nearest_to_second: bool | None = None
    ended: bool | None = None
    chunk_difference: float | None = None
    """Between streamed and whole decoding of the same codes, the largest in any sample."""
    real_time_factor: float | None = None
    first_audio_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Column:
    """One way of making speech."""

    name: str
    judged: list[Judged] = field(default_factory=list)

    @property
    def character_error(self) -> float:
        """Over all its sentences."""
        return character_error([one.text for one in self.judged], [one.heard for one in self.judged])

    def character_error_interval(self) -> tuple[float, float]:
        """95 % bootstrap interval of the character error over other draws of as many sentences."""
        letters = np.array([len(key(one.text)) for one in self.judged])
        edits = letters * [character_error([one.text], [one.heard]) for one in self.judged]
        drawn = np.random.default_rng(0).integers(len(letters), size=(_NUM_DRAWS, len(letters)))
        low, high = np.quantile(edits[drawn].sum(axis=1) / letters[drawn].sum(axis=1), (0.025, 0.975))
        return float(low), float(high)

    @property
    def word_error(self) -> float:
        """Over all its sentences."""
        return word_error([one.text for one in self.judged], [one.heard for one in self.judged])


def voice_table(columns: Sequence[Column]) -> str:
    """Markdown; the first column is the source, which errors are compared with."""
    source = columns[0]
    rows: list[tuple[str, Callable[[Column], str]]] = [
        ("sentences", lambda column: str(len(column.judged))),
        ("character error", lambda column: _percent(column.character_error)),
        ("its 95 % interval", lambda column: " to ".join(map(_percent, column.character_error_interval()))),
        ("times the source's", lambda column: _times(column.character_error, source.character_error)),
        ("word error", lambda column: _percent(column.word_error)),
        ("similarity to the source, mean", lambda column: f"{_mean([one.similarity for one in column.judged]):.2f}"),
        ("nearest to the right speaker", lambda column: _share([one.is_nearest for one in column.judged])),
        ("similarity by CAM++", lambda column: _number([one.second_similarity for one in column.judged], 2)),
        ("nearest by CAM++", lambda column: _share([one.is_nearest_to_second for one in column.judged])),
        ("length : source's, median", lambda column: f"{_median([one.length_ratio for one in column.judged]):.2f}"),
        (f"length within {LENGTH_TOLERANCE:.0%}", lambda column: _share(map(_is_right_length, column.judged))),
        ("without clipping", lambda column: _share([not one.is_clipped for one in column.judged])),
        ("end of speech reached", lambda column: _share([one.ended for one in column.judged])),
        (
            "stream differs from whole by at most",
            lambda column: _largest([one.chunk_difference for one in column.judged]),
        ),
        ("real-time factor", lambda column: _number([one.real_time_factor for one in column.judged], 2)),
        ("first audio, ms", lambda column: _number([_ms(one.first_audio_seconds) for one in column.judged], 0)),
    ]
    head = [line("", [column.name for column in columns]), line("---", ["---"] * len(columns))]
    return "\n".join([*head, *(line(title, [show(column) for column in columns]) for title, show in rows)])


def _is_right_length(one: Judged) -> bool:
    return abs(one.length_ratio - 1) <= LENGTH_TOLERANCE


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _times(value: float, of: float) -> str:
    return f"{value / of:.1f}" if of else ""


def _share(answers: Iterable[bool | None]) -> str:
    known = [answer for answer in answers if answer is not None]
    return f"{sum(known)} of {len(known)}" if known else ""


def _largest(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{max(known):.5f}" if known else ""


def _number(values: Sequence[float | None], digits: int) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.{digits}f}" if known else ""


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
