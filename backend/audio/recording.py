"""What is known about a recording once it is decoded."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


# eq=False: comparing arrays has no single truth value, and recordings are never compared by value.
@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """A decoded recording: mono, at the rate that was asked for; nothing of the original file is kept.

    `samples` is float32 of shape (samples,), full scale at +-1.0, not clipped: a float file may exceed it.
    The `source_` fields describe the file as it came in.
    """

    samples: NDArray[np.float32] = field(repr=False)
    sample_rate: int
    source_name: str
    source_sample_rate: int
    source_channels: int
    source_seconds: float
    container: str
    codec: str
    comment: str = ""
    """What the file's comment tag says; anybody may have written it."""

    @property
    def seconds(self) -> float:
        """How long the decoded samples last."""
        return len(self.samples) / self.sample_rate
