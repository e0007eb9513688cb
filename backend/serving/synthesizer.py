"""Everything one process needs to speak orders: engines, prompts of voices, files of sound."""

from __future__ import annotations

import io
import threading
import wave
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from backend.audio.encoding import StreamEncoder, encode
from backend.audio.recording import Recording
from backend.audio.tempo import Tempo
from backend.errors import EncoreError
from backend.serving.engine.engine import Engine
from backend.serving.engine.statistics import EngineStatistics
from backend.serving.pool.engine_pool import EnginePool
from backend.serving.requests import AudioChunk, OneOffVoice, SpeechFailure, SpeechItem, SpeechSummary, SynthesisRequest
from backend.serving.speech.speech import Speech, speak
from backend.voices.cloning import clone_voice
from backend.voices.errors import VoiceError
from backend.voices.prompts import VoicePrompts
from backend.voices.voice import Voice
from training.model.decoding.frame_loop import FinishReason
from training.model.decoding.take_request import TakeRequest, VoicePrompt

_FULL_SCALE = 32767.0


class VoiceSpeaker:
    """Speaks orders with the base model, or with the checkpoint of a fine-tuned voice; from any thread."""

    def __init__(self, base: Path, engines: EnginePool) -> None:
        """Load the base model, which stays.

        Raises:
            EncoreError: it cannot be loaded.
        """
        self._base, self._engines = base, engines
        self._prompts: WeakKeyDictionary[Engine, VoicePrompts] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._stack = ExitStack()
        # In use as long as this speaker lives, so that fine-tuned voices never push it out.
        self._stack.enter_context(engines.use(base))

    def speak(self, order: SynthesisRequest, cancelled: Callable[[], bool]) -> Iterator[SpeechItem]:
        """Sound as it is made, then a summary; or a failure, after which nothing comes."""
        try:
            with self._engines.use(self._folder_of(order.voice)) as engine:
                request = TakeRequest(
                    text=order.text,
                    voice=self._prompt_of(order.voice, engine),
                    language=order.language,
                    seed=order.seed,
                    sampling=order.sampling,
                    instruction=order.instruction,
                )
                speech = speak(engine, request, streaming=order.is_streamed, cancelled=cancelled)
                yield from _sound_of(speech, order)
                if speech.finish_reason is not FinishReason.CANCELLED:
                    yield _summarise(speech, order, engine)
        except EncoreError as error:
            yield SpeechFailure(error=error)

    def speak_whole(self, order: SynthesisRequest) -> tuple[bytes, SpeechSummary]:
        """Wait for a whole speech. Raises EncoreError when it fails."""
        content = bytearray()
        for item in self.speak(order, lambda: False):
            match item:
                case AudioChunk():
                    content += item.content
                case SpeechSummary():
                    return bytes(content), item
                case SpeechFailure():
                    raise item.error
        raise AssertionError("a speech nobody cancels ends with a summary or a failure")

    def prepare(self, voice: Voice) -> None:
        """Load what a voice needs, so that its first listener does not wait for it. Raises EncoreError."""
        with self._engines.use(self._folder_of(voice)) as engine:
            self._prompt_of(voice, engine)

    def forget_deleted(self) -> None:
        """Let go of the weights of voices that are not there any more, whoever has deleted them."""
        self._engines.unload_deleted()

    @property
    def is_healthy(self) -> bool:
        """Whether it can be expected to speak."""
        return self._engines.is_healthy

    def statistics(self) -> dict[str, EngineStatistics]:
        """Numbers of each engine: the base model's, and those of voices under their id."""
        base = self._base.resolve()
        return {
            "base" if folder == base else folder.parent.name: numbers
            for folder, numbers in self._engines.statistics().items()
        }

    def close(self) -> None:
        """End all engines; whoever still speaks is told."""
        self._stack.close()
        self._engines.close()

    def _folder_of(self, voice: Voice | OneOffVoice) -> Path:
        if isinstance(voice, OneOffVoice) or voice.kind == "zero-shot":
            return self._base
        return checkpoint_of(voice)

    def _prompt_of(self, voice: Voice | OneOffVoice, engine: Engine) -> VoicePrompt:
        if isinstance(voice, OneOffVoice):
            return clone_voice(engine.model, _read_canonical(voice.reference_wav), voice.transcript)
        with self._lock:
            prompts = self._prompts.get(engine)
            if prompts is None:
                prompts = self._prompts[engine] = VoicePrompts(engine.model)
        return prompts.get(voice)


def checkpoint_of(voice: Voice) -> Path:
    """The checkpoint that speaks in a fine-tuned voice. Raises VoiceError."""
    variants = voice.variants
    folder = variants.get("custom_voice") or variants.get("base")
    if folder is None:
        raise VoiceError(f"The voice {voice.name} has lost its checkpoint: {voice.folder} has none. Import it again.")
    return folder


def _read_canonical(content: bytes) -> Recording:
    """A recording that was decoded and written by this program before."""
    with wave.open(io.BytesIO(content), "rb") as file:
        rate, num_frames = file.getframerate(), file.getnframes()
        samples = np.frombuffer(file.readframes(num_frames), dtype="<i2").astype(np.float32) / _FULL_SCALE
    return Recording(
        samples=samples,
        sample_rate=rate,
        source_name="reference",
        source_sample_rate=rate,
        source_channels=1,
        source_seconds=num_frames / rate,
        container="wav",
        codec="pcm_s16le",
    )


def _sound_of(speech: Speech, order: SynthesisRequest) -> Iterator[AudioChunk]:
    # Closed with this iterator, so that a listener who leaves in the middle frees the slot at once.
    with closing(speech.chunks):  # type: ignore[type-var] # a generator, declared as the iterator that it is to others
        tempo = Tempo(order.speed, speech.sample_rate)
        changed = _changed(speech, tempo)
        if order.is_streamed:
            yield from _encoded(changed, order, speech.sample_rate)
            return
        chunks = list(changed)
        samples = np.concatenate(chunks) if chunks else np.zeros(0, np.float32)
        if speech.finish_reason is not FinishReason.CANCELLED:
            yield AudioChunk(content=encode(samples, speech.sample_rate, order.audio_format))


def _changed(speech: Speech, tempo: Tempo) -> Iterator[NDArray[np.float32]]:
    for chunk in speech:
        yield tempo.add(chunk)
    yield tempo.finish()


def _encoded(chunks: Iterator[NDArray[np.float32]], order: SynthesisRequest, sample_rate: int) -> Iterator[AudioChunk]:
    encoder = StreamEncoder(order.audio_format, sample_rate)
    try:
        head = encoder.header()
        for chunk in chunks:
            # With the first sound, not before: until then a refusal can still have a status of its own.
            content = head + encoder.encode(chunk)
            if content and len(chunk):
                head = b""
                yield AudioChunk(content=content)
            else:
                head = content
    finally:
        # Also when nobody listens any more: it frees what the encoder holds.
        rest = encoder.finish()
    yield AudioChunk(content=head + rest)


def _summarise(speech: Speech, order: SynthesisRequest, engine: Engine) -> SpeechSummary:
    return SpeechSummary(
        seconds=speech.seconds,
        sample_rate=speech.sample_rate,
        finish_reason=speech.finish_reason.value,
        seeds=tuple(speech.seeds),
        seconds_to_first_audio=speech.seconds_to_first_audio,
        wall_seconds=speech.wall_seconds,
        num_characters=len(order.text),
        num_frames=round(speech.seconds * engine.model.speech_tokenizer.config.frame_rate_hz),
    )
