"""From the voice that a request names to what speaks: a checkpoint and a prompt."""

from __future__ import annotations

import io
import threading
import wave
from contextlib import ExitStack
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np

from backend.audio.recording import Recording
from backend.serving.engine.engine import Engine
from backend.serving.requests import Reference, RunCheckpoint, SynthesisRequest
from backend.voices.cloning import clone_voice
from backend.voices.errors import VoiceError
from backend.voices.prompts import VoicePrompts
from backend.voices.styles import VoiceStyle, require_style
from backend.voices.voice import VARIANT_OF_MODE, Voice
from training.model.generation.take_request import VoicePrompt

_FULL_SCALE = 32767.0


class VoiceResolver:
    """Finds what speaks for a request; may be used from any thread."""

    def __init__(self, base: Path) -> None:
        """Zero-shot voices speak with the checkpoint `base`."""
        self._base = base
        self._prompts: WeakKeyDictionary[Engine, VoicePrompts] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def checkpoint(self, request: SynthesisRequest) -> Path:
        """The folder of the checkpoint that speaks. Raises VoiceError."""
        voice = request.voice
        if isinstance(voice, Voice):
            return self._checkpoint_of_voice(voice, request)
        require_no_style(request)
        return voice.checkpoint or self._base

    def adapter(self, request: SynthesisRequest) -> Path | None:
        """The folder of the adapter that the checkpoint speaks with, if it does."""
        if not isinstance(request.voice, Voice) or request.mode not in (None, *VARIANT_OF_MODE):
            return None
        return request.voice.adapter

    def prompt(self, request: SynthesisRequest, engine: Engine, lease: ExitStack) -> VoicePrompt:
        """What makes an engine of that checkpoint speak in the voice; may take seconds the first time.

        Args:
            request: names the voice.
            engine: of the voice's checkpoint.
            lease: keeps the voice's adapter in memory until it is closed.

        Raises:
            EncoreError: a recording cannot be used, or the checkpoint cannot clone, or is not that of the adapter.
        """
        folder = self.adapter(request)
        if folder is not None and isinstance(request.voice, Voice):
            adapter = lease.enter_context(engine.adapters.use(folder))
            if (style := style_with_clip(request.voice, request.style)) is not None:
                return self._prompts_of(engine).styled(request.voice, style).adapted(adapter)
            if request.mode == "fine-tuned-in-context":
                return self._prompts_of(engine).get(request.voice).adapted(adapter)
            # What was trained as a row of the codec vocabulary, at the position where a merged checkpoint has it.
            return VoicePrompt(speaker=next(iter(adapter.speakers.values())), adapter=adapter)
        match request.voice:
            case Reference(recording=bytes() as content, transcript=transcript):
                return clone_voice(engine.model, _read_canonical(content), transcript)
            case Reference(recording=Path() as recording, transcript=transcript):
                return self._prompts_of(engine).clone(recording, transcript)
            case RunCheckpoint():
                return VoicePrompt(speaker_name=next(iter(engine.model.config.talker.spk_id)))
            case Voice() as voice if (style := style_with_clip(voice, request.style)) is not None:
                return self._prompts_of(engine).styled(voice, style)
            case Voice() as voice:
                prompt = self._prompts_of(engine).get(voice)
                return prompt.without_context() if request.mode == "x-vector" else prompt
        raise AssertionError(request.voice)

    def instruction(self, request: SynthesisRequest, engine: Engine) -> str:
        """What the checkpoint is told about how to speak; a style without a clip is the instruction.

        Raises:
            VoiceError: the checkpoint would not follow it.
        """
        if not isinstance(request.voice, Voice) or not request.style:
            return request.instruction
        style = request.voice.style(request.style)
        if style.transcript is not None:
            return request.instruction
        if not engine.model.config.follows_instructions:
            raise VoiceError(
                f"The style {style.name} of {request.voice.name} is an instruction, which this checkpoint does not "
                "follow. Leave the style out, or speak the voice as it is meant to be."
            )
        return style.name

    def num_bytes(self) -> int:
        """Of what models made of voices."""
        with self._lock:
            prompts = list(self._prompts.values())
        return sum(each.num_bytes() for each in prompts)

    def forget_deleted(self) -> None:
        """Drop what models made of voices that have been deleted."""
        with self._lock:
            prompts = list(self._prompts.values())
        for each in prompts:
            each.forget_deleted()

    def _checkpoint_of_voice(self, voice: Voice, request: SynthesisRequest) -> Path:
        mode = request.mode
        is_whole = voice.kind == "fine-tuned" and voice.adapter is None
        if (style := style_with_clip(voice, request.style)) is not None:
            if mode in ("x-vector", "fine-tuned"):
                raise VoiceError(
                    f"The style {style.name} of {voice.name} continues a clip, which this way of speaking does not. "
                    "Leave the style out, or choose the closest way."
                )
            if mode is None and is_whole:
                return checkpoint_of(voice, style.name)
        if mode is None:
            return checkpoint_of(voice) if is_whole else self._base
        if mode not in voice.modes:
            raise VoiceError(f"The voice {voice.name} cannot be spoken like that: {mode}. Choose the closest way.")
        return voice.variants[VARIANT_OF_MODE[mode]] if is_whole and mode in VARIANT_OF_MODE else self._base

    def _prompts_of(self, engine: Engine) -> VoicePrompts:
        with self._lock:
            prompts = self._prompts.get(engine)
            if prompts is None:
                prompts = self._prompts[engine] = VoicePrompts(engine.model)
        return prompts


def checkpoint_of(voice: Voice, style: str = "") -> Path:
    """The checkpoint that speaks in a fine-tuned voice, or in one of its styles.

    Raises:
        VoiceStyleUnknown: it has no such style.
        VoiceError: it has lost its checkpoint.
    """
    if style_with_clip(voice, style) is not None:
        folder = voice.variants.get("base")
    else:
        folder = voice.variants.get("custom_voice") or voice.variants.get("base")
    if folder is None:
        raise VoiceError(f"The voice {voice.name} has lost its checkpoint: {voice.folder} has none. Import it again.")
    return folder


def style_with_clip(voice: Voice, word: str) -> VoiceStyle | None:
    """The style that a word names, where its takes continue a clip; None without a word, or if it is an instruction.

    Raises:
        VoiceStyleUnknown: the voice has no such style.
    """
    style = voice.style(word) if word else None
    return style if style is not None and style.transcript is not None else None


def require_no_style(request: SynthesisRequest) -> None:
    """Refuse a style for what has none: a recording, or a checkpoint of a run. Raises VoiceStyleUnknown."""
    if request.style:
        require_style(request.voice.name, (), request.style)


def _read_canonical(content: bytes) -> Recording:
    """A WAV that was decoded and written by this program before."""
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
