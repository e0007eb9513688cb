"""The process that joins the cluster for a studio, and hands on what is spoken there.

A process of its own, because Ray ends a program whose cluster is lost. `python -m backend.serving.remote.link_process
DESCRIPTOR` reads an `Opening` from the socket of that number, answers with `Opened`, and then gets a socket for each
request. It ends when the studio does, and takes the application with it if it started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import socket
import sys
import threading
from collections.abc import AsyncGenerator
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from backend.cluster.connect import SPEAK, connect, has_gpus, has_room
from backend.errors import EncoreError
from backend.provenance.statement import VERSION
from backend.serving.deploy.factory import storage_of
from backend.serving.deploy.ray_application import build_speech, why_not_started
from backend.serving.deploy.ray_deployments import ENGINE_DEPLOYMENT, ReplicaLost, ReplicatedSpeech, job_name
from backend.serving.deploy.shared_checkpoints import SharedCheckpoints
from backend.serving.deploy.shared_model import share_model
from backend.serving.loaded_model import ModelFacts
from backend.serving.remote.errors import ClusterSpeechError
from backend.serving.remote.messages import (
    ASKED,
    HANDED_OVER,
    LENGTH_BYTES,
    Asked,
    Opened,
    Opening,
    facts_in,
    packed,
    receive,
    unpacked,
)
from backend.serving.requests import SoundEvent, SpeechFailure
from training.errors import StorageError
from training.machine import Machine

ABOUT_SECONDS = 30.0
"""In which a replica says what it is; it is loaded before it is asked."""

_POLL_SECONDS = 0.2
_logger = logging.getLogger(__name__)


class ClusterSpeech:
    """The application that speaks for one studio.

    Attributes:
        facts: what is to be known of its model.
        is_handed_over: whether another process goes on with the application, or replaces it.
    """

    def __init__(self, opening: Opening) -> None:
        """Find the application, or start it. Raises EncoreError."""
        self._address, self._settings = opening.address, opening.settings
        if has_gpus(1):
            self._settings = self._settings.model_copy(update={"num_gpus": 1.0})
        self._checkpoints = SharedCheckpoints(storage_of(self._settings.engine), self._settings.home)
        self.is_handed_over = False
        own = self._settings.name
        try:
            self._name, self.facts = self._find()
        except ClusterSpeechError:
            serve.delete(own, _blocking=False)
            raise
        if self.facts is None:
            self._start()
        elif self._name != own:
            # With another model, from before.
            serve.delete(own, _blocking=False)

    async def sound(self, asked: Asked) -> AsyncGenerator[SoundEvent]:
        """Samples as they are made."""
        try:
            order = await asyncio.to_thread(self._checkpoints.share, asked.order)
        except StorageError as error:
            yield SpeechFailure(error=error)
            return
        async with contextlib.aclosing(self._speech().sound(order, asked.recording)) as events:
            async for event in events:
                yield event

    async def prepare(self, asked: Asked) -> None:
        """Have one replica analyse a voice."""
        with contextlib.suppress(RayError, RayServeException, StorageError):
            order = await asyncio.to_thread(self._checkpoints.share, asked.order)
            await self._handle(self._name).prepare.remote(order, asked.recording)

    def end(self) -> None:
        """End the application if it was started here, unless it was handed over; what it speaks, it speaks to the end.

        At once and only once: the studio may start it again while something is still being spoken.
        """
        if self._name == self._settings.name and not self.is_handed_over:
            serve.delete(self._name, _blocking=False)
        self.is_handed_over = True

    def explain(self, event: SoundEvent) -> SoundEvent:
        """The same in the studio's words."""
        if isinstance(event, SpeechFailure) and isinstance(event.error, ReplicaLost):
            return SpeechFailure(error=ClusterSpeechError.without_replica(self._address))
        return event

    def _speech(self) -> ReplicatedSpeech:
        return ReplicatedSpeech(
            self._handle(self._name),
            self._name,
            retry_after_seconds=self._settings.retry_after_seconds,
            asker=job_name(ray.get_runtime_context().get_job_id()),
        )

    # Any: the kind of deployment, of which a handle knows nothing.
    def _handle(self, application: str) -> Any:
        return serve.get_deployment_handle(ENGINE_DEPLOYMENT, application, _check_exists=False)

    def _find(self) -> tuple[str, ModelFacts | None]:
        """An application with this model, and its facts; those of other versions are left alone where there is room."""
        other: ClusterSpeechError | None = None
        wanted = self._settings.engine.precision
        for name, application in serve.status().applications.items():
            is_running = str(application.status).endswith("RUNNING")
            if not is_running or ENGINE_DEPLOYMENT not in application.deployments:
                continue
            try:
                facts = self._about(name)
            except ClusterSpeechError as error:
                # What an older program of this studio has left is replaced.
                other = error if name != self._settings.name else other
                continue
            if facts.name == self._settings.engine.model and wanted in ("auto", facts.precision):
                return name, facts
        if other is not None and not has_room(self._settings.num_cpus, self._settings.num_gpus):
            # It may hold what there is for as long as it runs.
            raise other
        return self._settings.name, None

    def _start(self) -> None:
        try:
            settings = self._settings.model_copy(update={"engine": share_model(self._settings.engine)})
            serve.run(build_speech(settings), name=self._name, route_prefix=None)
            self.facts = self._about(self._name)
        except (RuntimeError, ValueError, RayError) as error:
            _logger.exception("the speech application did not start")
            reason = why_not_started(self._name, error)
            serve.delete(self._name, _blocking=False)
            raise ClusterSpeechError.not_started(self._address, reason) from error

    def _about(self, application: str) -> ModelFacts:
        try:
            about: dict[str, str] = self._handle(application).about.remote().result(timeout_s=ABOUT_SECONDS)
        except TimeoutError as error:
            raise ClusterSpeechError.silent(self._address, ABOUT_SECONDS) from error
        except (RayError, RayServeException) as error:
            # Versions that knew no studios have no such method.
            raise ClusterSpeechError.of_another_version(self._address, None, VERSION) from error
        return facts_in(about, self._address)


async def _answer(speech: ClusterSpeech, connection: socket.socket) -> None:
    """Serve one request until it is over, or the studio wants no more."""
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        asked = unpacked(await reader.readexactly(length))
        assert isinstance(asked, Asked)
        answering = asyncio.create_task(_speak(speech, asked, writer))
        leaving = asyncio.create_task(reader.read())
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        for task in (answering, leaving):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await task
    except (asyncio.IncompleteReadError, ConnectionError):
        # The studio has left.
        return
    finally:
        writer.close()


async def _speak(speech: ClusterSpeech, asked: Asked, writer: asyncio.StreamWriter) -> None:
    if asked.is_prepared:
        await speech.prepare(asked)
        return
    async with contextlib.aclosing(speech.sound(asked)) as events:
        async for event in events:
            writer.write(packed(speech.explain(event)))
            await writer.drain()


async def _serve(speech: ClusterSpeech, control: socket.socket) -> None:
    """Take requests until the studio has ended, and finish what is spoken then."""
    loop, running = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    while (connection := await loop.run_in_executor(None, _next_connection, control, speech)) is not None:
        task = asyncio.create_task(_answer(speech, connection))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.to_thread(speech.end)
    await asyncio.gather(*running, return_exceptions=True)


def _next_connection(control: socket.socket, speech: ClusterSpeech) -> socket.socket | None:
    said, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    speech.is_handed_over = said == HANDED_OVER
    return socket.socket(fileno=descriptors[0]) if said == ASKED else None


def _give_up(control: socket.socket, opening: Opening, is_open: threading.Event) -> None:
    """End all of it if the studio leaves before the application is there, which may never have room to start."""
    while not is_open.wait(_POLL_SECONDS):
        # Nothing is sent before that.
        if select.select([control], [], [], 0)[0]:
            serve.delete(opening.settings.name, _blocking=False)
            os._exit(1)


def main() -> None:
    """Speak for the studio at the other end of the socket whose descriptor is the only argument."""
    with socket.socket(fileno=int(sys.argv[1])) as control:
        opening = receive(control)
        assert isinstance(opening, Opening)
        machine = Machine(num_cpus=0, num_gpus=0, address=opening.address)
        try:
            with connect(SPEAK, machine):
                is_open = threading.Event()
                threading.Thread(target=_give_up, args=(control, opening, is_open), daemon=True).start()
                speech = ClusterSpeech(opening)
                is_open.set()
                try:
                    control.sendall(packed(Opened(facts=speech.facts)))
                    asyncio.run(_serve(speech, control))
                finally:
                    speech.end()
        except EncoreError as error:
            with contextlib.suppress(OSError):
                control.sendall(packed(Opened(error=error)))


if __name__ == "__main__":
    main()
