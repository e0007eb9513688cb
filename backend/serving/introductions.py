"""A sentence in each voice of the library: spoken once, kept beside the voice, heard before it is chosen."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np

from backend.audio.writing import write_wav
from backend.provenance.signing import FileSigner
from backend.serving.loaded_model import LoadedModel
from backend.serving.requests import SynthesisRequest
from backend.takes.errors import TakeTooShort
from backend.voices.errors import VoiceError
from backend.voices.voice import Voice
from training.model.generation.finish_reason import FinishReason
from training.model.owner import working_name

FOLDER = "introductions"

SENTENCES = {
    "german": "Schön, dass du da bist. Was soll ich dir heute vorlesen?",
    "english": "It is good to meet you. What shall I read to you today?",
}
"""By the language of the voice; others speak English."""

NUM_TRIALS = 3
"""A small model loses the words of one sentence or another; its next try is another one."""


def find_introduction(voice: Voice, model_name: str) -> Path | None:
    """The sentence as the voice speaks it with this base model; None before it was made."""
    path = _place(voice, model_name)
    return path if path.is_file() else None


def make_introduction(
    synthesizer: LoadedModel, voice: Voice, signer: FileSigner | None, cancelled: Callable[[], bool]
) -> Path | None:
    """Have a voice speak its sentence, and keep it; None where it was cancelled.

    Raises:
        EncoreError: the voice cannot speak.
        VoiceError: the file cannot be written.
    """
    path = _place(voice, synthesizer.name)
    text = SENTENCES.get(voice.language, SENTENCES["english"])
    request = SynthesisRequest(voice=voice, text=text, is_streamed=False, made_by="studio", client=FOLDER)
    for trial in range(1, NUM_TRIALS + 1):
        with closing(synthesizer.speak(request, cancelled=cancelled)) as stream:
            chunks = list(stream)
        if stream.finish_reason is FinishReason.CANCELLED:
            return None
        try:
            stream.check_length()
            break
        except TakeTooShort:
            if trial == NUM_TRIALS:
                raise
    # Found by its name only once it is whole.
    written = path.with_name(working_name(path.suffix))
    try:
        path.parent.mkdir(exist_ok=True)
        write_wav(written, np.concatenate(chunks), stream.sample_rate, stream.comment)
        if signer is not None:
            signer.sign_file(written, "wav", stream.statement)
        written.replace(path)
    except OSError as error:
        raise VoiceError(f"The sentence of {voice.name} cannot be kept: {error.strerror or error}.") from error
    finally:
        written.unlink(missing_ok=True)
    return path


def _place(voice: Voice, model_name: str) -> Path:
    # A fine-tuned voice speaks with its own checkpoint, whatever else is loaded.
    model = "" if voice.kind == "fine-tuned" else model_name
    return voice.folder / FOLDER / f"{hashlib.sha256(model.encode()).hexdigest()[:16]}.wav"
