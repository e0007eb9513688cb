"""The API over a real engine of the reference checkpoint, with a zero-shot and a fine-tuned voice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.serving.api.dependencies import ApiContext
from backend.serving.api.factory import create_api
from backend.serving.deploy.local_server import LocalSpeech
from backend.serving.pool.engine_pool import EnginePool
from backend.serving.synthesizer import Synthesizer
from backend.store.home import Home
from backend.takes.takes import TakeBounds, Takes
from backend.voices.registry import Voices
from tests.backend.serving.api.served import CONSENT, MODEL, client_of, load
from tests.backend.voices.checkpoints import fine_tuned_checkpoint
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import write_voice


@pytest.fixture(scope="package")
def recording(tmp_path_factory) -> Path:
    return write_voice(tmp_path_factory.mktemp("api-recording") / "anna.wav", seconds=1.2)


@pytest.fixture(scope="package")
def voices(recording, tmp_path_factory) -> Voices:
    home = tmp_path_factory.mktemp("api-home")
    registry = Voices(Home(home))
    registry.create_zero_shot("Anna", recording, consent=CONSENT, model=MODEL)
    folder = fine_tuned_checkpoint(tmp_path_factory.mktemp("run") / "custom_voice", scale=1.5)
    registry.add_fine_tuned("Tuned", {"custom_voice": folder}, consent=CONSENT, model=MODEL, reference=recording)
    return registry


@pytest.fixture(scope="package")
def synthesizer() -> Iterator[Synthesizer]:
    synthesizer = Synthesizer(MODEL, GOLDEN_CHECKPOINT, EnginePool(load, max_engines=2))
    yield synthesizer
    synthesizer.close()


@pytest.fixture(scope="package")
def takes(voices) -> Takes:
    home = voices.folder.parent
    return Takes(Home(home), TakeBounds(max_takes=20))


@pytest.fixture(scope="package")
def context(synthesizer, voices, takes) -> ApiContext:
    return ApiContext(service=LocalSpeech(synthesizer, max_requests=8), voices=voices, model_name=MODEL, takes=takes)


@pytest.fixture(scope="package")
def app(context):
    return create_api(context)


@pytest.fixture(scope="package")
def client(app):
    return client_of(app)
