"""What a user asks for: here, where no networks are imported, for commands and pages that only read options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from backend.runs.planning.speakers import SpeakerRequest
from training.job import MethodChoice


class RunRequest(BaseModel):
    """The fine-tune that a user asks for.

    Attributes:
        model: mini, a checkpoint folder or a hub id; must be on this machine unless a voice is named.
        dataset: name of one in the home, or its folder; None while it is yet to be built.
        voice: name of the new voice; None while the run is only looked at.
        more_speakers: further datasets, each of which is another speaker of the same run.
        preset: quick, standard or thorough; chosen by the amount of speech when None.
        method: full trains all weights, lora an adapter; auto trains an adapter where all weights do not fit.
        accept_synthetic: learn also from recordings that Encore made.
        options: fields of `FineTuneJob` and `LaunchOptions` that the preset shall not decide.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    dataset: str | Path | None = None
    voice: str | None = None
    more_speakers: tuple[SpeakerRequest, ...] = ()
    preset: str | None = "standard"
    method: MethodChoice = "auto"
    accept_synthetic: bool = False
    options: Mapping[str, Any] = {}
