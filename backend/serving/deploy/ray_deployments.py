"""What runs inside Ray Serve's replicas: those that speak, and the one that takes requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from typing import Any

import ray
from fastapi import FastAPI
from ray import serve
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RequestCancelledError
from ray.serve.handle import DeploymentHandle

from backend.serving.deploy.factory import build_api, build_synthesizer
from backend.serving.deploy.local_server import LocalSpeech
from backend.serving.errors import EngineBusy, EngineClosed, TakeFailed
from backend.serving.protocol import ServiceState
from backend.serving.requests import AudioChunk, SpeechFailure, SynthesisEvent, SynthesisRequest
from backend.serving.settings import EngineSettings, ServeSettings
from backend.voices.voice import Voice

ENGINE_DEPLOYMENT, API_DEPLOYMENT = "SpeechEngine", "Api"

MAX_ATTEMPTS = 3
"""A dead replica is noticed by the request that is sent to it; the next attempt goes to another."""

MAX_ANNOUNCED = 64
"""Fine-tuned voices that a replica says it holds, the last ones it spoke.

Adapters are small, so that many stay in memory; a whole model that had to go meanwhile is loaded again there, as it
would be in another replica."""

_logger = logging.getLogger(__name__)
_STATISTICS_SECONDS = 2.0
_RUNNING = "RUNNING"
_SERVE_NAMESPACE = "serve"


class SpeechEngine:
    """One replica: a base model and a few fine-tuned voices."""

    def __init__(self, settings: EngineSettings) -> None:
        """Load the model. Serve tries again a few times, and reports the error if that does not help."""
        self._synthesizer = build_synthesizer(settings)
        self._speech = LocalSpeech(self._synthesizer, settings.max_requests)
        self._num_by_ingress: Counter[str] = Counter()
        self._lost_ingresses: set[str] = set()

    async def speak(self, order: SynthesisRequest, ingress: str) -> AsyncGenerator[SynthesisEvent]:
        """Audio as it is made; closing the iterator frees the slot before the next frame.

        Args:
            order: what to speak.
            ingress: name of the actor that asks. Ray closes no iterator of one that is lost.
        """
        if isinstance(order.voice, Voice) and order.voice.kind == "fine-tuned":
            await self._announce(order.voice.id)
        self._num_by_ingress[ingress] += 1
        try:
            async with contextlib.aclosing(self._speech.speak(order)) as items:
                async for item in items:
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


def _lost_of(actors: Iterable[str]) -> set[str]:
    """Those that have ended."""
    lost = set()
    for name in actors:
        try:
            ray.get_actor(name, namespace=_SERVE_NAMESPACE)
        except ValueError:
            lost.add(name)
    return lost


class ReplicatedSpeech:
    """Passes requests on to replicas."""

    def __init__(self, handle: DeploymentHandle[Any], settings: ServeSettings) -> None:
        self._handle, self._settings = handle, settings
        self._name = str(ray.get_runtime_context().get_actor_name())

    async def speak(self, order: SynthesisRequest) -> AsyncGenerator[SynthesisEvent]:
        """Audio as it is made. Until there is any, a replica that dies is replaced by another."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            has_audio = False
            items = self._ask(order)
            async with contextlib.aclosing(items):
                async for item in items:
                    is_lost = isinstance(item, SpeechFailure) and isinstance(item.error, ReplicaLost)
                    if is_lost and not has_audio and attempt < MAX_ATTEMPTS:
                        break
                    has_audio = has_audio or isinstance(item, AudioChunk)
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

    async def _ask(self, order: SynthesisRequest) -> AsyncGenerator[SynthesisEvent]:
        voice = order.voice
        voice_id = voice.id if isinstance(voice, Voice) and voice.kind == "fine-tuned" else ""
        # Any: which of two kinds of response comes back is decided by `stream`, which its type does not know.
        response: Any = self._handle.options(stream=True, multiplexed_model_id=voice_id).speak.remote(order, self._name)
        is_over = False
        try:
            async for item in response:
                yield item
            is_over = True
        except BackPressureError:
            is_over = True
            busy = "All replicas are busy and the queue is full."
            yield SpeechFailure(error=EngineBusy(busy, retry_after_seconds=self._settings.retry_after_seconds))
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
        application = serve.status().applications.get(self._settings.name)
        deployment = application.deployments.get(ENGINE_DEPLOYMENT) if application else None
        states = deployment.replica_states if deployment else {}
        # Serve reports its states as members of an enumeration or as their names.
        return sum(number for state, number in states.items() if str(state).endswith(_RUNNING))


class ReplicaLost(EngineClosed):
    """The process that spoke is gone, or none is there."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message} Ask again.")


class ApiIngress:
    """Takes requests; lives on the machine of the registry."""

    def __init__(self, settings: ServeSettings, engine: DeploymentHandle[Any]) -> None:
        self._settings, self._engine = settings, engine

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Called by Serve inside the replica."""
        return build_api(self._settings, ReplicatedSpeech(self._engine, self._settings))
