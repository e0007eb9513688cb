"""Consent by voice: a sentence nobody can have on tape already, spoken by whoever's voice is cloned.

It deters and does not prevent: whoever runs this program can also change it. The sentence is drawn at random, the
recording is transcribed and compared with it, and its speaker has to be the one of the reference.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import jiwer
import numpy as np
import soxr
import torch
from numpy.typing import NDArray

from backend.voices.cloning import REFERENCE_SAMPLE_RATE, read_reference
from backend.voices.consent import SpokenProof
from backend.voices.errors import ConsentRefused
from training.model.voice_model import VoiceModel

LISTENING_SAMPLE_RATE = 16_000
STATEMENT = "I agree that my voice is cloned."

# Everyday words of clearly different sound, so that a listener of any size tells them apart.
_WHO = "The old sailor|My quiet neighbour|A young doctor|The tall gardener|Our new teacher|The busy baker".split("|")
_DOES = "painted|carried|forgot|counted|borrowed|repaired|discovered|collected".split("|")
_HOW_MANY = "two|three|five|seven|nine|eleven|twelve|twenty".split("|")
_WHICH = "yellow|silver|wooden|broken|purple|enormous|dusty|golden".split("|")
_WHAT = "lanterns|bicycles|mirrors|umbrellas|violins|baskets|ladders|envelopes".split("|")
_WHERE = "near the river|under the bridge|before breakfast|in the harbour|behind the station|on Sunday morning".split(
    "|"
)


class Heard(Protocol):
    """What a transcriber makes of a recording."""

    @property
    def text(self) -> str:
        """What was said."""


class Listener(Protocol):
    """A transcriber, such as Whisper."""

    def transcribe(self, samples: NDArray[np.float32], language: str | None, /) -> Heard:
        """Write down mono samples at 16 kHz."""


@dataclass(frozen=True, kw_only=True)
class ProofLimits:
    """How well a phrase must be spoken to count.

    A third of the words may be misheard: small models mishear accents, and a recording of anything else has nearly
    every word wrong. Embeddings of one speaker lie above 0.7 in ordinary rooms, those of two speakers mostly below 0.6.
    """

    most_error_rate: float = 0.34
    least_similarity: float = 0.6


def draw_phrase() -> str:
    """Think of a sentence to speak: the agreement, and words of which there are over a hundred thousand choices."""
    parts = [secrets.choice(words) for words in (_WHO, _DOES, _HOW_MANY, _WHICH, _WHAT, _WHERE)]
    return f"{STATEMENT} {' '.join(parts)}."


def check_phrase(
    phrase: str,
    spoken: Path,
    reference: Path,
    *,
    listener: Listener,
    model: VoiceModel,
    language: str | None = "en",
    limits: ProofLimits | None = None,
) -> SpokenProof:
    """Hear whether `spoken` says the phrase in the voice of `reference`.

    Raises:
        ConsentRefused: other words, or another speaker.
        RecordingError: a recording cannot be used.
        PromptError: the model has no speaker encoder.
    """
    limits = limits or ProofLimits()
    said, known = read_reference(spoken), read_reference(reference)
    at_16_khz = soxr.resample(said.samples, REFERENCE_SAMPLE_RATE, LISTENING_SAMPLE_RATE).astype(np.float32)
    heard = listener.transcribe(at_16_khz, language).text.strip()
    proof = SpokenProof(
        phrase=phrase,
        heard=heard[:2000],
        error_rate=error_rate(phrase, heard),
        similarity=_similarity(model, said.samples, known.samples),
    )
    if proof.error_rate > limits.most_error_rate:
        raise ConsentRefused(
            f"The recording does not say the phrase; understood was {heard[:120]!r}. Read the phrase aloud once more, "
            "close to the microphone."
        )
    if proof.similarity < limits.least_similarity:
        raise ConsentRefused(
            "The phrase was spoken by another voice than the reference "
            f"(likeness {proof.similarity:.2f}, needed is {limits.least_similarity:.2f}). The speaker has to read it."
        )
    return proof


def error_rate(phrase: str, heard: str) -> float:
    """Word errors per word of the phrase, without regard to case and punctuation."""
    return float(jiwer.wer(_words(phrase), _words(heard)))


def _words(text: str) -> str:
    """Only the words; `jiwer` refuses a reference without any."""
    kept = "".join(character if character.isalnum() or character == "'" else " " for character in text.casefold())
    return " ".join(kept.split())


def _similarity(model: VoiceModel, one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    first, second = (
        model.embed_speaker(
            torch.from_numpy(
                np.ascontiguousarray(
                    soxr.resample(samples, REFERENCE_SAMPLE_RATE, model.speaker_sample_rate), dtype=np.float32
                )
            )
        ).float()
        for samples in (one, other)
    )
    return float(torch.nn.functional.cosine_similarity(first, second, dim=0))
