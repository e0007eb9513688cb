"""What tells voices apart: a model's own speaker encoder."""

from __future__ import annotations

from typing import Protocol

import torch


class VoiceEncoder(Protocol):
    """Tells voices apart by the model's own speaker encoder."""

    @property
    def speaker_sample_rate(self) -> int:
        """In Hz, of what it listens to."""
        ...

    def embed_speaker(self, waveform: torch.Tensor) -> torch.Tensor:
        """The voice (hidden,) in mono samples (samples,). Raises PromptError where the checkpoint has no encoder."""
        ...
