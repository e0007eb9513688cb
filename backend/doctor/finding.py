"""What one check found."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Level(StrEnum):
    """How much a finding matters."""

    GOOD = "good"
    LIMITED = "limited"
    """Encore runs, without something."""
    BROKEN = "broken"
    """Something a person will ask for cannot work."""


class Finding(BaseModel):
    """One line of the doctor's report."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    level: Level
    found: str
    """What is the case, in one sentence."""
    remedy: str = ""
    """What to do about it; empty where nothing has to be done."""
