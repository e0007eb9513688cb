"""What can be measured on a take beside listening to it."""

from __future__ import annotations

import threading
import wave
from pathlib import Path

import numpy as np
import soxr
import torch
from numpy.typing import NDArray

from backend.audio.quality import clipped_share
from backend.comparisons.comparison import TakeScores
from backend.comparisons.resolve import ResolvedVoice
from backend.evaluation.scores import cosine, text_errors
from backend.evaluation.speaker_verifier import VERIFIER_SAMPLE_RATE, SpeakerVerifier, find_verifier
from backend.serving.pool.loaded_model import LoadedModel
from backend.transcription.select import load_stored_transcriber
from backend.transcription.transcriber import TRANSCRIBER_HZ, Transcriber
from training.model.prompt.length import FIXED_FRAMES, FRAMES_PER_SECOND, frame_cap

CAP_OVER_PACE = 3.0
"""The longest a take may be is about three times the pace of ordinary speech, see `frame_cap`."""

MIN_HEARD_SECONDS = 0.2
"""Shorter sound has neither speaker nor words."""

_FULL_SCALE = 32768.0


class TakeMeasuring:
    """Measures takes with whatever this machine has; what listens is loaded when first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listens_for: Path | None = None
        self._verifier: SpeakerVerifier | None = None
        self._transcriber: Transcriber | None = None

    def transcriber(self, base: LoadedModel) -> Transcriber | None:
        """Speech recognition; None where its weights are not on this machine."""
        with self._lock:
            if self._listens_for != base.folder:
                self._transcriber, self._verifier = load_stored_transcriber(base.folder), find_verifier()
                self._listens_for = base.folder
            return self._transcriber

    def measure(
        self,
        samples: NDArray[np.float32],
        sample_rate: int,
        *,
        resolved: ResolvedVoice,
        base: LoadedModel,
        text: str,
        language: str,
    ) -> TakeScores:
        """Scores of one take (samples,) before its loudness was changed."""
        transcriber = self.transcriber(base)
        seconds = len(samples) / sample_rate
        found: dict[str, object] = {}
        if seconds >= MIN_HEARD_SECONDS:
            if resolved.reference is not None and resolved.reference.is_file():
                found |= self._similarities(samples, sample_rate, resolved.reference, base)
            if transcriber is not None:
                spoken = None if language == "auto" else language
                heard = transcriber.transcribe(_at_rate(samples, sample_rate, TRANSCRIBER_HZ), spoken).text
                found |= {"transcript": heard.strip(), "word_error": text_errors(text, heard)[1]}
        return TakeScores.model_validate(
            {
                "duration_ratio": seconds / expected_seconds(text, language),
                "clipped_share": clipped_share(samples),
                **found,
            }
        )

    def _similarities(
        self, samples: NDArray[np.float32], sample_rate: int, reference: Path, base: LoadedModel
    ) -> dict[str, object]:
        known, known_rate = read_own_wav(reference)
        found: dict[str, object] = {}
        if base.model.speaker_encoder is not None:
            rate = base.model.speaker_sample_rate
            one, other = (
                base.model.embed_speaker(torch.from_numpy(_at_rate(sound, from_rate, rate))).float().cpu().numpy()
                for sound, from_rate in ((samples, sample_rate), (known, known_rate))
            )
            found["speaker_similarity"] = cosine(one, other)
        if self._verifier is not None:
            found["verified_similarity"] = cosine(
                self._verifier.embed(_at_rate(samples, sample_rate, VERIFIER_SAMPLE_RATE)),
                self._verifier.embed(_at_rate(known, known_rate, VERIFIER_SAMPLE_RATE)),
            )
        return found


def expected_seconds(text: str, language: str) -> float:
    """How long a text lasts at an ordinary pace."""
    frames = frame_cap(text, language, longest=1_000_000) - FIXED_FRAMES
    return max(frames / CAP_OVER_PACE / FRAMES_PER_SECOND, 0.1)


def read_own_wav(path: Path) -> tuple[NDArray[np.float32], int]:
    """Samples and rate of a mono PCM16 WAV that this program wrote itself."""
    with wave.open(str(path), "rb") as file:
        integers = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
        return (integers / _FULL_SCALE).astype(np.float32), file.getframerate()


def _at_rate(samples: NDArray[np.float32], sample_rate: int, wanted: int) -> NDArray[np.float32]:
    resampled = samples if sample_rate == wanted else soxr.resample(samples, sample_rate, wanted)
    return np.ascontiguousarray(resampled, dtype=np.float32)
