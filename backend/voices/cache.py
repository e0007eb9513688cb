"""The last few voices cloned, so that a second take does not analyse the same recording again."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from pathlib import Path

from backend.errors import RecordingMissing
from backend.voices.cloning import clone_voice, read_reference
from training.model.decoding.take_request import VoicePrompt
from training.model.voice_model import VoiceModel

MAX_VOICES = 8
"""A voice is some hundred kilobytes; making one anew costs a second or more before the first sound."""


class VoiceCache:
    """Clones voices and remembers them; the same model, recording and transcript give the same object again."""

    def __init__(self, max_voices: int = MAX_VOICES) -> None:
        self._max_voices = max_voices
        # The model is kept beside its voice: as long as the key is in use, no other object can have its id.
        self._voices: OrderedDict[tuple[int, str, str], tuple[VoiceModel, VoicePrompt]] = OrderedDict()
        self._lock = threading.Lock()

    def clone(self, model: VoiceModel, reference: Path, transcript: str | None = None) -> VoicePrompt:
        """Make or find the voice of a recording: in context with a transcript, from the embedding without.

        Raises:
            EncoreError: the recording cannot be used, or the model cannot clone.
        """
        key = (id(model), _hash_content(reference), (transcript or "").strip())
        with self._lock:
            found = self._voices.get(key)
        # Outside the lock: two who ask for the same new voice at once both make it, and nobody else waits.
        _, voice = found or (model, clone_voice(model, read_reference(reference), transcript))
        with self._lock:
            self._voices[key] = (model, voice)
            self._voices.move_to_end(key)
            while len(self._voices) > self._max_voices:
                self._voices.popitem(last=False)
        return voice


def _hash_content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RecordingMissing(path.name, problem="cannot be read") from error
