"""Listening beside the program: to a recording that was just given, or to a take that was just spoken.

In a process of its own. pocketsphinx holds Python's interpreter for as long as it listens, so that in this process
nothing would be spoken and no click answered meanwhile.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from backend.audio.resample import resample
from backend.transcription.errors import TranscriptionError
from backend.transcription.pieces import split_at_quiet_moments
from backend.transcription.transcriber import TRANSCRIBER_HZ
from training.model.project import PROJECT_FOLDER

MIN_CONFIDENCE = 0.5
"""Mean probability of the words from which on a listener is believed without a text to compare with. pocketsphinx gives
0.60 to 0.91 to the words of the sample voices, and 0.20 to 0.32 where the same are played backwards."""

MIN_LETTERS_PER_SECOND = 3.0
"""Slow reading has 8. In silence pocketsphinx is sure of hearing "dog"."""

_PROCESS = "backend.transcription.listening_process"
_PIECE_SECONDS = 12.0
_POLL_SECONDS = 0.1
_LOGGED_CHARACTERS = 2000

_logger = logging.getLogger(__name__)

Report = Callable[[int, int], object]
"""Called often with the clips done and their number; what it raises ends the listening at once."""


class Heard(BaseModel):
    """What was heard in one clip.

    Attributes:
        seconds: of sound.
        listener: who listened.
        confidence: mean probability of the words, 0 to 1.
        is_guess: whether the text shows signs of being made up.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str
    seconds: float
    listener: str
    confidence: float = Field(ge=0, le=1)
    is_guess: bool = False

    @property
    def is_trusted(self) -> bool:
        """Whether the listener is sure enough to be believed."""
        is_enough = len(self.text) >= MIN_LETTERS_PER_SECOND * self.seconds
        return bool(self.text) and is_enough and not self.is_guess and self.confidence >= MIN_CONFIDENCE


def hear_recording(samples: NDArray[np.float32], sample_rate: int, report: Report) -> Heard | None:
    """Write down mono samples (samples,) of any length, in a language that is not known; None if nobody can.

    Raises:
        TranscriptionError: the listener failed.
    """
    pieces = list(split_at_quiet_moments(resample(samples, sample_rate, TRANSCRIBER_HZ), _PIECE_SECONDS))
    heard = [one for one in hear_clips(pieces, None, report) if one is not None]
    if not heard:
        return None
    num_words = [len(one.text.split()) for one in heard]
    return Heard(
        text=" ".join(one.text for one in heard if one.text),
        seconds=len(samples) / sample_rate,
        listener=heard[0].listener,
        confidence=float(np.average([one.confidence for one in heard], weights=num_words)) if sum(num_words) else 0.0,
        is_guess=any(one.is_guess for one in heard),
    )


def hear_clips(
    clips: Sequence[NDArray[np.float32]], language: str | None, report: Report = lambda done, total: None
) -> list[Heard | None]:
    """What is heard in each clip (samples,) at TRANSCRIBER_HZ; None where nobody here knows the language.

    Args:
        clips: mono sound.
        language: two-letter code of all; None if it is not known.
        report: how far it is; may raise to end it.

    Raises:
        TranscriptionError: the listener failed.
    """
    job = json.dumps({"language": language, "num_samples": [len(clip) for clip in clips], "parent": os.getpid()})
    # Files, not pipes: nothing waits for anything, and lines can be looked for while there are none.
    with tempfile.TemporaryFile() as sound, tempfile.TemporaryFile() as lines, tempfile.TemporaryFile() as said:
        for clip in clips:
            sound.write(np.ascontiguousarray(clip, dtype=np.float32).tobytes())
        sound.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-m", _PROCESS, job],
            stdin=sound,
            stdout=lines,
            stderr=said,
            cwd=PROJECT_FOLDER,
            # One thread: whoever speaks meanwhile needs the others.
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        try:
            while process.poll() is None:
                report(_lines_of(lines).count(b"\n"), len(clips))
                try:
                    process.wait(_POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            process.kill()
            process.wait()
        try:
            heard = [
                None if line == b"null" else Heard.model_validate_json(line) for line in _lines_of(lines).splitlines()
            ]
        except ValidationError:
            heard = []
        if process.returncode or len(heard) != len(clips):
            said.seek(0)
            problem = said.read().decode(errors="replace")[-_LOGGED_CHARACTERS:]
            _logger.warning("the listener ended with %s: %s", process.returncode, problem)
            raise TranscriptionError("Speech recognition failed on this machine. The program's log has the details.")
    return heard


def _lines_of(file: BinaryIO) -> bytes:
    # Not by seeking, which would move where the other process writes.
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
