"""What a request from elsewhere speaks with, in the files of this machine: what came along, and what is shared."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from backend.serving.requests import Reference, RunCheckpoint, SynthesisRequest
from backend.voices.errors import VoiceError
from backend.voices.voice import Voice


@contextlib.contextmanager
def at_hand(order: SynthesisRequest, recording: bytes | None) -> Iterator[SynthesisRequest]:
    """The request with the recording that came along as a file of this machine, for a block.

    Raises:
        VoiceError: what the voice needs did not come along, and is not to be seen from here.
    """
    voice = order.voice
    with contextlib.ExitStack() as until_end:
        if recording is not None and isinstance(voice, Reference) and isinstance(voice.recording, Path):
            folder = Path(until_end.enter_context(tempfile.TemporaryDirectory(prefix="encore-reference-")))
            path = folder / f"reference{voice.recording.suffix}"
            path.write_bytes(recording)
            voice = voice.model_copy(update={"recording": path})
            order = order.model_copy(update={"voice": voice})
        for path in _needed(voice):
            if not path.exists():
                raise VoiceError(
                    f"The cluster cannot see the files of {voice.name}: {path} is not there. Keep ENCORE_HOME where "
                    "all machines see it, or load the model on this computer."
                )
        yield order


def _needed(voice: Voice | Reference | RunCheckpoint) -> list[Path]:
    if isinstance(voice, Voice):
        return [voice.folder]
    return [voice.checkpoint] if voice.checkpoint is not None else []
