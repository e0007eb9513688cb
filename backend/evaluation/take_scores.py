"""Scores of one take: what was said, in whose voice, and how cleanly; for checkpoints and comparisons alike."""

from __future__ import annotations

import threading
import wave
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from backend.audio.quality import clipped_share
from backend.audio.resample import resample
from backend.evaluation.scores import Hearing, Measures, TakeScores, cosine
from backend.transcription.errors import LanguageUnsupported
from backend.transcription.select_transcriber import language_code, load_stored_transcribers
from backend.transcription.text_difference import text_errors
from backend.transcription.transcriber import TRANSCRIBER_HZ, Transcriber
from backend.voices.voice_encoder import VoiceEncoder
from training.model.prompt.length import expected_seconds
from training.model.speaker_verifier import VERIFIER_SAMPLE_RATE, SpeakerVerifier, load_verifier

MIN_SECONDS = 0.2
"""Shorter audio has neither words nor a speaker."""

_FULL_SCALE = 32768.0


@dataclass(frozen=True, kw_only=True)
class VoiceEmbeddings:
    """A voice as the models that score it hear it; None where a model is missing.

    Attributes:
        own: by the model's own speaker encoder.
        verified: by the independent verifier.
    """

    own: NDArray[np.float32] | None = None
    verified: NDArray[np.float32] | None = None


@dataclass(frozen=True, kw_only=True)
class Scorers:
    """The models that score takes.

    Attributes:
        own: the base model, for its speaker encoder; None where it has none or is elsewhere.
        transcribers: all of this machine, the preferred one first; without any, no words are checked.
        verifier: tells speakers apart independently of the model; None leaves that out.
    """

    own: VoiceEncoder | None
    transcribers: tuple[Transcriber, ...] = ()
    verifier: SpeakerVerifier | None = None

    def embed(self, samples: NDArray[np.float32], sample_rate: int) -> VoiceEmbeddings:
        """The voice in mono samples (samples,)."""
        own = verified = None
        if self.own is not None:
            waveform = resample(samples, sample_rate, self.own.speaker_sample_rate)
            own = self.own.embed_speaker(torch.from_numpy(waveform)).float().cpu().numpy()
        if self.verifier is not None:
            verified = self.verifier.embed(resample(samples, sample_rate, VERIFIER_SAMPLE_RATE))
        return VoiceEmbeddings(own=own, verified=verified)


def score_take(
    scorers: Scorers,
    samples: NDArray[np.float32],
    sample_rate: int,
    *,
    text: str,
    language: str,
    reference: VoiceEmbeddings | None,
    people: Mapping[str, VoiceEmbeddings] | None = None,
) -> Measures:
    """Score one take (samples,) as it was generated, before its loudness is changed.

    Args:
        scorers: what measures.
        samples: the take.
        sample_rate: in Hz.
        text: what should be said.
        language: of the text, or auto.
        reference: the voice it should be; None leaves the voice unscored.
        people: by name all who might be heard, where there are several.
    """
    is_audible = len(samples) >= MIN_SECONDS * sample_rate
    found: dict[str, object] = {"clipped_share": clipped_share(samples)}
    heard = [
        hearing
        for transcriber in scorers.transcribers
        if (hearing := hear(transcriber, samples if is_audible else None, sample_rate, text, language)) is not None
    ]
    if heard:
        first = heard[0]
        found |= {
            "transcript": first.transcript,
            "transcriber": first.listener,
            "character_error": first.character_error,
            "word_error": first.word_error,
            "also_heard": tuple(heard[1:]),
        }
    if is_audible and reference is not None:
        voice = scorers.embed(samples, sample_rate)
        if voice.own is not None and reference.own is not None:
            found["speaker_similarity"] = cosine(voice.own, reference.own)
        if voice.verified is not None and reference.verified is not None:
            found["verified_similarity"] = cosine(voice.verified, reference.verified)
            found["verifier"] = scorers.verifier.name if scorers.verifier is not None else None
        found["likeness"] = _likeness(voice, people or {})
    return Measures.model_validate(found)


def _likeness(voice: VoiceEmbeddings, people: Mapping[str, VoiceEmbeddings]) -> dict[str, float]:
    """How like each person a voice is, all by the same judge: the verifier where it knows them all."""
    for judge in ("verified", "own"):
        heard, known = getattr(voice, judge), {name: getattr(person, judge) for name, person in people.items()}
        if heard is not None and all(embedding is not None for embedding in known.values()):
            return {name: cosine(heard, embedding) for name, embedding in known.items()}
    return {}


def hear(
    transcriber: Transcriber, samples: NDArray[np.float32] | None, sample_rate: int, text: str, language: str
) -> Hearing | None:
    """What is heard in mono samples (samples,) that should say a text; None in a language it does not know.

    Without samples nothing is heard, which is all wrong.
    """
    code, heard = language_code(language), ""
    try:
        if samples is not None:
            heard = transcriber.transcribe(resample(samples, sample_rate, TRANSCRIBER_HZ), code).text.strip()
    except LanguageUnsupported:
        return None
    characters, words = text_errors(text, heard, code or "en")
    return Hearing(listener=transcriber.name, transcript=heard, character_error=characters, word_error=words)


class TakeMeasuring:
    """Scores takes next to a loaded model; the other models are loaded when first needed, and kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._transcribers: tuple[Transcriber, ...] | None = None

    def transcribers(self) -> tuple[Transcriber, ...]:
        """All speech recognition of this machine, the preferred one first."""
        with self._lock:
            if self._transcribers is None:
                self._transcribers = load_stored_transcribers()
            return self._transcribers

    def measure(
        self,
        samples: NDArray[np.float32],
        sample_rate: int,
        *,
        reference: Path | None,
        own: VoiceEncoder | None,
        text: str,
        language: str,
    ) -> TakeScores:
        """Scores of one take (samples,) against a reference WAV that this program wrote; see `score_take`."""
        scorers = Scorers(own=own, transcribers=self.transcribers(), verifier=load_verifier())
        voice = None
        if reference is not None and reference.is_file():
            voice = scorers.embed(*read_own_wav(reference))
        found = score_take(scorers, samples, sample_rate, text=text, language=language, reference=voice)
        ratio = len(samples) / sample_rate / expected_seconds(text, language)
        return TakeScores(**found.model_dump(), duration_ratio=ratio)


def read_own_wav(path: Path) -> tuple[NDArray[np.float32], int]:
    """Samples and rate of a mono PCM16 WAV that this program wrote itself."""
    integers, sample_rate = read_own_pcm16(path)
    return (integers / _FULL_SCALE).astype(np.float32), sample_rate


def read_own_pcm16(path: Path) -> tuple[NDArray[np.int16], int]:
    """The same as they are in the file."""
    with wave.open(str(path), "rb") as file:
        return np.frombuffer(file.readframes(file.getnframes()), dtype="<i2"), file.getframerate()
