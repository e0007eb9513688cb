"""Assembles the parts of serving, the same in one process and on a cluster."""

from __future__ import annotations

import functools
import os
from datetime import UTC, datetime

from fastapi import FastAPI

from backend.provenance.check import Checker
from backend.provenance.signing import FileSigner
from backend.serving.api.dependencies import ApiContext
from backend.serving.api.factory import create_api
from backend.serving.api.stored import HomeStores
from backend.serving.api.tracing import SpeechTracing, install_tracing, open_tracing
from backend.serving.deploy.home_calls import HomeFacts
from backend.serving.deploy.shared_model import model_here
from backend.serving.engine.engine import Engine
from backend.serving.pool.engine_pool import EnginePool
from backend.serving.protocol import SpeechService
from backend.serving.requests import SynthesisRequest
from backend.serving.settings import EngineSettings, ServeSettings
from backend.serving.synthesizer import Synthesizer
from backend.settings import Settings
from backend.store.home import Home
from backend.store.leftovers import sweep_leftovers
from backend.store.trash import Trash
from backend.takes.stored_takes import StoredTakes
from backend.takes.takes import TakeBounds, Takes
from backend.tenants.directory import TenantDirectory
from backend.tenants.tenant_store import HomeTenants
from backend.voices.publisher import VoicePublisher
from backend.voices.registry import Voices
from backend.voices.shared_voices import PublishedVoices, SharedVoices
from backend.voices.voice_index import owner_of
from backend.watermark.installation import installation_key
from backend.web.attempts import Attempts
from backend.web.hosts import AllowedHosts
from training.model.checkpoint.reading import read_config
from training.storage.objects import ObjectStore, open_store

_INSTRUCTED_TYPE = "voice_design"


def build_synthesizer(settings: EngineSettings) -> Synthesizer:
    """Load a model and the voices that are to be ready at once.

    Raises:
        EncoreError: the model or a voice cannot be loaded.
    """
    load = functools.partial(
        Engine.load,
        precision=settings.precision,
        device=settings.device,
        num_slots=settings.num_slots,
        cache_length=settings.cache_length,
        max_waiting=settings.max_waiting,
        mark=settings.mark,
        max_adapter_bytes=settings.max_adapter_bytes,
    )
    pool = EnginePool(load, max_engines=settings.max_engines)
    synthesizer = Synthesizer(settings.model, model_here(settings), pool)
    for voice in settings.preload:
        synthesizer.prompt(SynthesisRequest(voice=voice, text=""))
    return synthesizer


def build_api(
    settings: ServeSettings, service: SpeechService, stores: HomeStores, facts: HomeFacts, *, process: str = ""
) -> FastAPI:
    """The API in front of a service.

    Args:
        settings: of the application.
        service: what speaks.
        stores: what is stored, here or elsewhere.
        facts: what the home says of the application.
        process: how this process is told from others that take requests.
    """
    provider = open_tracing(os.environ)
    context = ApiContext(
        service=service,
        voices=stores.voices,
        takes=stores.takes,
        signer=stores.signer,
        checker=stores.checker,
        totals=stores.totals,
        process=process,
        model_name=settings.engine.model,
        can_instruct=facts.can_instruct,
        started_at=facts.started_at,
        timeout_seconds=settings.timeout_seconds,
        max_characters=settings.max_characters,
        tracing=SpeechTracing(provider) if provider is not None else None,
    )
    app = create_api(
        context,
        api_keys=settings.keys,
        directory=TenantDirectory(stores.tenants, settings.limits),
        hosts=AllowedHosts(settings.host, settings.allowed_hosts),
        attempts=stores.attempts,
    )
    if provider is not None:
        install_tracing(app, provider)
    return app


def open_stores(settings: ServeSettings) -> HomeStores:
    """What is stored in the home of this machine, swept, and kept in step with the object storage.

    Raises:
        EncoreError: the registry cannot be opened.
    """
    home = Home(settings.home)
    signer = FileSigner(home.folder, settings.signing_cert, settings.signing_key)
    voices = open_voices(home, storage_of(settings.engine))
    voices.sweep()
    return HomeStores(
        voices=voices,
        takes=_open_takes(home, settings, signer),
        signer=signer,
        checker=Checker(home.folder, settings.signing_cert, installation_key(home)),
        tenants=HomeTenants(home),
        attempts=Attempts(),
    )


def facts_of(settings: ServeSettings) -> HomeFacts:
    """What the home says of an application that starts now. Raises EncoreError where the model is no checkpoint."""
    config = read_config(model_here(settings.engine))
    return HomeFacts(can_instruct=config.tts_model_type == _INSTRUCTED_TYPE, started_at=datetime.now(UTC))


def storage_of(settings: EngineSettings) -> ObjectStore | None:
    """The object storage, if there is one: of who starts the application, or else of this machine.

    Raises:
        StorageError: there is no such storage.
    """
    return open_store(settings.storage or Settings.from_environment().storage)


def open_voices(home: Home, store: ObjectStore | None) -> Voices:
    """The voices that the API speaks in: of this home, which publishes them, or also those that another one has."""
    voices = Voices(home)
    if store is None:
        return voices
    VoicePublisher(voices, store, home.folder).keep_publishing()
    published = PublishedVoices(store, home.folder)
    published.keep_fresh()
    return SharedVoices(home, published)


def _open_takes(home: Home, settings: ServeSettings, signer: FileSigner) -> Takes | None:
    if not settings.max_takes:
        return None
    takes = Takes(home, TakeBounds(max_takes=settings.max_takes), signer)
    takes.sweep()
    Trash(home).sweep()
    sweep_leftovers(home.folder)
    if (store := storage_of(settings.engine)) is not None:
        StoredTakes(home, store, owner_of(home.folder)).keep_syncing()
    return takes
