"""Judges that had no part in making a voice: a recogniser and a speaker verifier, both with their own models."""

from __future__ import annotations

from collections.abc import Sequence

import jiwer
import numpy as np
from numpy.typing import NDArray
from pocketsphinx import Decoder

from training.pretrain.corpus.normalise import key

JUDGE_SAMPLE_RATE_HZ = 16_000
# The recogniser takes the beginning of what it hears for its background.
_SILENCE_SECONDS = 0.25


class Recogniser:
    """pocketsphinx with the acoustic and language model of its wheel: an old recogniser that nobody tuned to us."""

    def __init__(self) -> None:
        self._decoder = Decoder(samprate=JUDGE_SAMPLE_RATE_HZ, loglevel="FATAL")

    def transcribe(self, samples: NDArray[np.float32]) -> str:
        """What it hears in mono speech at JUDGE_SAMPLE_RATE_HZ; empty if nothing."""
        silence = np.zeros(int(_SILENCE_SECONDS * JUDGE_SAMPLE_RATE_HZ), np.float32)
        padded = np.concatenate([silence, samples, silence])
        raw = (np.clip(padded, -1, 1) * 32767).astype("<i2").tobytes()
        self._decoder.start_utt()
        self._decoder.process_raw(raw, full_utt=True)
        self._decoder.end_utt()
        found = self._decoder.hyp()
        return found.hypstr if found else ""


def character_error(said: Sequence[str], heard: Sequence[str]) -> float:
    """Edits per character over all sentences together; case, punctuation and apostrophes do not count."""
    return float(jiwer.cer([key(text) for text in said], [key(text) for text in heard]))


def word_error(said: Sequence[str], heard: Sequence[str]) -> float:
    """Edits per word over all sentences together."""
    return float(jiwer.wer([key(text) for text in said], [key(text) for text in heard]))
