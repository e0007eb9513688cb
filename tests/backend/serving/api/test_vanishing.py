"""Listeners who leave and crowds that come: slots are freed, and nobody is kept waiting in the dark."""

from __future__ import annotations

import asyncio
import json

import pytest

from backend.provenance.statement import SpeechStatement
from backend.serving.api.dependencies import ApiContext
from backend.serving.api.factory import create_api
from backend.serving.api.streaming import PROVENANCE_HEADER
from backend.serving.deploy.local_server import LocalSpeech
from backend.serving.requests import (
    AudioChunk,
    SpeechBegun,
    SpeechFailure,
    SpeechGoesOn,
    SpeechSummary,
    SynthesisRequest,
)
from tests.backend.serving.api.served import MODEL, ask, wait_until

LONG = "One two three four five six seven eight nine ten. " * 3


class Listener:
    """An ASGI client that hears a number of chunks and then leaves, or stays and stops reading."""

    def __init__(self, body, *, path="/v1/audio/speech", num_chunks=None, hold=None):
        self._body, self._path, self._num_chunks, self._hold = json.dumps(body).encode(), path, num_chunks, hold
        self._was_sent = False
        self._left = asyncio.Event()
        self.messages = []
        self.started = asyncio.Event()

    async def receive(self):
        if not self._was_sent:
            self._was_sent = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.messages.append(message)
        self.started.set()
        if self._num_chunks is not None and len(self.messages) > self._num_chunks:
            self._left.set()
        if self._hold is not None:
            await self._hold.wait()

    def leave(self):
        self._left.set()

    @property
    def status(self):
        return self.messages[0]["status"]

    @property
    def headers(self):
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    async def call(self, app):
        headers = [(b"content-type", b"application/json"), (b"host", b"127.0.0.1")]
        scope = {
            "type": "http", "method": "POST", "path": self._path, "raw_path": self._path.encode(), "headers": headers,
            "query_string": b"", "http_version": "1.1", "scheme": "http", "asgi": {"version": "3.0"},
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "root_path": "",
        }  # fmt: skip
        await app(scope, self.receive, self.send)


@pytest.fixture
def service(synthesizer):
    return LocalSpeech(synthesizer, max_requests=4)


@pytest.fixture
def small_app(service, voices):
    return create_api(ApiContext(service=service, voices=voices, model_name=MODEL))


def assert_idle(service, synthesizer):
    assert service.num_requests == 0
    wait_until(
        lambda: all(
            not numbers.num_active and not numbers.num_waiting for numbers in synthesizer.statistics().values()
        ),
        "no slot is taken",
    )


@pytest.mark.parametrize("path", ["/v1/audio/speech", "/v1/compare"])
def test_a_client_that_leaves_before_its_body_has_arrived_is_no_fault(small_app, path, caplog):
    """A traceback was logged for each, and counted as a fault of the server's."""
    listener = Listener(None, path=path)
    listener._was_sent = True
    listener.leave()
    asyncio.run(listener.call(small_app))
    assert not caplog.records


@pytest.mark.parametrize("num_chunks", [0, 1, 3])
def test_a_listener_who_leaves_frees_the_slot(small_app, service, synthesizer, num_chunks):
    frames_before = synthesizer.statistics()["base"].num_cancelled_total
    listener = Listener(ask(input=LONG), num_chunks=num_chunks)
    if num_chunks == 0:
        listener.leave()
    asyncio.run(listener.call(small_app))
    assert_idle(service, synthesizer)
    assert not any(message.get("more_body") is False for message in listener.messages)
    wait_until(lambda: synthesizer.statistics()["base"].num_cancelled_total > frames_before - 1, "it was counted")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/audio/speech", ask(input=LONG, stream=False)),
        ("/v1/compare", {"voices": ["Anna", "Tuned"], "input": LONG, "seed": 1}),
    ],
)
def test_a_client_waiting_for_a_whole_take_may_disconnect(small_app, service, synthesizer, path, body):
    async def scenario():
        listener = Listener(body, path=path)
        call = asyncio.create_task(listener.call(small_app))
        while not service.num_requests:
            await asyncio.sleep(0.01)
        listener.leave()
        await call

    asyncio.run(asyncio.wait_for(scenario(), 90))
    assert_idle(service, synthesizer)


def test_a_request_that_is_cancelled_frees_the_slot(small_app, service, synthesizer):
    async def scenario():
        listener = Listener(ask(input=LONG))
        call = asyncio.create_task(listener.call(small_app))
        await listener.started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(asyncio.wait_for(scenario(), 90))
    assert_idle(service, synthesizer)


def test_a_full_queue_says_when_to_retry(small_app, service, synthesizer):
    async def scenario():
        hold = asyncio.Event()
        listeners = [Listener(ask(), hold=hold) for _ in range(4)]
        calls = [asyncio.create_task(listener.call(small_app)) for listener in listeners]
        for listener in listeners:
            await listener.started.wait()
        late = Listener(ask())
        await late.call(small_app)
        hold.set()
        await asyncio.gather(*calls)
        return listeners, late

    listeners, late = asyncio.run(asyncio.wait_for(scenario(), 120))
    assert [listener.status for listener in listeners] == [200] * 4
    assert late.status == 429
    assert int(late.headers["retry-after"]) >= 1
    assert json.loads(late.messages[1]["body"])["error"]["code"] == "rate_limit_exceeded"
    assert_idle(service, synthesizer)


def test_an_engine_that_is_full_says_so_as_well(synthesizer, voices):
    """The engine's own bound, behind the service's."""

    async def scenario():
        service = LocalSpeech(synthesizer, max_requests=30)
        app = create_api(ApiContext(service=service, voices=voices, model_name=MODEL))
        listeners = [Listener(ask(input=LONG)) for _ in range(20)]
        calls = [asyncio.create_task(listener.call(app)) for listener in listeners]
        await asyncio.gather(*(listener.started.wait() for listener in listeners[:1]))
        while not any(listener.messages and listener.status == 429 for listener in listeners):
            await asyncio.sleep(0.01)
        for listener in listeners:
            listener.leave()
        await asyncio.gather(*calls)
        return service

    service = asyncio.run(asyncio.wait_for(scenario(), 120))
    assert_idle(service, synthesizer)


class _Silent:
    """A service that never says anything, as a replica that hangs."""

    def __init__(self):
        self.was_closed = False

    async def speak(self, order):
        try:
            await asyncio.Event().wait()
            yield SpeechFailure(error=RuntimeError())
        finally:
            self.was_closed = True

    async def forget_deleted(self):
        raise NotImplementedError

    async def state(self, *, with_engines=False):
        raise NotImplementedError


class _Paced(_Silent):
    """Says what an engine has said, more slowly: the sound of a whole file comes after so many seconds."""

    def __init__(self, events, seconds_to_sound):
        super().__init__()
        before = next(number for number, event in enumerate(events) if isinstance(event, AudioChunk))
        self._events, self._pause = events, seconds_to_sound / before

    async def speak(self, order):
        for event in self._events:
            yield event
            if isinstance(event, SpeechBegun | SpeechGoesOn):
                await asyncio.sleep(self._pause)


@pytest.fixture
def whole(synthesizer, voices):
    """The events of a speech that is handed out whole."""
    order = SynthesisRequest(voice=voices.get("Anna"), text=LONG, seed=1, is_streamed=False)
    return list(synthesizer.events(order, lambda: False))


@pytest.mark.parametrize("path", ["/v1/audio/speech", "/v1/compare"])
def test_a_file_that_is_sent_whole_may_take_longer_than_the_deadline(whole, voices, path):
    """Its only sound came at its end, so that it ended in 504 however steadily it was made."""
    service = _Paced(whole, seconds_to_sound=6.0)
    app = create_api(ApiContext(service=service, voices=voices, model_name=MODEL, timeout_seconds=3.0))
    fields = {"voices": ["Anna", "Anna"], "input": LONG} if "compare" in path else ask(input=LONG, stream=False)
    listener = Listener(fields, path=path)
    asyncio.run(asyncio.wait_for(listener.call(app), 120))
    assert listener.status == 200


def test_the_signs_that_a_whole_file_goes_on_come_before_all_of_its_sound(whole):
    kinds = [type(event) for event in whole]
    assert kinds == [SpeechBegun, *[SpeechGoesOn] * (len(whole) - 3), AudioChunk, SpeechSummary]
    # One for each chunk of its segments: what an engine makes in a second or two of sound.
    assert len(whole) - 3 >= whole[-1].facts.seconds / 2


LOST, HEARD = SpeechStatement(), SpeechStatement()


class _Twice(_Silent):
    """A service whose first process is lost before any sound; another one begins the speech anew."""

    async def speak(self, order):
        for statement in LOST, HEARD:
            yield SpeechBegun(statement=statement)
        yield AudioChunk(content=b"sound")


def test_a_speech_that_began_twice_says_what_is_heard(voices):
    app = create_api(ApiContext(service=_Twice(), voices=voices, model_name=MODEL))
    listener = Listener(ask())
    asyncio.run(asyncio.wait_for(listener.call(app), 60))
    told = [value for name, value in listener.messages[0]["headers"] if name == PROVENANCE_HEADER.encode()]
    assert told == [HEARD.as_json().encode()]


@pytest.mark.parametrize("fields", [{}, {"stream": False}, {"stream_format": "sse"}])
def test_every_wait_has_a_deadline(voices, fields):
    silent = _Silent()
    app = create_api(ApiContext(service=silent, voices=voices, model_name=MODEL, timeout_seconds=0.1))
    listener = Listener(ask(**fields))
    asyncio.run(asyncio.wait_for(listener.call(app), 60))
    assert listener.status == 504
    assert silent.was_closed
