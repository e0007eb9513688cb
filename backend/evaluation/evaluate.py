"""Evaluates a checkpoint: it speaks the plan's sentences, by the code that serves, and each take is scored."""

from __future__ import annotations

import logging
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from backend.audio.decoding import decode_recording
from backend.audio.recording import Recording
from backend.audio.writing import write_wav
from backend.errors import EncoreError
from backend.evaluation.plan import EvaluatedSentence, EvaluationPlan
from backend.evaluation.scores import EvaluatedTake, OwnErrors
from backend.evaluation.take_scores import Scorers, VoiceEmbeddings, hear, score_take
from backend.provenance.statement import SpeechStatement
from backend.serving.engine.engine import Engine
from backend.serving.speech.audio_stream import AudioStream
from backend.transcription.transcriber import TRANSCRIBER_HZ, Transcriber
from backend.voices.cloning import timbre_of
from training.model.generation.take_request import TakeRequest, VoicePrompt
from training.model.speaker_verifier import VERIFIER_SAMPLE_RATE, SpeakerVerifier
from training.model.voice_model import VoiceModel

_logger = logging.getLogger(__name__)

_NUM_SLOTS = 4
"""Sentences spoken at once, next to a training that needs the processor too."""

_CACHE_LENGTH = 2048


def load_scorers(
    plan: EvaluationPlan, transcribers: tuple[Transcriber, ...], verifier: SpeakerVerifier | None
) -> Scorers:
    """Load the base model, whose speaker encoder hears every take. Raises EncoreError."""
    own = VoiceModel.load(plan.base_model, precision="fp32")
    return Scorers(own=own if own.speaker_encoder is not None else None, transcribers=transcribers, verifier=verifier)


def evaluate(
    model: VoiceModel,
    plan: EvaluationPlan,
    scorers: Scorers,
    folder: Path,
    *,
    statement: SpeechStatement | None = None,
    is_zero_shot: bool = False,
    cancelled: Callable[[], bool] | None = None,
) -> list[EvaluatedTake]:
    """Let a model speak all sentences of the plan, keep the takes in `folder`, and score them.

    Each file says what `statement` says, as a take of its own. A model that speaks zero-shot, without having learnt the
    voices, is given what it is given when it serves, the timbre of their recordings included.

    Raises:
        EncoreError: the model cannot speak a sentence, or a take cannot be stored.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with Engine(model, num_slots=_NUM_SLOTS, cache_length=_CACHE_LENGTH) as engine:
        voices = {one.voice: _voice_of(model, one, is_zero_shot=is_zero_shot) for one in plan.speakers}
        return list(_evaluate(engine, plan, voices, scorers, folder, statement, cancelled or (lambda: False)))


def own_errors(plan: EvaluationPlan, transcribers: Sequence[Transcriber], known: OwnErrors) -> OwnErrors:
    """For each speaker, the share of characters that each listener gets wrong in the person's own recordings.

    Takes are judged by the difference to it: a listener that does not know the voice blames no checkpoint for it.

    Args:
        plan: has the recordings and their texts.
        transcribers: the listeners.
        known: of listeners that have heard them before; kept as it is.
    """
    return {one.voice: _own_errors(one, transcribers, known.get(one.voice, {})) for one in plan.speakers}


def _own_errors(
    plan: EvaluationPlan, transcribers: Sequence[Transcriber], known: Mapping[str, float]
) -> dict[str, float]:
    found = {listener.name: known[listener.name] for listener in transcribers if listener.name in known}
    unheard = [listener for listener in transcribers if listener.name not in found]
    errors: dict[str, list[float]] = {}
    # A plan of an earlier version has no texts.
    for clip, text in zip(plan.clips, plan.clip_texts, strict=False) if unheard else ():
        recording = _read_recording(clip, TRANSCRIBER_HZ)
        if recording is None:
            continue
        for listener in unheard:
            heard = hear(listener, recording.samples, TRANSCRIBER_HZ, text, plan.language)
            if heard is not None:
                errors.setdefault(listener.name, []).append(heard.character_error)
    return found | {name: statistics.fmean(values) for name, values in errors.items()}


def _evaluate(
    engine: Engine,
    plan: EvaluationPlan,
    voices: Mapping[str, VoicePrompt],
    scorers: Scorers,
    folder: Path,
    statement: SpeechStatement | None,
    cancelled: Callable[[], bool],
) -> Iterator[EvaluatedTake]:
    people = {
        one.voice: VoiceEmbeddings(
            own=np.array(one.target, np.float32), verified=_verified_target(one, scorers.verifier)
        )
        for one in plan.speakers
    }
    to_say = [(one, sentence) for one in plan.speakers for sentence in one.sentences]
    # The engine speaks on while finished takes are scored.
    asked: deque[AudioStream] = deque()
    left = deque(to_say)
    for position, (speaker, sentence) in enumerate(to_say):
        while left and len(asked) <= _NUM_SLOTS and not cancelled():
            next_speaker, next_sentence = left.popleft()
            asked.append(_ask(engine, voices[next_speaker.voice], next_speaker.language, next_sentence))
        if cancelled():
            return
        speech = asked.popleft()
        chunks = list(speech)
        samples = np.concatenate(chunks) if chunks else np.zeros(0, np.float32)
        path = folder / f"{position:02}.wav"
        own = statement.for_another_take() if statement is not None else None
        write_wav(path, samples, speech.sample_rate, "" if own is None else own.as_comment())
        scores = score_take(
            scorers,
            samples,
            speech.sample_rate,
            text=sentence.text,
            language=speaker.language,
            reference=people[speaker.voice],
            people=people if len(people) > 1 else None,
        )
        yield EvaluatedTake(
            **scores.model_dump(),
            position=position,
            text=sentence.text,
            held_out=sentence.held_out,
            seed=sentence.seed,
            seconds=len(samples) / speech.sample_rate,
            expected_seconds=sentence.expected_seconds,
            finish_reason=str(speech.finish_reason),
            file=f"{path.parent.parent.name}/{path.parent.name}/{path.name}",
            statement=own,
            speaker=speaker.voice,
        )


def _voice_of(model: VoiceModel, plan: EvaluationPlan, *, is_zero_shot: bool) -> VoicePrompt:
    weights = next(model.talker.parameters())
    speaker = torch.tensor(plan.speaker, device=model.device, dtype=weights.dtype)
    if not (is_zero_shot and model.matches_timbre):
        return VoicePrompt(speaker=speaker)
    recording = _read_recording(plan.reference_clip, model.tokenizer_sample_rate)
    if recording is None:
        return VoicePrompt(speaker=speaker)
    return VoicePrompt(speaker=speaker, timbre=timbre_of(model, speaker, recording, plan.reference_text))


def _ask(engine: Engine, voice: VoicePrompt, language: str, sentence: EvaluatedSentence) -> AudioStream:
    request = TakeRequest(text=sentence.text, voice=voice, language=language, seed=sentence.seed)
    return AudioStream.of_engine(engine, request, streaming=False)


def _verified_target(plan: EvaluationPlan, verifier: SpeakerVerifier | None) -> NDArray[np.float32] | None:
    """The person's mean direction for the verifier, over the clips that can be read."""
    if verifier is None:
        return None
    recordings = (_read_recording(clip, VERIFIER_SAMPLE_RATE) for clip in plan.clips)
    heard = [verifier.embed(recording.samples) for recording in recordings if recording is not None]
    return np.mean(heard, axis=0, dtype=np.float32) if heard else None


def _read_recording(clip: Path, sample_rate: int) -> Recording | None:
    """A clip of the person; None for one that is gone or damaged since."""
    try:
        return decode_recording(clip, sample_rate=sample_rate)
    except EncoreError as error:
        _logger.warning("a clip cannot be compared with: %s", error)
        return None
