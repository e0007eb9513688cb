"""The process in which clips are listened to beside the program: it gives way to speech that is being made.

Started by `listening.py` as `python -m backend.transcription.listening_process JOB`, with the clips' samples as
standard input. What is heard leaves clip by clip, a line of JSON each.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from backend.transcription.errors import LanguageUnsupported
from backend.transcription.hallucination import find_hallucination_signs
from backend.transcription.select_transcriber import load_stored_transcribers
from backend.transcription.transcriber import TRANSCRIBER_HZ, Transcriber

_NICENESS = 10


def main() -> None:
    """Listen to standard input as the only argument says."""
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    job = json.loads(sys.argv[1])
    # The preferred one that knows the language.
    transcribers = load_stored_transcribers()
    for clip in _clips(sys.stdin.buffer, job["num_samples"]):
        if os.getppid() != job["parent"]:
            # The program has ended, and nobody reads what is heard.
            return
        sys.stdout.write(f"{json.dumps(_hear(transcribers, clip, job['language']))}\n")
        sys.stdout.flush()


def _clips(samples: BinaryIO, lengths: list[int]) -> Iterator[NDArray[np.float32]]:
    for length in lengths:
        yield np.frombuffer(samples.read(4 * length), dtype=np.float32)


def _hear(
    transcribers: tuple[Transcriber, ...], clip: NDArray[np.float32], language: str | None
) -> dict[str, str | float | bool] | None:
    for transcriber in transcribers:
        try:
            heard = transcriber.transcribe(clip, language)
        except LanguageUnsupported:
            continue
        return {
            "text": heard.text,
            "seconds": len(clip) / TRANSCRIBER_HZ,
            "listener": transcriber.name,
            "confidence": heard.confidence,
            "is_guess": bool(find_hallucination_signs(heard)),
        }
    return None


if __name__ == "__main__":
    main()
