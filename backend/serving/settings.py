"""What a person can set about serving; travels to the replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, SecretStr, model_validator

from backend.serving.engine.adapter_cache import MAX_ADAPTER_BYTES
from backend.serving.speech.text_check import MAX_TEXT_LENGTH
from backend.settings import MAX_CHARACTERS
from backend.tenants.limits import Limits
from backend.voices.voice import Voice
from backend.watermark.mark import Mark
from training.model.precision import PrecisionChoice


class EngineSettings(BaseModel):
    """One process that speaks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(description="mini, a checkpoint folder, or a hub id; the same on every machine")
    precision: PrecisionChoice = "auto"
    device: str = "auto"
    num_slots: PositiveInt = 8
    """Takes spoken at once."""
    max_waiting: PositiveInt = 32
    """Takes that may wait for a slot."""
    cache_length: PositiveInt = 2048
    max_engines: PositiveInt = 3
    """Checkpoints held at once: the base model, and the fine-tuned voices used last."""
    max_adapter_bytes: PositiveInt = MAX_ADAPTER_BYTES
    """Memory of each engine for adapters, beside its model."""
    mark: Mark = Mark()
    """What says that the speech was made."""
    preload: tuple[Voice, ...] = ()
    """Voices made ready before the first request."""
    storage: str | None = None
    """The object storage of who starts it; what the environment of each machine says when None."""
    model_folder: Path | None = None
    """Where the model is for who starts it; see `shared_model`."""
    stored_model: str | None = None
    """Its name in the storage, for machines that do not see that folder."""

    @property
    def max_requests(self) -> int:
        """What one process accepts, speaking and waiting."""
        return self.num_slots + self.max_waiting


class ServeSettings(BaseModel):
    """The whole application."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: EngineSettings
    home: Path
    """Where the registry of voices is: on this machine's disk, and its voices where every replica can read them."""
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    api_keys: tuple[SecretStr, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    """Further names under which the API is reached."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses of proxies that are believed where a request comes from."""
    timeout_seconds: PositiveFloat = 120.0
    """A request ends after this long in which nothing is spoken."""
    max_characters: int = Field(default=MAX_CHARACTERS, ge=1, le=MAX_TEXT_LENGTH)
    """Of one request's text; a longer one is refused, because it would keep a slot for as long as it lasts."""
    min_replicas: PositiveInt = 1
    max_replicas: PositiveInt = 1
    num_cpus: PositiveFloat = 1.0
    """Of each replica."""
    num_gpus: float = Field(default=0.0, ge=0)
    max_takes: int = Field(default=500, ge=0)
    """That are kept of what was spoken; 0 keeps none."""
    limits: Limits = Limits()
    """Of each tenant, unless something else was said for one of them."""
    signing_cert: Path | None = None
    signing_key: Path | None = None
    """The operator's own, instead of the installation's."""
    max_queued: PositiveInt = 16
    """Requests that may wait for a replica that accepts them; more are answered with 429."""
    retry_after_seconds: PositiveFloat = 2.0
    upscale_seconds: PositiveFloat = 30.0
    """For so long more replicas have to be wanted before one is started."""
    downscale_seconds: PositiveFloat = 300.0
    """The same before one is ended: loading a model takes its time."""
    drain_seconds: PositiveFloat = 600.0
    """How long a replica that is to end may go on with what it speaks: the longest take, at the pace of who listens."""
    num_ingresses: PositiveInt = 1
    """Processes that take requests, on any machines."""
    home_resource: str | None = None
    """Ray's name for the machine of the registry's database; the one that starts when None."""
    name: str = "encore"
    route_prefix: str = "/"

    @model_validator(mode="after")
    def _replicas_in_order(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError("min_replicas must not be greater than max_replicas")
        return self

    @property
    def keys(self) -> tuple[str, ...]:
        """The API keys themselves."""
        return tuple(key.get_secret_value() for key in self.api_keys)
