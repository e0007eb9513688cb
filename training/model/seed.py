"""The seed that decides a take, or a run."""

from __future__ import annotations

import secrets
from typing import Annotated

from annotated_types import Ge, Le

from training.model.errors import PromptError

MAX_SEED = 2**63 - 1
"""The limit of the random generator."""

Seed = Annotated[int, Ge(0), Le(MAX_SEED)]


def draw_seed() -> int:
    """A random seed, short enough to be written down."""
    return secrets.randbits(31)


def parse_seed(written: str) -> int:
    """Read a seed that a user has written. Raises PromptError for anything but a whole number in range."""
    digits = written.strip()
    if not (digits.isascii() and digits.isdecimal()) or int(digits) > MAX_SEED:
        raise PromptError(f"{digits[:40]!r} is not a seed. Use a whole number from 0 to {MAX_SEED}, or leave it out.")
    return int(digits)
