"""Finds the mark in recordings of any length."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from backend.audio.resample import resampler
from backend.watermark.pattern import (
    BAND_HZ,
    CODE_BITS,
    LOWEST_HZ,
    NUM_BANDS,
    NUM_COLUMNS,
    PAYLOAD_BITS,
    PERIOD_STEPS,
    STEP_SECONDS,
    STEPS_PER_COLUMN,
    code_words,
    payload_tiles,
    public_signs,
)
from backend.watermark.whitening import (
    BIN_HZ,
    HIGHEST_BIN,
    LOWEST_BIN,
    SAMPLE_RATE_HZ,
    STEP_SAMPLES,
    WINDOW_SAMPLES,
    log_energies,
    whiten,
)

MARKED_LOG10_P = -6.0
"""At most one unmarked recording in a million, of whatever length, is called marked."""

LEGIBLE_LOG10_P = -4.0
"""Of marked recordings without a payload of this installation, one in ten thousand seems to have one."""

_BLOCK_STEPS = 2048
_OVERLAP_STEPS = 300
_LEAST_REST_STEPS = 1024
"""A shorter rest is looked at together with the block before it."""

_SHORTEST_STEPS = 50

_WINDOWS = ((300, 150), (600, 300), (1200, 400))
"""Steps of what is looked at, and from one to the next: a mark may begin anywhere, and the longer the clearer."""

_SURE_SCORE = 8.0
"""Of a block: it need not be looked at in other ways."""

_KEPT_SCORE = 5.0
_NUM_PAYLOAD_LOOKS = 4
_LOG10_E = math.log10(math.e)


@dataclass(frozen=True, kw_only=True)
class MarkedSpan:
    """A part of a recording that carries the mark.

    Attributes:
        start_seconds: where it begins, to about half a second.
        end_seconds: where it ends.
        log10_p: of this part alone; all that was looked at in the recording is accounted for.
    """

    start_seconds: float
    end_seconds: float
    log10_p: float


@dataclass(frozen=True, kw_only=True)
class Detection:
    """What was found in a recording. That nothing was found does not mean that nothing is synthetic.

    Attributes:
        seconds: of the recording.
        log10_p: logarithm of a bound of the chance that an unmarked recording of this length scores as high.
        spans: marked parts in order; empty where nothing was found.
        payload: read with the installation's key; None without one, or where there is none to be read.
        payload_log10_p: logarithm of a bound of the chance that sound without such a payload seems to have one.
    """

    seconds: float
    log10_p: float
    spans: tuple[MarkedSpan, ...] = ()
    payload: int | None = None
    payload_log10_p: float = 0.0

    @property
    def is_marked(self) -> bool:
        """Whether Encore made it, or a part of it."""
        return self.log10_p <= MARKED_LOG10_P


@dataclass(frozen=True, kw_only=True)
class _Warp:
    """How a recording may have been changed: played faster, and its frequencies raised."""

    speed: float = 1.0
    pitch: float = 1.0


_PLAIN = _Warp()
_CHANGES = tuple(sign * step / 200 for step in range(1, 11) for sign in (1, -1))
_WARPS = (
    *(_Warp(speed=1 + change, pitch=1 + change) for change in _CHANGES),
    *(_Warp(speed=1 + change) for change in _CHANGES),
    *(_Warp(pitch=1 + change) for change in _CHANGES[2::4] + _CHANGES[3::4]),
)
_NUM_WARPED_BLOCKS = 20
_WARPED_BLOCKS_BEYOND = 8
"""Other speeds are looked for in the first blocks (six minutes), and then in every eighth: it takes long."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Look:
    """The best place of the pattern in one part of a recording.

    Attributes:
        start_step: of the part, in the recording.
        score: in standard deviations of a pattern whose signs are drawn by lot.
        tiles: (columns, bands) what the sound has where the pattern has its tiles.
        evidence: (steps,) what each step of the part adds to the score.
        is_whole: whether the part is all of a recording of several blocks.
    """

    start_step: int
    warp: _Warp
    score: float
    tiles: NDArray[np.float32]
    evidence: NDArray[np.float32]
    is_whole: bool = False


class Detector:
    """Looks for the mark in sound that comes block by block; sound without it leaves nothing in memory.

    The chance of an error is a bound that holds for any unmarked sound, however it was made: such a sound knows
    nothing of the signs in the pattern, so that its score is a sum of numbers with signs drawn by lot (Hoeffding's
    inequality), and the bound is multiplied by the number of places, speeds and pitches that were looked at.
    """

    def __init__(self, sample_rate: int, installation_key: bytes | None = None) -> None:
        """Begin a recording; with the key of an installation its payload is read too."""
        self._sample_rate, self._key = sample_rate, installation_key
        self._resampler = resampler(sample_rate, SAMPLE_RATE_HZ)
        self._samples = np.zeros(0, dtype=np.float32)
        self._num_samples = self._num_blocks = self._start_step = 0
        self._num_looks = {False: 0, True: 0}
        self._looks: list[_Look] = []
        self._whole = np.zeros((PERIOD_STEPS, NUM_BANDS), dtype=np.float32)

    def add(self, samples: NDArray[np.float32]) -> None:
        """Hear the next mono samples."""
        self._num_samples += len(samples)
        heard = self._resampler.resample_chunk(np.asarray(samples, dtype=np.float32))
        self._samples = np.concatenate((self._samples, heard))
        while len(self._samples) >= (_BLOCK_STEPS + _LEAST_REST_STEPS) * STEP_SAMPLES:
            self._look_at(self._samples[: (_BLOCK_STEPS - 1) * STEP_SAMPLES + WINDOW_SAMPLES])
            num_done = _BLOCK_STEPS - _OVERLAP_STEPS
            self._samples = self._samples[num_done * STEP_SAMPLES :]
            self._start_step += num_done

    def finish(self) -> Detection:
        """What was found."""
        rest = self._resampler.resample_chunk(np.zeros(0, dtype=np.float32), last=True)
        self._look_at(np.concatenate((self._samples, rest)))
        if self._num_blocks > 1:
            # Weak everywhere, a mark that lasts may still show in the sum of all.
            num_steps = round(self._num_samples / self._sample_rate / STEP_SECONDS)
            score, tiles, _ = _best_places(self._whole[None])[0]
            even = np.ones(num_steps, dtype=np.float32)
            self._keep([_Look(start_step=0, warp=_PLAIN, score=score, tiles=tiles, evidence=even, is_whole=True)])
        return self._judge()

    def _look_at(self, samples: NDArray[np.float32]) -> None:
        levels = log_energies(samples)
        if len(levels) < _SHORTEST_STEPS:
            return
        bins = whiten(levels)
        banded = cache(lambda pitch: bins @ _bands_at(pitch))
        best = self._look_through(banded, _PLAIN)
        is_warped_too = self._num_blocks < _NUM_WARPED_BLOCKS or self._num_blocks % _WARPED_BLOCKS_BEYOND == 0
        self._num_blocks += 1
        if best < _SURE_SCORE and is_warped_too:
            for warp in _WARPS:
                self._look_through(banded, warp)

    def _look_through(self, banded: Callable[[float], NDArray[np.float32]], warp: _Warp) -> float:
        """Look at every window of a block, given as (steps, bands) at each pitch; returns the best score."""
        steps = _at_speed(banded(warp.pitch), warp.speed)
        windows = [(0, len(steps))]
        for length, hop in _WINDOWS if warp == _PLAIN else _WINDOWS[-1:]:
            if length < len(steps):
                windows += [(start, start + length) for start in range(0, len(steps) - length + 1, hop)]
        # In the recording's own time, so that windows and blocks of one take agree.
        first = self._start_step if warp == _PLAIN else 0
        folded = np.stack([_fold(steps[start:end], first + start) for start, end in windows])
        if warp == _PLAIN:
            self._whole += folded[0]
        looks = []
        for (start, end), (score, tiles, offset) in zip(windows, _best_places(folded), strict=True):
            columns = (np.arange(first + start, first + end) - offset) // STEPS_PER_COLUMN % NUM_COLUMNS
            evidence = (steps[start:end] * public_signs()[columns]).sum(axis=1) if score > _KEPT_SCORE else steps[:0, 0]
            looks.append(
                _Look(
                    start_step=self._start_step + round(start / warp.speed),
                    warp=warp,
                    score=score,
                    tiles=tiles,
                    evidence=_at_speed(evidence[:, None], 1 / warp.speed)[:, 0],
                )
            )
        self._keep(looks)
        return max(look.score for look in looks)

    def _keep(self, looks: Sequence[_Look]) -> None:
        for look in looks:
            self._num_looks[look.warp == _PLAIN] += PERIOD_STEPS
        self._looks += [look for look in looks if look.score > _KEPT_SCORE]

    def _log10_p(self, look: _Look) -> float:
        # Half of the error for each kind of look, so that the many at other speeds cost the others little.
        num_looks = 2 * self._num_looks[look.warp == _PLAIN]
        return min(0.0, math.log10(num_looks) - look.score**2 / 2 * _LOG10_E)

    def _judge(self) -> Detection:
        seconds = self._num_samples / self._sample_rate
        best = sorted(self._looks, key=self._log10_p)
        if not best:
            return Detection(seconds=seconds, log10_p=0.0)
        log10_p = self._log10_p(best[0])
        if log10_p > MARKED_LOG10_P:
            return Detection(seconds=seconds, log10_p=log10_p)
        payload, payload_log10_p = self._read_payload(best[:_NUM_PAYLOAD_LOOKS])
        return Detection(
            seconds=seconds,
            log10_p=log10_p,
            spans=self._spans(seconds),
            payload=payload,
            payload_log10_p=payload_log10_p,
        )

    def _spans(self, seconds: float) -> tuple[MarkedSpan, ...]:
        """Marked parts, of the shortest windows in which they show, joined where they meet."""
        marked = [look for look in self._looks if self._log10_p(look) <= MARKED_LOG10_P]
        found: list[MarkedSpan] = []
        # The whole recording comes last, and says nothing about where.
        for look in sorted(marked, key=lambda look: (look.is_whole, len(look.evidence), -look.score)):
            if look.is_whole and found:
                break
            start, end = _strongest_part(look.evidence)
            span = MarkedSpan(
                start_seconds=max(0.0, (look.start_step + start) * STEP_SECONDS),
                end_seconds=min(seconds, (look.start_step + end + 2) * STEP_SECONDS),
                log10_p=self._log10_p(look),
            )
            if _covered(span, found) < _NEW_SHARE:
                found = _joined([*found, span])
        return tuple(found)

    def _read_payload(self, looks: Sequence[_Look]) -> tuple[int | None, float]:
        """The payload and the chance that it is none, of the looks in which one shows best."""
        if self._key is None:
            return None, 0.0
        score, payload = max(_read_payload(look.tiles, self._key) for look in looks)
        num_tried = 2**PAYLOAD_BITS * len(looks)
        log10_p = min(0.0, math.log10(num_tried) - score**2 / 2 * _LOG10_E)
        return (payload if log10_p <= LEGIBLE_LOG10_P else None), log10_p


_NEW_SHARE = 0.75
_TOUCHING_SECONDS = 0.75


def detect(samples: NDArray[np.float32], sample_rate: int, installation_key: bytes | None = None) -> Detection:
    """Look for the mark in mono samples (samples,)."""
    detector = Detector(sample_rate, installation_key)
    detector.add(samples)
    return detector.finish()


@cache
def _bands_at(pitch: float) -> NDArray[np.float32]:
    """(bins, bands) which share of a bin's width lies in each band of the pattern."""
    edges = (LOWEST_HZ + BAND_HZ * np.arange(NUM_BANDS + 1)) * pitch / BIN_HZ
    low, high = edges[:-1], edges[1:]
    bins = np.arange(LOWEST_BIN, HIGHEST_BIN)[:, None]
    shares = np.minimum(high, bins + 0.5) - np.maximum(low, bins - 0.5)
    clipped: NDArray[np.float32] = np.clip(shares, 0, 1).astype(np.float32)
    return clipped


def _at_speed(steps: NDArray[np.float32], speed: float) -> NDArray[np.float32]:
    """Steps (steps, bands) of sound that plays at a speed, as they were when it was made."""
    if speed == 1 or not len(steps):
        return steps
    places = np.arange(int(len(steps) * speed)) / speed
    before = np.minimum(places.astype(int), max(0, len(steps) - 2))
    share = (places - before).astype(np.float32)[:, None]
    between: NDArray[np.float32] = steps[before] * (1 - share) + steps[np.minimum(before + 1, len(steps) - 1)] * share
    return between


def _fold(steps: NDArray[np.float32], first_step: int) -> NDArray[np.float32]:
    """Sum (steps of a period, bands) of all periods of a window that begins at a step of the recording."""
    before = first_step % PERIOD_STEPS
    padded = np.pad(steps, ((before, -(before + len(steps)) % PERIOD_STEPS), (0, 0)))
    folded: NDArray[np.float32] = padded.reshape(-1, PERIOD_STEPS, steps.shape[1]).sum(axis=0)
    return folded


def _best_places(folded: NDArray[np.float32]) -> list[tuple[float, NDArray[np.float32], int]]:
    """For each window (windows, steps of a period, bands): score, tiles (columns, bands) and step of the best place."""
    sums = np.sum([np.roll(folded, -step, axis=1) for step in range(STEPS_PER_COLUMN)], axis=0)
    tiles = sums.reshape(len(folded), NUM_COLUMNS, STEPS_PER_COLUMN, NUM_BANDS)
    # One row for each step within a column, all of its tiles side by side.
    rows = tiles.swapaxes(1, 2).reshape(-1, NUM_COLUMNS * NUM_BANDS)
    signs, used = _every_place()
    scores = (rows @ signs) / np.sqrt(np.maximum(rows**2 @ used, 1e-9))
    scores = scores.reshape(len(folded), STEPS_PER_COLUMN, NUM_COLUMNS).swapaxes(1, 2).reshape(-1, PERIOD_STEPS)
    found = []
    for window, best in enumerate(scores.argmax(axis=1)):
        column, step = divmod(int(best), STEPS_PER_COLUMN)
        place = np.roll(tiles[window, :, step], -column, axis=0)
        found.append((float(scores[window, best]), place, int(best)))
    return found


@cache
def _every_place() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The pattern and its tiles (columns x bands, places), beginning at each column."""
    places = [np.roll(public_signs(), column, axis=0).reshape(-1) for column in range(NUM_COLUMNS)]
    signs = np.stack(places, axis=1).astype(np.float32)
    return signs, np.abs(signs)


def _read_payload(tiles: NDArray[np.float32], installation_key: bytes) -> tuple[float, int]:
    """Score and number of the code word that agrees best with tiles (columns, bands)."""
    written = payload_tiles(installation_key)
    is_written = written.bits >= 0
    values = (tiles * written.signs)[is_written]
    bits = np.bincount(written.bits[is_written], weights=values, minlength=CODE_BITS)
    agreement = code_words() @ bits.astype(np.float32)
    payload = int(agreement.argmax())
    return float(agreement[payload] / np.sqrt(max(1e-9, float((values**2).sum())))), payload


def _strongest_part(evidence: NDArray[np.float32]) -> tuple[int, int]:
    """Where the evidence (steps,) lies: the part in which it exceeds half its own mean by the largest sum."""
    start, end = 0, len(evidence)
    for _ in range(3):
        sums = np.concatenate(([0.0], np.cumsum(evidence - evidence[start:end].mean() / 2)))
        lowest = np.minimum.accumulate(sums)
        end = int((sums - lowest).argmax())
        start = int(sums[: end + 1].argmin())
        if start == end:
            return 0, len(evidence)
    return start, end


def _covered(span: MarkedSpan, spans: Sequence[MarkedSpan]) -> float:
    """Share of a span that lies in others."""
    seconds = sum(
        max(0.0, min(span.end_seconds, one.end_seconds) - max(span.start_seconds, one.start_seconds)) for one in spans
    )
    return seconds / max(span.end_seconds - span.start_seconds, STEP_SECONDS)


def _joined(spans: Sequence[MarkedSpan]) -> list[MarkedSpan]:
    """Spans in order, those that overlap or touch as one."""
    joined: list[MarkedSpan] = []
    for span in sorted(spans, key=lambda one: one.start_seconds):
        if joined and span.start_seconds <= joined[-1].end_seconds + _TOUCHING_SECONDS:
            last = joined.pop()
            span = MarkedSpan(
                start_seconds=last.start_seconds,
                end_seconds=max(last.end_seconds, span.end_seconds),
                log10_p=min(last.log10_p, span.log10_p),
            )
        joined.append(span)
    return joined
