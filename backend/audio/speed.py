"""How fast takes can be spoken."""

from __future__ import annotations

from backend.audio.errors import AudioFormatError

SLOWEST, FASTEST = 0.25, 4.0


def check_speed(speed: float) -> float:
    """Refuse a speed that is out of range or not a number. Raises AudioFormatError."""
    # Written so that NaN fails too.
    if not SLOWEST <= speed <= FASTEST:
        raise AudioFormatError(f"The speed {speed} is not possible. Choose one from {SLOWEST:g} to {FASTEST:g}.")
    return speed
