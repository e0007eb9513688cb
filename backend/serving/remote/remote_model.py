"""A model that speaks on a cluster, used like one of this process."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backend.cluster.connect import SPEAK, answers, explain_no_ray
from backend.cluster.errors import ClusterError
from backend.errors import RecordingNotFound
from backend.serving.engine.statistics import EngineStatistics
from backend.serving.loaded_model import ModelFacts
from backend.serving.memory import MemoryUse
from backend.serving.remote.errors import ClusterSpeechError
from backend.serving.remote.messages import ASKED, HANDED_OVER, Asked, Opened, Opening, packed, receive
from backend.serving.requests import Reference, SoundBegun, SoundChunk, SpeechFailure, SynthesisRequest
from backend.serving.settings import ServeSettings
from backend.serving.speak_again import spoken_from
from backend.serving.speech.audio_stream import AudioStream
from backend.serving.speech.speech_source import SpeechPlan, SpeechState
from backend.serving.speech.text_check import check_text
from backend.voices.voice_encoder import VoiceEncoder
from training.model.project import PROJECT_FOLDER

MAX_SILENT_SECONDS = 120.0
"""A speech ends after this long without anything from the cluster; as long as requests to the API may take."""

MAX_START_SECONDS = 1800.0
"""In which the application comes up; a machine may have to be started for it, and a model to be downloaded."""

_POLL_SECONDS = 0.1
_END_SECONDS = 1.0
_PROCESS = "backend.serving.remote.link_process"


class RemoteModel:
    """Speaks through the Ray Serve application of a cluster; holds no weights. May be used from any thread.

    Attributes:
        name: of the model.
        facts: what is to be known of it.
        retire: ends the connection, and the application if it was started for it; also called when this is dropped.
    """

    encoder: VoiceEncoder | None = None

    def __init__(self, settings: ServeSettings, address: str, *, cancelled: Callable[[], bool] | None = None) -> None:
        """Join the cluster, and find the application there or start it.

        Raises:
            EncoreError: there is none, in one sentence; or it was `cancelled`.
        """
        self.name = settings.engine.model
        self._opening = Opening(settings=settings, address=address)
        self._link = _Link(self._opening, cancelled)
        self._joining, self._is_retired = threading.Lock(), False
        self.facts: ModelFacts = self._link.facts

    def retire(self, *, hands_over: bool = False) -> None:
        """End the connection, and the application if it was started for it; what is being spoken ends by itself.

        Args:
            hands_over: leave the application to the next model that is loaded on this cluster, which uses or replaces
                it. What is being spoken may last longer than that takes to load.
        """
        # Not with the lock: whoever joins the cluster again may hold it for minutes, and gives up now.
        self._is_retired = True
        if hands_over:
            self._link.hand_over()
        self._link.close()

    def speak(self, request: SynthesisRequest, *, cancelled: Callable[[], bool] | None = None) -> AudioStream:
        """Begin to speak; joins the cluster again where it was lost.

        Raises:
            EncoreError: the voice or the text cannot be spoken, or the cluster cannot speak now.
        """
        check_text(request.text)
        source = self._source(request, cancelled)
        # Where the files are is known here alone.
        origin = source.begun.origin.model_copy(update={"spoken_from": spoken_from(request)})
        return AudioStream(source, origin=origin)

    def prepare(self, request: SynthesisRequest) -> None:
        """Have the cluster analyse a voice. Raises EncoreError."""
        with self._ask(request, is_prepared=True) as connection, contextlib.suppress(OSError, EOFError):
            connection.settimeout(MAX_SILENT_SECONDS)
            receive(connection)

    def forget_deleted(self) -> None:
        """Do nothing: replicas look for deleted voices at every health check."""

    def statistics(self) -> dict[str, EngineStatistics]:
        """Nothing of this process."""
        return {}

    def memory(self) -> MemoryUse:
        """Nothing of this process."""
        return {}

    def _source(self, request: SynthesisRequest, cancelled: Callable[[], bool] | None) -> RemoteSource:
        try:
            return RemoteSource(self._ask(request, cancelled), self._opening.address, cancelled)
        except ClusterSpeechError:
            # Between two takes the cluster may have gone and come back: the first to ask it learns it.
            if not self._link.has_ended():
                raise
        return RemoteSource(self._ask(request, cancelled), self._opening.address, cancelled)

    def _ask(
        self, request: SynthesisRequest, cancelled: Callable[[], bool] | None = None, *, is_prepared: bool = False
    ) -> socket.socket:
        asked = Asked(order=request, recording=_recording_of(request), is_prepared=is_prepared)
        address = self._opening.address
        with self._joining:
            if self._is_retired:
                raise ClusterSpeechError.replaced()
            if not answers(address):
                # Ray itself tries for a minute. The next take joins again.
                self._link.close()
                raise ClusterError(explain_no_ray(SPEAK, address, ConnectionError()))
            if not self._link.is_alive:
                self._link.close()
                self._link = _Link(self._opening, lambda: self._is_retired or (cancelled is not None and cancelled()))
            return self._link.ask(asked)


class RemoteSource:
    """Sound that is made elsewhere and arrives over a connection.

    Attributes:
        started: when it was asked for, on the clock of `time.perf_counter`.
        begun: what was said first.
        plan: what is spoken.
        state: how far it has come.
    """

    def __init__(self, connection: socket.socket, address: str, cancelled: Callable[[], bool] | None = None) -> None:
        """Wait for what will be spoken. Raises EncoreError, and ends the connection then."""
        self._connection, self._address = connection, address
        self._stopped, self._cancelled = threading.Event(), cancelled
        self.started = time.perf_counter()
        self.state = SpeechState()
        try:
            begun = self._next()
            if begun is None:
                raise ClusterSpeechError.stopped()
            assert isinstance(begun, SoundBegun)
        except BaseException:
            self.close()
            raise
        self.begun = begun
        self.plan: SpeechPlan = begun.plan

    def chunks(self) -> Generator[NDArray[np.float32]]:
        """The sound (samples,) as it arrives. Raises EncoreError."""
        first = 0.0
        while (event := self._next()) is not None:
            assert isinstance(event, SoundChunk)
            first = first or time.perf_counter() - self.started
            self.state.add(event.added)
            # As it is heard here, not there.
            self.state.seconds_to_first_audio = first
            yield event.samples
            if not len(event.samples):
                return

    def cancel(self) -> None:
        """End it, from any thread."""
        self._stopped.set()

    def close(self) -> None:
        """Leave: the slot there is free before the next frame."""
        self._connection.close()

    def _next(self) -> object | None:
        """The next event; None once it is to be stopped. Raises EncoreError."""
        deadline = time.monotonic() + MAX_SILENT_SECONDS
        try:
            while not select.select([self._connection], [], [], _POLL_SECONDS)[0]:
                if self._is_stopped():
                    return None
                if time.monotonic() > deadline:
                    raise ClusterSpeechError.silent(self._address, MAX_SILENT_SECONDS)
            if self._is_stopped():
                return None
            event = receive(self._connection)
        except (OSError, EOFError, ValueError) as error:
            raise ClusterSpeechError.lost(self._address) from error
        if isinstance(event, SpeechFailure):
            raise event.error
        return event

    def _is_stopped(self) -> bool:
        return self._stopped.is_set() or (self._cancelled is not None and self._cancelled())


class _Link:
    """The process that has joined the cluster."""

    def __init__(self, opening: Opening, cancelled: Callable[[], bool] | None) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            paths = filter(None, (str(PROJECT_FOLDER), os.environ.get("PYTHONPATH")))
            self._process = subprocess.Popen(
                [sys.executable, "-m", _PROCESS, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=PROJECT_FOLDER,
                # Not Ctrl+C: it ends when the studio does.
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        self._control, self._address = ours, opening.address
        self.close = weakref.finalize(self, _end, ours, self._process)
        try:
            ours.sendall(packed(opening))
            self.facts = self._opened(opening.address, cancelled)
        except BaseException:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self.close.alive and self._process.poll() is None

    def hand_over(self) -> None:
        """Let it leave the application as it is when it ends."""
        with contextlib.suppress(OSError):  # it has ended
            self._control.sendall(HANDED_OVER)

    def has_ended(self) -> bool:
        """Whether it is gone, or about to go."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        return self._process.poll() is not None

    def ask(self, asked: Asked) -> socket.socket:
        """A connection of its own for one request. Raises ClusterSpeechError."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [ASKED], [theirs.fileno()])
            except OSError as error:
                ours.close()
                raise ClusterSpeechError.lost(self._address) from error
        # Not here: it waits where the message is larger than the system's buffer, until it is read.
        threading.Thread(target=_send, args=(ours, packed(asked)), daemon=True, name="ask-cluster").start()
        return ours

    def _opened(self, address: str, cancelled: Callable[[], bool] | None) -> ModelFacts:
        deadline = time.monotonic() + MAX_START_SECONDS
        while not select.select([self._control], [], [], _POLL_SECONDS)[0]:
            if cancelled is not None and cancelled():
                raise ClusterSpeechError.stopped()
            if time.monotonic() > deadline:
                raise ClusterSpeechError.silent(address, MAX_START_SECONDS)
        try:
            opened = receive(self._control)
        except (OSError, EOFError) as error:
            raise ClusterSpeechError.lost(address) from error
        assert isinstance(opened, Opened)
        if opened.error is not None or opened.facts is None:
            raise opened.error or ClusterSpeechError.lost(address)
        return opened.facts


def _send(connection: socket.socket, content: bytes) -> None:
    with contextlib.suppress(OSError):  # whoever listens learns it there
        connection.sendall(content)


def _end(control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Let the process end what it started, and wait for it nowhere."""
    control.close()
    threading.Thread(target=process.wait, daemon=True, name="cluster-link").start()


def _recording_of(request: SynthesisRequest) -> bytes | None:
    voice = request.voice
    if not (isinstance(voice, Reference) and isinstance(voice.recording, Path)):
        return None
    try:
        return voice.recording.read_bytes()
    except OSError as error:
        raise RecordingNotFound(voice.recording.name, problem="cannot be read") from error
