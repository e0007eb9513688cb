"""Spoken consent: the person whose voice is cloned reads a sentence that cannot have been recorded before.

This deters misuse but cannot prevent it: the user of this program can also change it. The sentence is drawn at random,
the recording is transcribed and compared with it, and its speaker must be the speaker of the reference: to the speaker
verifier, which knows people, or to the model's own encoder where there is no verifier.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from backend.audio.resample import resample
from backend.transcription.pocketsphinx_transcriber import POCKETSPHINX_PIECE_SECONDS, PocketsphinxTranscriber
from backend.transcription.sentence_check import hears_sentence_of
from backend.voices.consent import SpokenProof
from backend.voices.consent_phrase import (
    COLUMNS,
    STATEMENT,
    error_rate,
    may_be_drawn,
    num_misheard_words,
    statement_error_rate,
)
from backend.voices.errors import ConsentInvalid
from backend.voices.reference import REFERENCE_SAMPLE_RATE, read_reference
from backend.voices.strangers import STRANGER_SIMILARITY
from backend.voices.voice_encoder import VoiceEncoder
from training.model.speaker_verifier import SpeakerVerifier

LISTENING_SAMPLE_RATE = 16_000
_MAX_SENTENCE_SAMPLES = round(POCKETSPHINX_PIECE_SECONDS * LISTENING_SAMPLE_RATE)

_ADVICE = "Read the phrase aloud once more, close to the microphone."


class Heard(Protocol):
    """The result of a transcriber."""

    @property
    def text(self) -> str:
        """What was said."""


class Listener(Protocol):
    """A transcriber, such as Whisper."""

    @property
    def name(self) -> str:
        """Which it is."""

    def transcribe(self, samples: NDArray[np.float32], language: str | None, /) -> Heard:
        """Transcribe mono samples at 16 kHz."""


@dataclass(frozen=True, kw_only=True)
class ProofLimits:
    """How well a phrase must be spoken to count.

    A small model writes a sixth of the letters wrong, sometimes two fifths, and joins and splits words; of a recording
    of anything else more than half of the letters are wrong. So what counts is above all which of the words that could
    have been drawn each one that was heard is nearest to: of two phrases drawn at random, one in six thousand pairs
    has five of six in common.

    To the model's own encoder, recordings of one speaker lie above 0.7 in ordinary rooms, those of two speakers mostly
    below 0.6.
    """

    max_error_rate: float = 0.45
    max_statement_error_rate: float = 0.56
    max_misheard_words: int = 1
    min_similarity: float = 0.6
    min_verified_similarity: float = STRANGER_SIMILARITY


def check_phrase(
    phrase: str,
    spoken: Path,
    reference: Path,
    *,
    listener: Listener,
    model: VoiceEncoder | None,
    verifier: SpeakerVerifier | None,
    language: str | None = "en",
    recording: str | None = None,
    limits: ProofLimits | None = None,
) -> SpokenProof:
    """Check that `spoken` says the phrase in the voice of `reference`.

    `recording` is the fingerprint of what is to be cloned, where `reference` is only made of it.

    Raises:
        ConsentInvalid: the words or the speaker are different.
        RecordingError: a recording cannot be used.
        PromptError: there is no verifier, and the model has no speaker encoder.
    """
    limits = limits or ProofLimits()
    said, known = (read_reference(path).samples for path in (spoken, reference))
    at_16_khz = resample(said, REFERENCE_SAMPLE_RATE, LISTENING_SAMPLE_RATE)
    heard = listener.transcribe(at_16_khz, language).text.strip()
    proof = SpokenProof(
        phrase=phrase,
        heard=heard[:2000],
        listener=listener.name,
        error_rate=error_rate(phrase, heard),
        similarity=_alike(verifier, model, said, known),
        verifier=None if verifier is None else verifier.name,
        recording=recording,
    )
    # pocketsphinx hears better which of some known sentences is said than what is said.
    if isinstance(listener, PocketsphinxTranscriber) and len(at_16_khz) <= _MAX_SENTENCE_SAMPLES:
        is_said = hears_phrase(listener, phrase, at_16_khz)
    else:
        is_said = says_phrase(phrase, heard, limits)
    if not is_said:
        raise ConsentInvalid(f"The recording does not say the phrase; what was heard is {heard[:120]!r}. {_ADVICE}")
    least = limits.min_similarity if verifier is None else limits.min_verified_similarity
    if proof.similarity < least:
        raise ConsentInvalid(
            f"The phrase was not spoken by the voice of the reference: the similarity is {proof.similarity:.2f}, "
            f"and {least:.2f} is required. The speaker of the reference must read it."
        )
    return proof


def hears_phrase(listener: PocketsphinxTranscriber, phrase: str, samples_16k: NDArray[np.float32]) -> bool:
    """Whether mono samples (samples,) at 16 kHz fit the phrase, and no other that could have been drawn fits better."""
    return may_be_drawn(phrase) and hears_sentence_of(listener, samples_16k, phrase, [[STATEMENT], *COLUMNS]).is_said


def says_phrase(phrase: str, heard: str, limits: ProofLimits) -> bool:
    """Whether the phrase was heard, with the agreement, and not another phrase that could have been drawn."""
    return (
        error_rate(phrase, heard) <= limits.max_error_rate
        and statement_error_rate(heard) <= limits.max_statement_error_rate
        and num_misheard_words(phrase, heard) <= limits.max_misheard_words
    )


def _verified(verifier: SpeakerVerifier, *recordings: NDArray[np.float32]) -> float:
    first, second = (verifier.embed(samples, sample_rate=REFERENCE_SAMPLE_RATE) for samples in recordings)
    return float(first @ second)


def _alike(verifier: SpeakerVerifier | None, model: VoiceEncoder | None, *recordings: NDArray[np.float32]) -> float:
    """How alike two voices are. Raises ConsentInvalid where nothing can tell."""
    if verifier is not None:
        return _verified(verifier, *recordings)
    if model is not None:
        return _similarity(model, *recordings)
    raise ConsentInvalid(
        "Nothing on this computer can tell whose voice it is. Load the model on this computer, or give the "
        "statement alone."
    )


def _similarity(model: VoiceEncoder, *recordings: NDArray[np.float32]) -> float:
    first, second = (
        model.embed_speaker(
            torch.from_numpy(resample(samples, REFERENCE_SAMPLE_RATE, model.speaker_sample_rate))
        ).float()
        for samples in recordings
    )
    return float(torch.nn.functional.cosine_similarity(first, second, dim=0))
