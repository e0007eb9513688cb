"""The API over a real engine of the reference checkpoint, with a zero-shot and a fine-tuned voice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from backend.serving.api.desk import Desk
from backend.serving.api.factory import create_api
from backend.serving.engine import Engine
from backend.serving.engines import Engines
from backend.serving.local_service import LocalSpeech
from backend.serving.voice_speaker import VoiceSpeaker
from backend.store.database import Database
from backend.voices.consent import Consent
from backend.voices.registry import Voices
from tests.backend.voices.checkpoints import fine_tuned_checkpoint
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import write_voice

MODEL = "tiny"
CONSENT = Consent.give("Anna Example")
# Random weights never end by themselves, and a take's cap follows from its text.
TEXT = "Hi."


def load(folder: Path) -> Engine:
    return Engine.load(folder, precision="fp32", device="cpu", num_slots=4, cache_length=512, most_waiting=4)


@pytest.fixture(scope="package")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("api-home")


@pytest.fixture(scope="package")
def recording(tmp_path_factory) -> Path:
    return write_voice(tmp_path_factory.mktemp("api-recording") / "anna.wav", seconds=1.2)


@pytest.fixture(scope="package")
def voices(home, recording, tmp_path_factory) -> Voices:
    registry = Voices(Database(home), home)
    registry.create_zero_shot("Anna", recording, consent=CONSENT, model=MODEL)
    folder = fine_tuned_checkpoint(tmp_path_factory.mktemp("run") / "custom_voice", scale=1.5)
    registry.add_fine_tuned("Tuned", {"custom_voice": folder}, consent=CONSENT, model=MODEL, reference=recording)
    return registry


@pytest.fixture(scope="package")
def speech() -> Iterator[LocalSpeech]:
    service = LocalSpeech(VoiceSpeaker(GOLDEN_CHECKPOINT, Engines(load, most_engines=2)), most_requests=8)
    yield service
    service.close()


@pytest.fixture(scope="package")
def desk(speech, voices) -> Desk:
    return Desk(service=speech, voices=voices, model_name=MODEL)


@pytest.fixture(scope="package")
def app(desk):
    return create_api(desk)


def client_of(app, **options) -> httpx.AsyncClient:
    """A client that calls the application directly."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=options.pop("raise_app_exceptions", True))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=120, **options)
