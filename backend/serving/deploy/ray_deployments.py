"""What runs inside Ray Serve's replicas: those that speak, those that take requests, and the one that has the home."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import ray
from fastapi import FastAPI
from ray import serve
from ray._private.state import jobs
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RequestCancelledError
from ray.serve.handle import DeploymentHandle

from backend.errors import EncoreError
from backend.provenance.statement import VERSION
from backend.serving.api.dependencies import ApiContext
from backend.serving.at_hand import at_hand
from backend.serving.deploy.autoscaling import LATE_CHUNKS, SLOTS_IN_USE
from backend.serving.deploy.factory import build_api, build_synthesizer, facts_of, open_stores, storage_of
from backend.serving.deploy.home_calls import HomeAnswer, HomeCall, HomeFacts
from backend.serving.deploy.home_service import HomeService
from backend.serving.deploy.local_server import LocalSpeech
from backend.serving.deploy.remote_home import keep_telling, remote_stores
from backend.serving.errors import EngineBusy, EngineClosed, HomeUnavailable, TakeFailed
from backend.serving.protocol import ServiceState
from backend.serving.requests import AudioChunk, SoundBegun, SoundEvent, SpeechFailure, SynthesisEvent, SynthesisRequest
from backend.serving.settings import EngineSettings, ServeSettings
from backend.serving.voice_files import VoiceFiles, VoiceFilesMissing, require_files
from backend.voices.errors import VoiceError
from backend.voices.published_index import PublishedIndex
from backend.voices.registry import VOICES_FOLDER
from backend.voices.voice import Voice
from training.errors import StorageError
from training.stored_inputs import cache_folder

ENGINE_DEPLOYMENT, API_DEPLOYMENT, HOME_DEPLOYMENT = "SpeechEngine", "Api", "Home"

MAX_ATTEMPTS = 3
"""A dead replica is noticed by the request that is sent to it; the next attempt goes to another."""

MAX_ANNOUNCED = 64
"""Fine-tuned voices that a replica says it holds, the last ones it spoke.

Adapters are small, so that many stay in memory; a whole model that had to go meanwhile is loaded again there, as it
would be in another replica."""

HOME_SECONDS, SLOW_HOME_SECONDS, FIRST_HOME_SECONDS = 10.0, 120.0, 60.0
"""How long the home is waited for: with a quick question, with a recording to read, and where it is only starting."""

HOME_PAUSE_SECONDS = 3.0
"""After a question that was not answered."""

_logger = logging.getLogger(__name__)
_STATISTICS_SECONDS = 2.0
_RUNNING = "RUNNING"
_SERVE_NAMESPACE = "serve"
_JOB = "job:"
Event = TypeVar("Event")


class SpeechEngine:
    """One replica: a base model and a few fine-tuned voices."""

    def __init__(self, settings: EngineSettings) -> None:
        """Load the model. Serve tries again a few times, and reports the error if that does not help."""
        self._files = VoiceFiles(storage_of(settings), cache_folder() / "voices")
        self._synthesizer = build_synthesizer(settings.model_copy(update={"preload": self._at_hand(settings.preload)}))
        self._speech = LocalSpeech(self._synthesizer, settings.max_requests)
        self._num_by_ingress: Counter[str] = Counter()
        self._lost_ingresses: set[str] = set()
        self._num_late = 0

    def _at_hand(self, voices: Iterable[Voice]) -> tuple[Voice, ...]:
        """Those whose files are on this machine or in the storage; the others come with their first request."""
        found = (self._files.here(SynthesisRequest(voice=voice, text="")).voice for voice in voices)
        return tuple(voice for voice in found if isinstance(voice, Voice) and voice.folder.is_dir())

    async def speak(self, order: SynthesisRequest, ingress: str) -> AsyncGenerator[SynthesisEvent]:
        """Audio as it is made; closing the iterator frees the slot before the next frame.

        Args:
            order: what to speak.
            ingress: name of the actor that asks. Ray closes no iterator of one that is lost.
        """
        try:
            order = await self._files.soon(order)
            require_files(order)
        except (StorageError, VoiceFilesMissing) as error:
            yield SpeechFailure(error=error)
            return
        async with contextlib.aclosing(self._while_there(ingress, order, self._speech.speak(order))) as items:
            async for item in items:
                yield item

    async def sound(self, order: SynthesisRequest, asker: str, recording: bytes | None) -> AsyncGenerator[SoundEvent]:
        """Samples as they are made, for a studio elsewhere; closing the iterator frees the slot.

        Args:
            order: what to speak.
            asker: who asks, as `job_name` has it.
            recording: what is cloned, where it came along; it is kept for as long as it is spoken.
        """
        try:
            order = await self._files.soon(order)
            with at_hand(order, recording) as found:
                async with contextlib.aclosing(self._while_there(asker, order, self._speech.sound(found))) as items:
                    async for item in items:
                        yield item
        except (VoiceError, StorageError) as error:
            yield SpeechFailure(error=error)

    async def prepare(self, order: SynthesisRequest, recording: bytes | None) -> None:
        """Load and analyse what a voice needs; what cannot be is said when it is asked to speak."""
        with contextlib.suppress(EncoreError):
            order = await self._files.soon(order)
            with at_hand(order, recording) as found:
                await asyncio.to_thread(self._synthesizer.prepare, found)

    async def about(self) -> dict[str, str]:
        """Which Encore this is, and what it has loaded: text, which every version can read."""
        return {"version": VERSION, "facts": self._synthesizer.facts.model_dump_json()}

    async def _while_there(
        self, ingress: str, order: SynthesisRequest, events: AsyncGenerator[Event]
    ) -> AsyncGenerator[Event]:
        if isinstance(order.voice, Voice) and order.voice.kind == "fine-tuned":
            await self._announce(order.voice.id)
        self._num_by_ingress[ingress] += 1
        try:
            async with contextlib.aclosing(events):
                async for item in events:
                    if ingress in self._lost_ingresses:
                        return
                    yield item
        finally:
            self._num_by_ingress[ingress] -= 1

    @serve.multiplexed(max_num_models_per_replica=MAX_ANNOUNCED)  # type: ignore[untyped-decorator]
    async def _announce(self, voice_id: str) -> str:
        """Tell Serve that this replica holds a voice, so that the voice's next requests come here too.

        Loading and unloading is left to `EnginePool` and `AdapterCache`, which never unload what is speaking.
        """
        return voice_id

    async def state(self) -> ServiceState:
        """Its state, with the numbers of each engine."""
        return await self._speech.state(with_engines=True)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What `SlotPolicy` looks at; asked by Serve every few seconds."""
        engines = self._synthesizer.statistics().values()
        num_late = sum(engine.num_underruns_total for engine in engines)
        # Those of an engine that was unloaded are gone from the sum.
        since = max(0, num_late - self._num_late)
        self._num_late = num_late
        return {SLOTS_IN_USE: sum(engine.num_active + engine.num_waiting for engine in engines), LATE_CHUNKS: since}

    async def check_health(self) -> None:
        """Asked by Serve every few seconds; a replica that raises is replaced."""
        # The registry is elsewhere; a voice deleted there is noticed here by its missing folder.
        await asyncio.to_thread(self._synthesizer.forget_deleted)
        asked = {name for name, number in self._num_by_ingress.items() if number}
        self._lost_ingresses = await asyncio.to_thread(_lost_of, asked)
        if not self._synthesizer.is_healthy:
            raise RuntimeError("the speech engine does not run any more")

    def __del__(self) -> None:
        # Missing when the model could not be loaded.
        if (synthesizer := getattr(self, "_synthesizer", None)) is not None:
            synthesizer.close()


def job_name(job: str) -> str:
    """How a program that has joined the cluster is called where it asks for speech."""
    return f"{_JOB}{job}"


def _lost_of(askers: Iterable[str]) -> set[str]:
    """Those actors and programs that have ended."""
    lost = set()
    ended = {job_name(job["JobID"]) for job in jobs() if job["IsDead"]}  # type: ignore[no-untyped-call]
    for name in askers:
        if name.startswith(_JOB):
            lost |= {name} & ended
            continue
        try:
            ray.get_actor(name, namespace=_SERVE_NAMESPACE)
        except ValueError:
            lost.add(name)
    return lost


class ReplicatedSpeech:
    """Passes requests on to replicas."""

    def __init__(
        self, handle: DeploymentHandle[Any], name: str, *, retry_after_seconds: float, asker: str | None = None
    ) -> None:
        """Ask the replicas behind a handle.

        Args:
            handle: of `SpeechEngine`.
            name: of its application.
            retry_after_seconds: when those may come back who find no place.
            asker: who asks: a program by its `job_name`; this actor when None.
        """
        self._handle, self._application, self._retry_after_seconds = handle, name, retry_after_seconds
        self._name = asker or str(ray.get_runtime_context().get_actor_name())

    async def speak(self, order: SynthesisRequest) -> AsyncGenerator[SynthesisEvent]:
        """Audio as it is made. Until there is any, a replica that dies is replaced by another."""
        async with contextlib.aclosing(self._speak("speak", order, (order, self._name))) as items:
            async for item in items:
                yield item

    async def sound(self, order: SynthesisRequest, recording: bytes | None) -> AsyncGenerator[SoundEvent]:
        """The same as samples, with a recording that comes along."""
        async with contextlib.aclosing(self._speak("sound", order, (order, self._name, recording))) as items:
            async for item in items:
                yield item

    # Any: what a method of a replica takes and hands out, which Serve's handles do not know.
    async def _speak(self, method: str, order: SynthesisRequest, arguments: tuple[Any, ...]) -> AsyncGenerator[Any]:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            has_audio = False
            items = self._ask(method, order, arguments)
            async with contextlib.aclosing(items):
                async for item in items:
                    is_lost = isinstance(item, SpeechFailure) and isinstance(item.error, ReplicaLost)
                    if is_lost and not has_audio and attempt < MAX_ATTEMPTS:
                        break
                    has_audio = has_audio or isinstance(item, (AudioChunk, SoundBegun))
                    yield item
                else:
                    return

    async def forget_deleted(self) -> None:
        """Do nothing: replicas look for deleted voices at every health check."""

    async def state(self, *, with_engines: bool = False) -> ServiceState:
        """How many replicas run, and with `with_engines` the numbers of one of them."""
        num_replicas = await asyncio.to_thread(self._count_replicas)
        state = ServiceState(is_healthy=num_replicas > 0, num_replicas=num_replicas)
        if num_replicas and with_engines:
            asking = asyncio.create_task(self._ask_state())
            try:
                # Not waited for once it is cancelled: a request to an engine that hangs takes its time to give up.
                await asyncio.wait({asking}, timeout=_STATISTICS_SECONDS)
            finally:
                asking.cancel()
            if asking.done() and (asked := asking.result()) is not None:
                state = replace(state, engines=asked.engines, memory=asked.memory)
        return state

    async def _ask_state(self) -> ServiceState | None:
        with contextlib.suppress(RayError, BackPressureError, DeploymentUnavailableError):
            state: ServiceState = await self._handle.state.remote()
            return state
        return None

    async def _ask(self, method: str, order: SynthesisRequest, arguments: tuple[Any, ...]) -> AsyncGenerator[Any]:
        voice = order.voice
        voice_id = voice.id if isinstance(voice, Voice) and voice.kind == "fine-tuned" else ""
        handle = self._handle.options(stream=True, multiplexed_model_id=voice_id)
        # Any: which of two kinds of response comes back is decided by `stream`, which its type does not know.
        response: Any = getattr(handle, method).remote(*arguments)
        is_over = False
        try:
            async for item in response:
                yield item
            is_over = True
        except BackPressureError:
            is_over = True
            busy = "All replicas are busy and the queue is full."
            yield SpeechFailure(error=EngineBusy(busy, retry_after_seconds=self._retry_after_seconds))
        except RayTaskError as error:
            is_over = True
            _logger.error("a replica failed while speaking", exc_info=error)
            yield SpeechFailure(error=TakeFailed())
        except (RayError, DeploymentUnavailableError, RequestCancelledError) as error:
            is_over = True
            yield SpeechFailure(error=ReplicaLost(f"The process that spoke has stopped ({type(error).__name__})."))
        finally:
            # The client is gone. A request that has failed raises its error once more when it is cancelled.
            if not is_over:
                with contextlib.suppress(RayError, BackPressureError, DeploymentUnavailableError):
                    response.cancel()

    def _count_replicas(self) -> int:
        application = serve.status().applications.get(self._application)
        deployment = application.deployments.get(ENGINE_DEPLOYMENT) if application else None
        states = deployment.replica_states if deployment else {}
        # Serve reports its states as members of an enumeration or as their names.
        return sum(number for state, number in states.items() if str(state).endswith(_RUNNING))


class ReplicaLost(EngineClosed):
    """The process that spoke is gone, or none is there."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message} Ask again.")


class HomeReplica:
    """Answers for what is stored; there is one, on the machine of the database."""

    def __init__(self, settings: ServeSettings) -> None:
        """Open the home. Serve tries again a few times, and reports the error if that does not help."""
        self._service = HomeService(open_stores(settings), facts_of(settings))

    async def ask(self, call: HomeCall) -> HomeAnswer:
        """See `HomeService.ask`."""
        return await self._service.ask(call)

    async def facts(self) -> HomeFacts:
        """What an ingress is told once."""
        return self._service.facts


class HomeHandle:
    """Asks the home; where it does not answer, it is left alone for a moment, so that not everybody waits."""

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        self._handle, self._ask_at = handle, 0.0

    def send(self, call: HomeCall) -> HomeAnswer:
        """Ask and wait, in a thread of the caller's. Raises HomeUnavailable."""
        if time.monotonic() < self._ask_at:
            raise HomeUnavailable
        response = self._handle.ask.remote(call)
        try:
            answer: HomeAnswer = response.result(timeout_s=SLOW_HOME_SECONDS if call.is_slow else HOME_SECONDS)
        except TimeoutError as error:
            self._ask_at = time.monotonic() + HOME_PAUSE_SECONDS
            with contextlib.suppress(RayError, BackPressureError, DeploymentUnavailableError):
                response.cancel()  # type: ignore[no-untyped-call]
            raise HomeUnavailable from error
        except RayTaskError:
            raise
        except (RayError, BackPressureError, DeploymentUnavailableError, RequestCancelledError) as error:
            raise HomeUnavailable from error
        return answer

    async def facts(self) -> HomeFacts:
        """What the home says of the application. Raises HomeUnavailable."""
        try:
            async with asyncio.timeout(FIRST_HOME_SECONDS):
                facts: HomeFacts = await self._handle.facts.remote()
        except (TimeoutError, RayError, BackPressureError, DeploymentUnavailableError) as error:
            raise HomeUnavailable from error
        return facts


class ApiIngress:
    """Takes requests, on any machine: it has no files, and asks the home for what is stored."""

    def __init__(self, settings: ServeSettings, engine: DeploymentHandle[Any], home: DeploymentHandle[Any]) -> None:
        self._settings, self._engine, self._home = settings, engine, HomeHandle(home)

    async def __serve_build_asgi_app__(self) -> FastAPI:
        """Called by Serve inside the replica."""
        settings, process = self._settings, str(ray.get_runtime_context().get_actor_name())
        speech = ReplicatedSpeech(self._engine, settings.name, retry_after_seconds=settings.retry_after_seconds)
        store = storage_of(settings.engine)
        index = PublishedIndex(store, settings.home / VOICES_FOLDER) if store is not None else None
        try:
            facts = await self._home.facts()
        except HomeUnavailable:
            if index is None:
                raise
            _logger.warning("the home does not answer; until it does, only what is in the storage is spoken")
            facts = HomeFacts(can_instruct=False, started_at=datetime.now(UTC))
        stores = remote_stores(self._home.send, keeps_takes=settings.max_takes > 0, index=index)
        app = build_api(settings, speech, stores, facts, process=process)
        context: ApiContext = app.state.context
        assert stores.totals is not None
        keep_telling(stores.totals, process, context.metrics)
        return app
