"""The first sentences of a recording, where a model cannot continue all of it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, PositiveFloat, ValidationError

from backend.audio.resample import resample
from backend.audio.voice_activity import VOICE_ACTIVITY_HZ
from training.model.project import PROJECT_FOLDER

_PROCESS = "backend.voices.excerpt_process"
_LOGGED_CHARACTERS = 2000
_MAX_SEARCH_SECONDS = 60.0

_logger = logging.getLogger(__name__)


class Excerpt(BaseModel):
    """The beginning of a recording: how long it is, and the beginning of the transcript that is said in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seconds: PositiveFloat
    transcript: str


def find_excerpt(
    samples: NDArray[np.float32], sample_rate: int, transcript: str, *, max_seconds: float
) -> Excerpt | None:
    """The beginning of a mono recording (samples,) that lasts `max_seconds` at most: long, and ending with a sentence.

    None if there is no pause before that, or if it is not sure what is said until there: because the transcript is of
    something else, for example, or not English. Takes two or three seconds, several times that where nothing fits, in a
    process of its own: what lays the transcript over the sound holds Python's interpreter, and others are speaking.
    """
    sound = np.ascontiguousarray(resample(samples, sample_rate, VOICE_ACTIVITY_HZ), np.float32)
    job = json.dumps({"transcript": transcript, "max_seconds": max_seconds}).encode()
    try:
        found = subprocess.run(
            [sys.executable, "-m", _PROCESS],
            input=b"%s\n%s" % (job, sound.tobytes()),
            capture_output=True,
            cwd=PROJECT_FOLDER,
            # One thread: whoever speaks meanwhile needs the others.
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=False,
            timeout=_MAX_SEARCH_SECONDS,
        )
    except subprocess.TimeoutExpired:
        _logger.warning("the search in a long recording was ended after %.0f s", _MAX_SEARCH_SECONDS)
        return None
    try:
        if found.returncode == 0:
            return None if found.stdout.strip() == b"null" else Excerpt.model_validate_json(found.stdout)
    except ValidationError:
        _logger.warning("what was found in a long recording cannot be read: %r", found.stdout[:_LOGGED_CHARACTERS])
        return None
    problem = found.stderr.decode(errors="replace")[-_LOGGED_CHARACTERS:]
    _logger.warning("the search in a long recording ended with %s: %s", found.returncode, problem)
    return None
