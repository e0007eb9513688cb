"""What the weights are computed in: named here, where nothing heavy is imported, for settings and options."""

from __future__ import annotations

from typing import Literal

Precision = Literal["fp32", "bf16", "int8"]
PrecisionChoice = Literal["auto", "fp32", "bf16", "int8"]
