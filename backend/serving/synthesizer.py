"""What the page, the commands and the API speak with: a base model, and the checkpoints of fine-tuned voices."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from backend.audio.encoding import StreamEncoder, encode
from backend.errors import EncoreError
from backend.provenance.statement import MAX_SPEAKER_LENGTH, MAX_STATED_LENGTH, SpeechStatement
from backend.serving.engine.engine import Engine
from backend.serving.engine.statistics import EngineStatistics
from backend.serving.loaded_model import ModelFacts
from backend.serving.memory import MemoryUse, added, memory_of_process
from backend.serving.pool.engine_pool import EnginePool
from backend.serving.requests import (
    AudioChunk,
    Reference,
    SoundBegun,
    SoundChunk,
    SoundEvent,
    SpeechBegun,
    SpeechFailure,
    SpeechGoesOn,
    SpeechSummary,
    SynthesisEvent,
    SynthesisRequest,
)
from backend.serving.speak_again import spoken_from
from backend.serving.speech.audio_stream import AudioStream
from backend.serving.speech.speech_source import SpeechState
from backend.serving.voice_resolver import VoiceResolver
from backend.takes.take import TakeOrigin
from backend.voices.voice_encoder import VoiceEncoder
from training.model.checkpoint.digest import adapted_digest, checkpoint_digest
from training.model.generation.finish_reason import FinishReason
from training.model.generation.take_request import TakeRequest, VoicePrompt
from training.model.voice_model import VoiceModel
from training.style_name import clean_style


class Synthesizer:
    """Speaks requests, from any thread.

    Attributes:
        name: of the base model: mini, a folder or a hub id.
        folder: where it was read from.
        engine: of the base model.
        retire: ends the engines as soon as they are not in use any more; also called when it is dropped.
    """

    def __init__(self, name: str, folder: Path, pool: EnginePool) -> None:
        """Load the base model, which stays.

        Raises:
            EncoreError: it cannot be loaded.
        """
        self.name, self.folder, self._pool = name, folder, pool
        self._resolver = VoiceResolver(folder)
        # In use as long as this lives, so that fine-tuned voices never push it out.
        base = ExitStack()
        self.engine: Engine = base.enter_context(pool.use(folder))
        # Gigabytes take seconds to hash: by the time somebody has written a text, it is done.
        threading.Thread(target=checkpoint_digest, args=(folder,), daemon=True, name="checkpoint-digest").start()
        self.retire = weakref.finalize(self, _retire, base, pool)

    @property
    def model(self) -> VoiceModel:
        """The base model."""
        return self.engine.model

    @property
    def encoder(self) -> VoiceEncoder | None:
        """The base model, where it has a speaker encoder."""
        return self.model if self.model.speaker_encoder is not None else None

    @property
    def facts(self) -> ModelFacts:
        """What is to be known of the base model to ask it for a take."""
        model = self.model
        return ModelFacts(
            name=self.name,
            precision=model.precision,
            device=model.device.type,
            languages=tuple(model.config.languages),
            default_sampling=model.default_sampling,
            is_small=model.is_small,
        )

    def speak(self, request: SynthesisRequest, *, cancelled: Callable[[], bool] | None = None) -> AudioStream:
        """Find or load what the voice needs, and begin to speak; returns a stream of the audio while it is made.

        The engine stays loaded until the stream ends. May take seconds where a recording has to be analysed.

        Args:
            request: the text and the voice.
            cancelled: asked before every frame.

        Raises:
            EncoreError: the voice or the text cannot be spoken, or too many others are being spoken.
        """
        lease = ExitStack()
        try:
            folder = self._resolver.checkpoint(request)
            engine = lease.enter_context(self._pool.use(folder))
            sampling = request.sampling
            # Any: its fields are of different types, and checked by `Sampling` itself.
            changes: dict[str, Any] = request.sampling_changes
            if changes:
                sampling = replace(sampling or engine.model.default_sampling, **changes)
            take = TakeRequest(
                text=request.text,
                voice=self._resolver.prompt(request, engine, lease),
                language=request.language,
                seed=request.seed,
                sampling=sampling,
                instruction=self._resolver.instruction(request, engine),
            )
            origin = TakeOrigin(
                made_by=request.made_by,
                voice=request.voice.name,
                model_name=request.voice.name if request.is_fine_tuned else self.name,
                is_fine_tuned=request.is_fine_tuned,
                consent=request.voice.consent,
                statement=_statement(request, folder, self._resolver.adapter(request)),
                audio_format=request.audio_format,
                speed=request.speed,
                spoken_from=spoken_from(request),
                style=clean_style(request.style),
            )
            return AudioStream.of_engine(
                engine,
                take,
                streaming=request.is_streamed,
                speed=request.speed,
                cancelled=cancelled,
                origin=origin,
                release=lease.close,
                client=request.client,
                payload=request.mark,
            )
        except BaseException:
            lease.close()
            raise

    def prompt(self, request: SynthesisRequest) -> VoicePrompt:
        """Load what a voice needs, and return the prompt that makes the checkpoint speak in it. Raises EncoreError."""
        with self._pool.use(self._resolver.checkpoint(request)) as engine, ExitStack() as lease:
            return self._resolver.prompt(request, engine, lease)

    def prepare(self, request: SynthesisRequest) -> None:
        """Load and analyse what a voice needs, so that its first take begins as soon as others. Raises EncoreError."""
        self.prompt(request)

    def sound(self, request: SynthesisRequest, cancelled: Callable[[], bool]) -> Iterator[SoundEvent]:
        """A speech as samples, with how far it has come, for a stream elsewhere; a failure is the last event."""
        try:
            with closing(self.speak(request, cancelled=cancelled)) as stream:
                assert stream.origin is not None
                yield SoundBegun(plan=stream.plan, origin=stream.origin)
                sent = SpeechState()
                for samples in stream:
                    added = stream.state.since(sent)
                    sent.add(added)
                    yield SoundChunk(samples=samples, added=added)
                yield SoundChunk(samples=np.zeros(0, np.float32), added=stream.state.since(sent))
        except EncoreError as error:
            yield SpeechFailure(error=error)

    def events(self, request: SynthesisRequest, cancelled: Callable[[], bool]) -> Iterator[SynthesisEvent]:
        """The same as bytes of a file as they are made, then a summary; or a failure, which is the last event."""
        try:
            stream = self.speak(request, cancelled=cancelled)
            yield SpeechBegun(statement=stream.statement)
            is_played_from = request.is_streamed
            for content in encoded(stream, request):
                if not content:
                    yield SpeechGoesOn()
                    continue
                yield AudioChunk(
                    content=content, lead_seconds=stream.progress().lead_seconds if is_played_from else None
                )
                is_played_from = False
            if stream.finish_reason is not FinishReason.CANCELLED:
                stream.check_length()
                num_frames = round(stream.seconds * self.model.speech_tokenizer.config.frame_rate_hz)
                yield SpeechSummary(
                    facts=stream.facts(),
                    sample_rate=stream.sample_rate,
                    num_frames=num_frames,
                    timelines=stream.timelines,
                )
        except EncoreError as error:
            yield SpeechFailure(error=error)

    def forget_deleted(self) -> None:
        """Drop the prompts and weights of voices that have been deleted; weights in use at the end of their use."""
        self._resolver.forget_deleted()
        self._pool.unload_deleted()

    @property
    def is_healthy(self) -> bool:
        """False once an engine is broken or closed."""
        return self._pool.is_healthy

    def statistics(self) -> dict[str, EngineStatistics]:
        """Numbers of each engine: the base model's, and those of voices under their id."""
        base = self.folder.resolve()
        return {
            "base" if folder == base else folder.parent.name: numbers
            for folder, numbers in self._pool.statistics().items()
        }

    def memory(self) -> MemoryUse:
        """What holds this process's memory, in bytes by device and owner."""
        parts = list(self._pool.num_bytes().items())
        return memory_of_process(added([*parts, (self.model.device.type, {"voices": self._resolver.num_bytes()})]))

    def close(self) -> None:
        """End all engines at once; streams that are not over end with EngineClosed."""
        self._pool.close()
        self.retire()


def encoded(stream: AudioStream, request: SynthesisRequest) -> Iterator[bytes]:
    """Bytes of one file, as the stream is made or all at once at its end; closes the stream.

    None at all, now and then, are a sign that more was made of what comes at the end.
    """
    with closing(stream):
        if not request.is_streamed:
            pieces = [np.zeros(0, np.float32)]
            for piece in stream.pieces():
                pieces.append(piece)
                if not len(piece):
                    yield b""
            samples = np.concatenate(pieces)
            if stream.finish_reason is not FinishReason.CANCELLED:
                yield encode(samples, stream.sample_rate, request.audio_format, stream.comment)
            return
        encoder = StreamEncoder(request.audio_format, stream.sample_rate, stream.comment)
        try:
            head = encoder.header()
            for samples in stream:
                # The header goes with the first audio, not before: until then a failure can have a status of its own.
                content = head + encoder.encode(samples)
                if content:
                    head = b""
                    yield content
                else:
                    head = content
        finally:
            # Also when the rest is not wanted: it frees what the encoder holds.
            rest = encoder.finish()
        yield head + rest


def _statement(request: SynthesisRequest, checkpoint: Path, adapter: Path | None) -> SpeechStatement:
    """What the take will say of itself."""
    consent = request.voice.consent
    return SpeechStatement(
        checkpoint=checkpoint_digest(checkpoint) if adapter is None else adapted_digest(checkpoint, adapter),
        voice="fine-tuned" if request.is_fine_tuned else "zero-shot",
        consent=None if consent is None else consent.statement,
        consent_sha256=None if consent is None else consent.digest,
        speaker=_speaker_of(request)[:MAX_SPEAKER_LENGTH] if request.names_speaker else None,
        text=request.text[:MAX_STATED_LENGTH] if request.names_text else None,
    )


def _speaker_of(request: SynthesisRequest) -> str:
    """The name of the voice; of a recording that of its speaker, where it is who agreed."""
    consent = request.voice.consent
    is_own = isinstance(request.voice, Reference) and consent is not None and consent.statement == "own-voice"
    return consent.who if is_own and consent is not None else request.voice.name


def _retire(base: ExitStack, pool: EnginePool) -> None:
    base.close()
    pool.retire()
