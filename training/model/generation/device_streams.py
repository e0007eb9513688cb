"""Streams of kernels on a GPU: the talker's and the codec's run beside each other, and neither waits for the other."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


class DeviceStream:
    """A stream of its own on CUDA; elsewhere work is done in order, and there is nothing to choose."""

    def __init__(self, device: torch.device) -> None:
        # What was launched before, such as loading the weights, is on the default stream.
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self._stream is not None:
            torch.cuda.synchronize(device)

    def chosen(self) -> AbstractContextManager[object]:
        """Launch on it, and let copies to the CPU wait for nothing else."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)
