"""Judging by ear: a checkpoint speaks, by the code that serves, and what is heard is measured."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr
import torch
from numpy.typing import NDArray

from backend.audio.decoding import decode_recording
from backend.audio.quality import clipped_share
from backend.audio.writing import write_wav
from backend.errors import EncoreError
from backend.evaluation.plan import EvaluatedSentence, EvaluationPlan
from backend.evaluation.scores import EvaluatedTake, cosine, text_errors
from backend.evaluation.speaker_verifier import VERIFIER_SAMPLE_RATE, SpeakerVerifier
from backend.serving.engine.engine import Engine
from backend.serving.speech.speech import Speech, speak
from backend.transcription.select import language_code
from backend.transcription.transcriber import TRANSCRIBER_HZ, Transcriber
from training.model.decoding.take_request import TakeRequest, VoicePrompt
from training.model.voice_model import VoiceModel

_logger = logging.getLogger(__name__)

_MIN_HEARD_SECONDS = 0.2
"""Shorter sound has no speaker; it is scored as nobody rather than handed to an encoder that pads it."""

_NUM_SLOTS = 4
"""Sentences spoken at once, beside a training that needs the processor too."""

_CACHE_LENGTH = 2048


@dataclass(frozen=True, kw_only=True)
class Scorers:
    """Who listens.

    Attributes:
        own: the base model, whose speaker encoder hears every take.
        transcriber: writes down what is said; None where there is none, and then no words are checked.
        verifier: tells speakers apart independently; None where there is none.
        verified_target: the person's mean direction for the verifier.
    """

    own: VoiceModel
    transcriber: Transcriber | None = None
    verifier: SpeakerVerifier | None = None
    verified_target: NDArray[np.float32] | None = None


def prepare_ears(plan: EvaluationPlan, transcriber: Transcriber | None, verifier: SpeakerVerifier | None) -> Scorers:
    """Load the base model, and let the verifier hear the person's clips.

    Raises:
        EncoreError: the base model cannot be loaded.
    """
    own = VoiceModel.load(plan.base_model, precision="fp32")
    target = _hear_clips(plan, verifier) if verifier is not None else None
    return Scorers(
        own=own, transcriber=transcriber, verifier=verifier if target is not None else None, verified_target=target
    )


def judge(
    model: VoiceModel,
    plan: EvaluationPlan,
    scorers: Scorers,
    folder: Path,
    *,
    cancelled: Callable[[], bool] | None = None,
) -> list[EvaluatedTake]:
    """Let a model speak all sentences of the plan, keep the takes in `folder`, and measure them.

    Raises:
        EncoreError: the model cannot speak a sentence, or a take cannot be stored.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with Engine(model, num_slots=_NUM_SLOTS, cache_length=_CACHE_LENGTH) as engine:
        return list(_judge(engine, plan, scorers, folder, cancelled or (lambda: False)))


def _judge(
    engine: Engine, plan: EvaluationPlan, scorers: Scorers, folder: Path, cancelled: Callable[[], bool]
) -> Iterator[EvaluatedTake]:
    # The engine speaks on while somebody listens to what is finished.
    asked: deque[Speech] = deque()
    left = deque(plan.sentences)
    for position, sentence in enumerate(plan.sentences):
        while left and len(asked) <= _NUM_SLOTS and not cancelled():
            asked.append(_ask(engine, plan, left.popleft()))
        if cancelled():
            return
        speech = asked.popleft()
        chunks = list(speech)
        samples = np.concatenate(chunks) if chunks else np.zeros(0, np.float32)
        path = folder / f"{position:02}.wav"
        write_wav(path, samples, speech.sample_rate)
        yield _measure(samples, speech.sample_rate, speech.finish_reason, position, sentence, path, plan, scorers)


def _ask(engine: Engine, plan: EvaluationPlan, sentence: EvaluatedSentence) -> Speech:
    weights = next(engine.model.talker.parameters())
    voice = VoicePrompt(speaker=torch.tensor(plan.speaker, device=engine.model.device, dtype=weights.dtype))
    request = TakeRequest(text=sentence.text, voice=voice, language=plan.language, seed=sentence.seed)
    return speak(engine, request, streaming=False)


def _measure(
    samples: NDArray[np.float32],
    sample_rate: int,
    finish_reason: str,
    position: int,
    sentence: EvaluatedSentence,
    path: Path,
    plan: EvaluationPlan,
    scorers: Scorers,
) -> EvaluatedTake:
    seconds = len(samples) / sample_rate
    heard: dict[str, object] = {}
    if scorers.transcriber is not None:
        transcript = _transcribe(scorers.transcriber, _at_rate(samples, sample_rate, TRANSCRIBER_HZ), plan.language)
        characters, words = text_errors(sentence.text, transcript)
        heard = {"transcript": transcript, "character_error": characters, "word_error": words}
    if seconds >= _MIN_HEARD_SECONDS:
        heard |= _similarities(samples, sample_rate, plan, scorers)
    return EvaluatedTake(
        position=position,
        text=sentence.text,
        held_out=sentence.held_out,
        seed=sentence.seed,
        seconds=seconds,
        expected_seconds=sentence.expected_seconds,
        finish_reason=str(finish_reason),
        file=f"{path.parent.parent.name}/{path.parent.name}/{path.name}",
        clipped_share=clipped_share(samples),
        **heard,  # type: ignore[arg-type]  # checked by the model itself
    )


def _similarities(
    samples: NDArray[np.float32], sample_rate: int, plan: EvaluationPlan, scorers: Scorers
) -> dict[str, float | None]:
    found: dict[str, float | None] = {"speaker_similarity": None, "verified_similarity": None}
    if scorers.own.speaker_encoder is not None:
        waveform = torch.from_numpy(_at_rate(samples, sample_rate, scorers.own.speaker_sample_rate))
        embedding = scorers.own.embed_speaker(waveform).float().cpu().numpy()
        found["speaker_similarity"] = cosine(embedding, np.array(plan.target, np.float32))
    if scorers.verifier is not None and scorers.verified_target is not None:
        embedding = scorers.verifier.embed(_at_rate(samples, sample_rate, VERIFIER_SAMPLE_RATE))
        found["verified_similarity"] = cosine(embedding, scorers.verified_target)
    return found


def _transcribe(transcriber: Transcriber, samples: NDArray[np.float32], language: str) -> str:
    """What was heard; nothing where there was nothing to hear."""
    if len(samples) < _MIN_HEARD_SECONDS * TRANSCRIBER_HZ:
        return ""
    return transcriber.transcribe(samples, language_code(language)).text


def _hear_clips(plan: EvaluationPlan, verifier: SpeakerVerifier) -> NDArray[np.float32] | None:
    heard = []
    for clip in plan.clips:
        try:
            recording = decode_recording(clip, sample_rate=VERIFIER_SAMPLE_RATE)
        except EncoreError as error:
            _logger.warning("a clip cannot be compared with: %s", error)
            continue
        heard.append(verifier.embed(recording.samples))
    return np.mean(heard, axis=0, dtype=np.float32) if heard else None


def _at_rate(samples: NDArray[np.float32], sample_rate: int, wanted: int) -> NDArray[np.float32]:
    resampled = samples if sample_rate == wanted else soxr.resample(samples, sample_rate, wanted)
    return np.ascontiguousarray(resampled, dtype=np.float32)
