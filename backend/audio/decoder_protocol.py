"""What crosses the border between the app and a decoder process, both ways.

Standard library only: the decoder starts anew for each recording, and pydantic would double the time it takes
to start. The app checks what comes back in `decoding.py`.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Literal

from backend.audio.limits import DecodingLimits

RefusalReason = Literal[
    "unknown_container",
    "unreadable",
    "no_audio_track",
    "codec",
    "channels",
    "sample_rate",
    "too_long",
    "undecodable",
    "ends_early",
    "not_finite",
    "too_loud",
    "no_memory",
    "no_space",
]


SampleFormat = Literal["float32", "pcm16"]
BYTES_PER_SAMPLE: dict[SampleFormat, int] = {"float32": 4, "pcm16": 2}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingJob:
    """What the app asks for; travels as JSON on the command line."""

    sample_rate: int
    limits: DecodingLimits
    # Hours of sound are written as 16-bit integers, which take half the room.
    sample_format: SampleFormat = "float32"

    def to_json(self) -> str:
        """The command-line form."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> DecodingJob:
        """Read the command-line form."""
        raw = json.loads(text)
        return cls(**{**raw, "limits": DecodingLimits(**raw["limits"])})


class Refusal(Exception):
    """The recording is not accepted; raised in the decoder, put into words by the app."""

    def __init__(self, reason: RefusalReason, **facts: str | float) -> None:
        super().__init__(reason)
        self.reason = reason
        self.facts = facts
