"""Prompts: what a model computes from a reference; those of stored voices are kept next to them as safetensors."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from backend.errors import RecordingNotFound
from backend.voices.cloning import clone_voice
from backend.voices.errors import VoiceError
from backend.voices.prompt_file import check_prompt_file, read_prompt_file, write_prompt_file
from backend.voices.reference import read_reference
from backend.voices.styles import VoiceStyle
from backend.voices.voice import Voice
from training.model.errors import CheckpointError
from training.model.generation.take_request import VoicePrompt
from training.model.voice_model import VoiceModel

MAX_PROMPTS = 64
"""A prompt is a few hundred kilobytes; returning the same object also spares the decoder the reference."""

_logger = logging.getLogger(__name__)
_FINGERPRINT_CHARACTERS = 32


class VoicePrompts:
    """Finds or makes the prompts of one model, and keeps the latest in memory; safe to use from any thread."""

    def __init__(self, model: VoiceModel, max_prompts: int = MAX_PROMPTS) -> None:
        self._model = model
        self._max_prompts = max_prompts
        self._fingerprint: str | None = None
        self._prompts: OrderedDict[tuple[Path | str, str | None], VoicePrompt] = OrderedDict()
        self._being_made: dict[tuple[Path | str, str | None], threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, voice: Voice) -> VoicePrompt:
        """Find or make the prompt of this voice; the same object for the same voice.

        Raises:
            VoiceError: the voice has neither a speaker in this model nor a reference recording.
            EncoreError: the reference is damaged, or the model cannot clone.
        """
        if voice.kind == "fine-tuned" and self._model.config.tts_model_type == "custom_voice":
            return VoicePrompt(speaker_name=next(iter(self._model.config.talker.spk_id)))
        return self._cached((voice.folder, voice.transcript), lambda: self._read(voice) or self._make(voice))

    def styled(self, voice: Voice, style: VoiceStyle) -> VoicePrompt:
        """Find or make the prompt that makes a voice continue the clip of a style.

        Who speaks is said by the voice's own embedding, as in training; the clip says how.

        Raises:
            EncoreError: the clip is damaged or gone, or the model cannot clone.
        """
        clip = voice.clip_of(style)
        if not clip.is_file():
            raise VoiceError(
                f"The voice {voice.name} has lost the clip of its style {style.name}. Import or train it again."
            )

        def make() -> VoicePrompt:
            """Analyse the clip, and the voice's reference where it was not before."""
            own = self.get(voice).speaker if voice.reference is not None else None
            return clone_voice(self._model, read_reference(clip), style.transcript, speaker=own)

        return self._cached((clip, style.transcript), make)

    def clone(self, reference: Path, transcript: str | None = None) -> VoicePrompt:
        """Find or make the prompt of a recording: in context with its transcript, else from the speaker embedding.

        Raises:
            EncoreError: the recording cannot be used, or the model cannot clone.
        """
        transcript = (transcript or "").strip()
        key = (_hash_content(reference), transcript)
        return self._cached(key, lambda: clone_voice(self._model, read_reference(reference), transcript))

    def num_bytes(self) -> int:
        """Of the prompts in memory."""
        with self._lock:
            prompts = list(self._prompts.values())
        return sum(tensor.nbytes for prompt in prompts for tensor in prompt.tensors)

    def forget_deleted(self) -> None:
        """Drop the prompts of stored voices that have been deleted."""
        with self._lock:
            for key in [key for key in self._prompts if isinstance(key[0], Path) and not key[0].exists()]:
                del self._prompts[key]

    def _cached(self, key: tuple[Path | str, str | None], make: Callable[[], VoicePrompt]) -> VoicePrompt:
        with self._lock:
            prompt = self._prompts.get(key)
            being_made = self._being_made.setdefault(key, threading.Lock()) if prompt is None else None
        if being_made is not None:
            # A lock for each voice: it is made once, and requests for other voices do not wait.
            with being_made:
                with self._lock:
                    prompt = self._prompts.get(key)
                try:
                    prompt = prompt or make()
                    with self._lock:
                        self._prompts.setdefault(key, prompt)
                finally:
                    with self._lock:
                        self._being_made.pop(key, None)
        assert prompt is not None
        with self._lock:
            prompt = self._prompts.setdefault(key, prompt)
            self._prompts.move_to_end(key)
            while len(self._prompts) > self._max_prompts:
                self._prompts.popitem(last=False)
        return prompt

    def _path(self, voice: Voice) -> Path:
        with self._lock:
            self._fingerprint = self._fingerprint or fingerprint(self._model)
        return voice.prompts_folder / f"{self._fingerprint}.safetensors"

    def _read(self, voice: Voice) -> VoicePrompt | None:
        path = self._path(voice)
        if not path.is_file():
            return None
        try:
            check_prompt_file(path)
            prompt = read_prompt_file(path, voice.transcript)
        except (VoiceError, CheckpointError) as error:
            # It can be made anew, so there is nothing for the user to do.
            _logger.warning("prompt %s is not used: %s", path, error)
            return None
        return prompt if self._fits(prompt) else None

    def _fits(self, prompt: VoicePrompt) -> bool:
        """True if the tensors have this model's sizes; an imported file may carry this model's fingerprint anyway."""
        talker = self._model.config.talker
        if prompt.speaker is None or prompt.speaker.shape != (talker.hidden_size,):
            return False
        codes, timbre = prompt.reference_codes, prompt.timbre
        if timbre is not None and not timbre.fits(self._model):
            return False
        if codes is None:
            return True
        vocabulary = self._model.speech_tokenizer.config.decoder.codebook_size
        return codes.shape[1] == talker.num_code_groups and int(codes.max()) < vocabulary

    def _make(self, voice: Voice) -> VoicePrompt:
        if voice.reference is None:
            raise VoiceError(
                f"The voice {voice.name} has no reference recording, so this model cannot clone it. "
                "Use the voice's own checkpoint, or make the voice again."
            )
        prompt = clone_voice(self._model, read_reference(voice.reference), voice.transcript)
        try:
            _write(self._path(voice), prompt)
        except OSError as error:
            _logger.warning("the prompt of voice %s cannot be kept: %s", voice.id, error)
        return prompt


def fingerprint(model: VoiceModel) -> str:
    """A hash of what a prompt depends on: the encoders' weights, and how much of a recording can be continued.

    Where a voice's timbre is matched, also the talker's weights and how it draws.
    """
    talker = model.talker if model.matches_timbre else None
    networks = [one for one in (model.speaker_encoder, model.speech_tokenizer, talker) if one is not None]
    digests = "".join(map(_hash_weights, networks))
    if model.max_reference_seconds is not None:
        digests += f" {model.max_reference_seconds}"
    if talker is not None:
        digests += f" {model.default_sampling.of_residual_codebooks}"
    return hashlib.sha256(digests.encode()).hexdigest()[:_FINGERPRINT_CHARACTERS]


def _hash_weights(network: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        # The decoder's precision is a setting and has no part in analysing a recording.
        if name.startswith("decoder."):
            continue
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _hash_content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RecordingNotFound(path.name, problem="cannot be read") from error


def _write(path: Path, prompt: VoicePrompt) -> None:
    path.parent.mkdir(exist_ok=True)
    partial = path.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        write_prompt_file(partial, prompt)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
