"""The names of devices: here, where nothing heavy is imported, for settings and options."""

from __future__ import annotations

from typing import Literal

from training.model.errors import ModelError

DeviceChoice = Literal["auto", "cpu", "cuda", "mps", "xpu"]
"""As PyTorch names them. ROCm's devices are `cuda` to PyTorch, too."""

DEVICES: tuple[DeviceChoice, ...] = ("auto", "cpu", "cuda", "mps", "xpu")
DEVICE_PATTERN = r"auto|cpu|mps|(cuda|xpu)(:\d+)?"
"""What may be asked for: one of them, or one GPU of several by its number."""

DEVICE_HELP = "auto, cpu, cuda (NVIDIA, or AMD with ROCm), mps (Apple) or xpu (Intel)"


def check_device(name: str) -> None:
    """Refuse what is no device on any machine. Raises ModelError."""
    if name.partition(":")[0] not in DEVICES:
        known = "Use auto, cpu, cuda, mps or xpu."
        raise ModelError(f"There is no device {name[:40]!r}. {known}")
