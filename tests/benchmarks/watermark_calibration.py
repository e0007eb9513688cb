"""Whether the bound on wrong alarms holds: millions of patterns that nobody has ever written, against real sound.

The detector says that a sound without the mark reaches a score of t with a chance of at most exp(-t²/2). Here the signs
of the pattern are drawn anew for each trial, so that no recording can carry it, and the scores are counted.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from backend.audio.resample import resample
from backend.watermark.detector import _bands_at, _fold
from backend.watermark.pattern import NUM_BANDS, NUM_COLUMNS, STEPS_PER_COLUMN, public_signs
from backend.watermark.whitening import SAMPLE_RATE_HZ, log_energies, whiten
from tests.benchmarks.report import line

SCORES = (2.0, 3.0, 4.0, 4.5, 5.0, 5.5)
_NUM_PATTERNS = 4000
_LOOKED_AT_SECONDS = 30
_WINDOWS = (300, 600, 1200)
"""Steps: the lengths in which the detector looks."""


class Calibration(BaseModel):
    """How many of so many trials reached each of `SCORES`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_recordings: int
    num_trials: int
    num_reached: tuple[int, ...]


def calibrate(recordings: Sequence[Path], results: Path) -> None:
    """Try all patterns on the beginning of each recording, in windows of each length."""
    draw = np.random.default_rng(20261125)
    used = np.abs(public_signs()).reshape(-1).astype(np.float32)
    patterns = (draw.integers(0, 2, (len(used), _NUM_PATTERNS)) * 2 - 1).astype(np.float32) * used[:, None]
    num_trials, reached = 0, np.zeros(len(SCORES), dtype=np.int64)
    long_enough = [path for path in recordings if soundfile.info(path).duration > _LOOKED_AT_SECONDS]
    for number, path in enumerate(long_enough):
        rows = _rows(path)
        scores = (rows @ patterns) / np.sqrt(np.maximum(rows**2 @ used, 1e-9))[:, None]
        num_trials += scores.size
        reached += [int((scores >= score).sum()) for score in SCORES]
        print(f"\rcalibrated: {number + 1} of {len(long_enough)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    counted = tuple(map(int, reached))
    found = Calibration(num_recordings=len(long_enough), num_trials=num_trials, num_reached=counted)
    results.write_text(found.model_dump_json(), encoding="utf-8")


def _rows(path: Path) -> NDArray[np.float32]:
    """(windows x steps of a column, tiles) what the detector would compare with the pattern."""
    samples, rate = soundfile.read(path, dtype="float32", frames=_LOOKED_AT_SECONDS * soundfile.info(path).samplerate)
    steps = whiten(log_energies(resample(samples, rate, SAMPLE_RATE_HZ))) @ _bands_at(1.0)
    rows = []
    for length in _WINDOWS:
        for start in range(0, len(steps) - length + 1, length):
            folded = _fold(steps[start : start + length], 0)
            sums = np.sum([np.roll(folded, -step, axis=0) for step in range(STEPS_PER_COLUMN)], axis=0)
            tiles = sums.reshape(NUM_COLUMNS, STEPS_PER_COLUMN, NUM_BANDS)
            rows.append(tiles.swapaxes(0, 1).reshape(STEPS_PER_COLUMN, -1))
    return np.concatenate(rows).astype(np.float32)


def calibration_rows(results: Path) -> Iterator[str]:
    """One row per score: how often it was reached, and how often it may be."""
    if not results.exists():
        return
    found = Calibration.model_validate_json(results.read_text(encoding="utf-8"))
    for score, count in zip(SCORES, found.num_reached, strict=True):
        bound = math.exp(-(score**2) / 2)
        share = count / found.num_trials
        yield line(f"{score:.1f}", [f"{share:.1e}", f"{bound:.1e}", f"{count} of {found.num_trials}"])
