"""One part of a take spoken again, in the same voice and way, and put in the place of the part before."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backend.audio.pcm16 import from_pcm16, to_pcm16
from backend.serving.requests import Reference, SynthesisRequest
from backend.serving.speech.crossfade import CROSSFADE_SECONDS, splice
from backend.takes.errors import PartNotRepeatable
from backend.takes.parts import TakePart
from backend.takes.take import SpokenFrom, Take, TakeFacts
from backend.voices.registry import Voices
from backend.voices.voice import Voice
from training.model.generation.finish_reason import FinishReason


def spoken_from(request: SynthesisRequest) -> SpokenFrom | None:
    """What speaks a part of this request again later; None where it came along with the request."""
    voice = request.voice
    if isinstance(voice, Voice):
        return SpokenFrom(voice_id=voice.id, mode=request.mode, instruction=request.instruction, style=request.style)
    if isinstance(voice, Reference) and isinstance(voice.recording, Path) and voice.checkpoint is None:
        return SpokenFrom(
            recording=voice.recording.absolute(),
            recording_sha256=_hash_of(voice.recording) or "",
            transcript=voice.transcript,
            instruction=request.instruction,
        )
    return None


def request_again(take: Take, number: int, voices: Voices) -> SynthesisRequest:
    """A request for one part of a take, counted from 1.

    Raises:
        PartNotRepeatable: there is no such part, or the voice it was spoken from is not there any more.
    """
    origin, part = take.spoken_from, _part(take, number)
    if origin is None or take.audio_format != "wav":
        raise PartNotRepeatable("What this take was spoken from was not kept. Speak the text again.")
    voice: Voice | Reference
    if origin.voice_id:
        voice = voices.get(origin.voice_id)
    else:
        if origin.recording is None or _hash_of(origin.recording) != origin.recording_sha256:
            raise PartNotRepeatable(
                f"The recording of {take.voice} is not there any more. Add it again, and speak the text again."
            )
        voice = Reference(
            name=take.voice, recording=origin.recording, transcript=origin.transcript, consent=take.consent
        )
    return SynthesisRequest(
        voice=voice,
        mode=origin.mode,
        text=part.text,
        language=take.language,
        instruction=origin.instruction,
        style=origin.style,
        speed=take.speed,
        sampling=take.sampling,
        made_by=take.made_by,
        mark=take.mark,
    )


def check_same_checkpoint(take: Take, facts: TakeFacts) -> None:
    """Refuse a part that another checkpoint would speak. Raises PartNotRepeatable."""
    before, now = take.statement, facts.statement
    if before is not None and now is not None and before.checkpoint != now.checkpoint:
        raise PartNotRepeatable(f"This take was spoken by {take.model_name}. Load that model to speak a part again.")


def put_in_place(
    samples: NDArray[np.int16], sample_rate: int, take: Take, number: int, spoken: NDArray[np.float32], new: TakeFacts
) -> tuple[NDArray[np.int16], dict[str, object]]:
    """A take (samples,) with another sound for one part, counted from 1, and what changes in its facts.

    All other parts stay bit by bit what they were, but for the ten milliseconds in which two of them meet.
    """
    part, index = _part(take, number), number - 1
    overlap = round(CROSSFADE_SECONDS * sample_rate)
    start = min(round(part.start_seconds / take.speed * sample_rate), len(samples))
    end = len(samples)
    if number < len(take.parts):
        end = min(round(take.parts[number].start_seconds / take.speed * sample_rate) + overlap, end)
    heard = splice(from_pcm16(samples), start, end, spoken, sample_rate)
    whole = np.concatenate((samples[:start], to_pcm16(heard[start : start + len(spoken)]), samples[end:]))
    again = new.parts[0].model_copy(
        update={
            "text": part.text,
            "start_seconds": part.start_seconds,
            "seconds": new.seconds,
            "expected_seconds": part.expected_seconds,
            "finish_reason": new.finish_reason,
        }
    )
    moved = (len(whole) - len(samples)) * take.speed / sample_rate
    later = [each.model_copy(update={"start_seconds": each.start_seconds + moved}) for each in take.parts[number:]]
    parts = (*take.parts[:index], again, *later)
    reasons = [each.finish_reason for each in parts]
    worst = next((one for one in (FinishReason.CANCELLED, FinishReason.LENGTH) if one in reasons), FinishReason.EOS)
    changes: dict[str, object] = {
        "parts": parts,
        "seeds": tuple(each.seed for each in parts),
        "seconds": take.seconds + moved,
        "finish_reason": worst,
    }
    return whole, changes


def _part(take: Take, number: int) -> TakePart:
    if not 1 <= number <= len(take.parts):
        raise PartNotRepeatable(f"Take {take.number} has no part {number}.")
    return take.parts[number - 1]


def _hash_of(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
