"""Chooses the device to compute on; a module of its own, so that it can be used without loading the networks."""

from __future__ import annotations

import torch

from training.model.errors import ModelError


def choose_device(name: str) -> torch.device:
    """The device of this name; `auto` is CUDA if available, else the CPU.

    Raises:
        ModelError: an unknown device, or CUDA is not available.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelError(f"There is no device {name!r}. Use auto, cpu or cuda.") from error
    if device.type not in ("cpu", "cuda"):
        raise ModelError(f"The device {name!r} is not supported. Use auto, cpu or cuda.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ModelError("No CUDA device was found. Use --device cpu, or check the driver with nvidia-smi.")
    return device
