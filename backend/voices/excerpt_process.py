"""The process in which the first sentences of a recording are looked for; `excerpt.py` starts it.

Standard input is a line of JSON and the samples, float32 at VOICE_ACTIVITY_HZ; standard output an `Excerpt`, or null.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from backend.voices.excerpt_search import search_excerpt


def main() -> None:
    """Search once."""
    job = json.loads(sys.stdin.buffer.readline())
    sound = np.frombuffer(sys.stdin.buffer.read(), np.float32)
    found = search_excerpt(sound, job["transcript"], max_seconds=job["max_seconds"])
    sys.stdout.write("null" if found is None else found.model_dump_json())


if __name__ == "__main__":
    main()
