"""What is known of a run: read by the page and the command line, written by its supervisor."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, field_validator

from backend.evaluation.scores import CheckpointScores, EvaluatedTake
from backend.runs.storage.states import RunState
from backend.voices.consent import Consent
from training.job import FineTuneJob

BASE = "base"
"""Name of the model a run starts from, among its checkpoints."""


class RunRecord(BaseModel):
    """One run as it stands."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    dataset: str
    """Its name; of several speakers all names, as for the voice."""
    voice: str
    model: str
    preset: str
    strategy: str
    num_workers: int
    state: RunState
    message: str
    """One plain sentence: what happens now, or why it ended."""
    created_at: float
    """Seconds since 1970, as all times here."""
    started_at: float | None = None
    ended_at: float | None = None
    heartbeat_at: float | None = None
    process_id: int | None = None
    process_started_at: float | None = None
    attempt: int = 0
    """How often it was started: 1, and 1 more for each resume."""
    step: int = 0
    num_steps: int
    best_checkpoint: str | None = None
    verdict: str = ""
    """The result of the evaluation, in plain words; empty until then."""
    export_folder: str | None = None
    consent: Consent | None
    """Who agreed to the cloning; of several speakers, all of them."""
    consents: dict[str, Consent] = {}
    """Where there are several speakers, who agreed for each, by the name of the voice."""
    job: FineTuneJob
    """The fine-tune itself."""

    @field_validator("consent", "consents", "job", mode="before")
    @classmethod
    def _read_json(cls, stored: object) -> object:
        """From the database's text."""
        return json.loads(stored) if isinstance(stored, str) else stored

    @field_validator("consents", mode="before")
    @classmethod
    def _read_nothing(cls, stored: object) -> object:
        """Of a run of an earlier version."""
        return {} if stored is None else stored

    def as_row(self) -> dict[str, object]:
        """Columns of the database."""
        consent = None if self.consent is None else self.consent.model_dump_json()
        return {
            **self.model_dump(exclude={"consent", "consents", "job"}),
            "consent": consent,
            "consents": json.dumps({voice: one.model_dump(mode="json") for voice, one in self.consents.items()}),
            "job": self.job.model_dump_json(indent=1),
        }

    @property
    def share_done(self) -> float:
        """Of the training steps."""
        return self.step / self.num_steps if self.num_steps else 0.0


class MetricRecord(BaseModel):
    """What one training step reported."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: int
    attempt: int
    measures: dict[str, float]


class CheckpointRecord(BaseModel):
    """A checkpoint, or the base model, with how it sounds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    step: int
    saved_at: float
    state: Literal["waiting", "evaluating", "evaluated", "failed"]
    problem: str = ""
    scores: CheckpointScores | None = None
    takes: tuple[EvaluatedTake, ...] = ()

    @property
    def is_base(self) -> bool:
        """Whether it is the model the run started from."""
        return self.name == BASE


class EventRecord(BaseModel):
    """Something that happened to a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    at: float
    sentence: str
