"""The application on Ray Serve: the same API, over replicas that may die."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from backend.serving.requests import AudioChunk, SpeechSummary, SynthesisRequest
from backend.store.copies import DATABASE_FILE
from backend.store.home import Home
from backend.tenants.directory import FRESH_SECONDS
from backend.tenants.keys import ApiKeys
from backend.tenants.limits import LimitChanges, LimitTable
from backend.voices.registry import Voices
from tests.backend.serving.api.served import CONSENT, ask, is_same_sound
from tests.backend.voices.checkpoints import adapter_of, fine_tuned_checkpoint
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.raw_http import connect, read_reply
from tests.ui.recordings import write_voice

pytestmark = [
    pytest.mark.ray,
    # Ray leaves sockets, files and processes of its own to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# Two that are asked for at once wait for a moment even where nobody speaks.
NUM_SLOTS, MAX_WAITING, MAX_QUEUED = 2, 2, 2
NUM_INGRESSES = 2
NUM_CROWD = 10
LONG = "One two three four five six seven eight nine ten eleven twelve. " * 40
"""Minutes of speech: nobody who listens to it ends by himself during a test."""
SOME = "One two three four five six seven eight nine ten eleven twelve. " * 6
START_SECONDS = 300.0
NUM_START_ATTEMPTS = 3


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("serve-home")


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return write_voice(tmp_path_factory.mktemp("serve-recording") / "anna.wav", seconds=1.2)


@pytest.fixture(scope="module")
def voices(home, recording, tmp_path_factory):
    registry = Voices(Home(home))
    registry.create_zero_shot("Anna", recording, consent=CONSENT, model="tiny")
    folder = fine_tuned_checkpoint(tmp_path_factory.mktemp("run") / "custom_voice", scale=1.5)
    registry.add_fine_tuned("Tuned", {"custom_voice": folder}, consent=CONSENT, model="tiny")
    for seed, name in enumerate(("Adapted", "Other")):
        adapter = adapter_of(tmp_path_factory.mktemp("adapter") / "adapter", seed=seed)
        registry.add_fine_tuned(name, {}, adapter=adapter, consent=CONSENT, model="tiny")
    return registry


@pytest.fixture(scope="module")
def serving(home):
    from backend.serving.settings import EngineSettings, ServeSettings  # noqa: PLC0415 - takes seconds

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return ServeSettings(
        engine=EngineSettings(
            model=str(GOLDEN_CHECKPOINT), precision="fp32", device="cpu", num_slots=NUM_SLOTS,
            max_waiting=MAX_WAITING, cache_length=1024,
        ),
        home=home, port=port, max_queued=MAX_QUEUED, num_cpus=0.5, num_ingresses=NUM_INGRESSES,
    )  # fmt: skip


@pytest.fixture(scope="module")
def client(serving, voices) -> Iterator[httpx.Client]:
    """A client of the application, started once."""
    import ray  # noqa: PLC0415 - takes seconds, and only where this tier runs

    from backend.serving.deploy.ray_application import start_application, stop_application  # noqa: PLC0415 - as above

    start_ray()
    try:
        start_application(serving)
        with httpx.Client(base_url=f"http://127.0.0.1:{serving.port}", timeout=START_SECONDS) as client:
            yield client
        stop_application(serving, is_own_cluster=True)
    finally:
        ray.shutdown()


def start_ray() -> None:
    """Start a Ray of this test's own; on a machine with much else to do it may take more than one attempt."""
    import ray  # noqa: PLC0415 - see above

    for attempt in range(NUM_START_ATTEMPTS):
        try:
            # Replicas report every ten seconds otherwise, which a test of scaling would have to wait for.
            os.environ["RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S"] = "0.5"
            ray.init(
                address="local", num_cpus=4, include_dashboard=False, namespace="encore-serve", log_to_driver=False
            )
            return
        except Exception:
            # Ray raises no more special type when its own processes do not answer in time.
            ray.shutdown()
            if attempt == NUM_START_ATTEMPTS - 1:
                raise


def spoken(client, **fields) -> bytes:
    body = ask(**fields)
    del body["model"]
    response = client.post("/v1/audio/speech", json=body)
    assert response.status_code == 200, response.text
    return response.content


ENGINE, INGRESS, HOME = (f"ServeReplica:encore:{name}" for name in ("SpeechEngine", "Api", "Home"))
PROXY, CONTROLLER = "ProxyActor", "ServeController"


def kept(client) -> dict[str, list[dict[str, object]]]:
    """What a person would miss: the voices, and the takes with the sound of each, without what files say of it."""
    voices, takes = (client.get(f"/v1/audio/{kind}").json()["data"] for kind in ("voices", "takes"))
    for take in takes:
        response = client.get(f"/v1/audio/takes/{take['id']}/content")
        assert response.status_code == 200, response.text
        samples, _ = soundfile.read(io.BytesIO(response.content), dtype="int16")
        take["sound"] = samples.tobytes()
    return {"voices": voices, "takes": takes}


def processes_of(actor: str) -> set[int]:
    """The processes of one kind of Serve's actors, among those of this test's Ray."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, IndexError):
            if process.status() != psutil.STATUS_ZOMBIE and actor in process.cmdline()[0]:
                found.add(process.pid)
    return found


def process_of(actor: str) -> int | None:
    """The process of one of Serve's actors, of which there is one each."""
    return next(iter(processes_of(actor)), None)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.2)


@given(st.integers(1, 20), st.integers(1, 10))
def test_no_machine_of_several_has_all_ingresses_and_two_have_room_for_all(num_ingresses, num_machines):
    from backend.serving.deploy.ray_application import max_on_one_machine  # noqa: PLC0415 - takes seconds

    most = max_on_one_machine(num_ingresses, num_machines)
    assert most * min(num_machines, 2) >= num_ingresses
    assert most < num_ingresses or num_machines == 1 or num_ingresses == 1


def test_it_speaks_whole_takes_and_streams_alike(client):
    whole = spoken(client, stream=False)
    with client.stream("POST", "/v1/audio/speech", json={**ask(), "model": str(GOLDEN_CHECKPOINT)}) as response:
        pieces = list(response.iter_raw())
    assert is_same_sound(b"".join(pieces), whole)
    assert len(pieces) > 1
    assert client.get("/healthz").json()["num_replicas"] == 1
    assert 'engine="base"' in client.get("/metrics").text
    assert 'owner="weights"' in client.get("/metrics").text


def test_a_new_voice_speaks_without_a_restart(client, voices, recording):
    made = client.post(
        "/v1/audio/voices",
        data={"name": "Berta", "consent": "own-voice", "consent_by": "Ben"},
        files={"audio_sample": ("b.wav", recording.read_bytes())},
    )
    assert made.status_code == 201, made.text
    assert is_same_sound(spoken(client, voice="Berta"), spoken(client, voice="Anna"))
    # Also one that another process puts into the registry.
    voices.create_zero_shot("Carla", recording, consent=CONSENT, model="tiny")
    assert len(spoken(client, voice="Carla")) > 1000
    both = client.post("/v1/compare", json={"voices": ["Berta", "Carla"], "input": "Hi."})
    assert both.status_code == 200, both.text


def test_a_fine_tuned_voice_and_a_zero_shot_one_are_compared(client, voices):
    both = client.post(
        "/v1/compare", json={"voices": ["Anna", "Tuned"], "input": "Hi.", "seed": 1, "response_format": "pcm"}
    )
    assert both.status_code == 200, both.text
    zero_shot, tuned = (base64.b64decode(take["audio"]) for take in both.json()["takes"])
    assert is_same_sound(zero_shot, spoken(client))
    assert is_same_sound(tuned, spoken(client, voice="Tuned"))
    assert not is_same_sound(tuned, zero_shot)
    tuned_id = voices.get("Tuned").id
    assert f'engine="{tuned_id}"' in client.get("/metrics").text
    assert client.delete("/v1/audio/voices/Tuned").status_code == 200
    # Its weights go, too, once the replica has looked.
    wait_until(lambda: f'engine="{tuned_id}"' not in (now := client.get("/metrics").text) and 'engine="base"' in now)


def test_a_replica_speaks_with_any_adapter_and_says_what_it_holds(client):
    """Serve knows each voice that it has spoken, by which it chooses among replicas, and one engine has spoken all."""
    adapted, other, zero_shot = (spoken(client, voice=name) for name in ("Adapted", "Other", "Anna"))
    assert not is_same_sound(adapted, other)
    assert not is_same_sound(adapted, zero_shot)
    assert is_same_sound(adapted, spoken(client, voice="Adapted"))
    text = client.get("/metrics").text
    assert re.search(r'^encore_engine{engine="base",number="num_adapters"} 2.0$', text, re.MULTILINE), text
    assert re.search(r'^encore_memory_bytes{device="cpu",owner="adapters"} [1-9]', text, re.MULTILINE), text


def test_errors_arrive_as_they_are(client):
    assert client.post("/v1/audio/speech", json={"input": "Hi.", "voice": "Nobody"}).status_code == 404
    unspoken = client.post("/v1/audio/speech", json={"input": "Hi.", "voice": "Anna", "language": "klingon"})
    assert unspoken.status_code == 400
    assert "klingon" in unspoken.json()["error"]["message"]


def test_more_than_can_be_served_is_told_to_come_back(client):
    was_refused = threading.Event()

    def one(_):
        with client.stream("POST", "/v1/audio/speech", json={"input": LONG, "voice": "Anna"}) as response:
            if response.status_code == 429:
                was_refused.set()
                assert int(response.headers["retry-after"]) >= 1
                response.read()
                assert response.json()["error"]["code"] == "rate_limit_exceeded"
            # Those who speak stay until somebody was turned away, so that no place falls free before.
            was_refused.wait(START_SECONDS)
            return response.status_code

    with ThreadPoolExecutor(NUM_CROWD) as pool:
        statuses = list(pool.map(one, range(NUM_CROWD)))
    assert set(statuses) == {200, 429}, statuses
    # Everybody left in the middle, so the next is served at once.
    assert spoken(client)


def test_half_a_request_is_cut_off_by_rays_own_proxy(client):
    with connect(str(client.base_url)) as half:
        half.sendall(b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Le")
        assert read_reply(half).status == 408


def test_a_replica_that_is_killed_is_replaced(client):
    process = process_of(ENGINE)
    assert process is not None

    def listen_to_the_end():
        with client.stream("POST", "/v1/audio/speech", json={"input": LONG, "voice": "Anna"}) as response:
            assert response.status_code == 200
            for _ in response.iter_raw():
                # Again with each chunk: only the first has something to end.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    # A clean end of half a speech would pass for the whole.
    with pytest.raises(httpx.RemoteProtocolError):
        listen_to_the_end()
    deadline = time.monotonic() + START_SECONDS
    while (response := client.post("/v1/audio/speech", json={"input": "Hi.", "voice": "Anna"})).status_code == 503:
        assert time.monotonic() < deadline, response.text
    assert response.status_code == 200, response.text
    assert process_of(ENGINE) not in (None, process)


def test_what_an_ingress_that_is_killed_leaves_undone_is_said(client):
    """It was a bare 500, and events that ended without a word."""
    ingresses, engine = processes_of(INGRESS), process_of(ENGINE)
    assert len(ingresses) == NUM_INGRESSES
    assert engine is not None
    with ThreadPoolExecutor(1) as pool:
        body = {"input": LONG, "voice": "Anna"}
        with client.stream("POST", "/v1/audio/speech", json=body | {"stream_format": "sse"}) as response:
            assert response.status_code == 200
            lines = (line for line in response.iter_lines() if line)
            assert "speech.audio.delta" in next(lines)
            # Neither of the two ends by itself.
            os.kill(engine, signal.SIGSTOP)
            try:
                whole = pool.submit(client.post, "/v1/audio/speech", json=body | {"stream": False})
                # For it to reach the ingress. The engine's numbers are left out, for it stands still.
                time.sleep(3)
                assert 'engine="base"' not in client.get("/metrics").text
                for ingress in ingresses:
                    os.kill(ingress, signal.SIGKILL)
                *_, last = lines
                answer = whole.result()
            finally:
                os.kill(engine, signal.SIGCONT)
    event = json.loads(last.removeprefix("data: "))
    assert event["type"] == "speech.audio.error"
    assert answer.status_code == 503, answer.text
    for error in (event["error"], answer.json()["error"]):
        assert error["code"] == "unavailable"
        assert "Ask again" in error["message"]
    # The engine does not speak on for nobody.
    wait_until(lambda: client.post("/v1/audio/speech", json={"input": "Hi.", "voice": "Anna"}).status_code == 200)
    wait_until(lambda: len(processes_of(INGRESS) - ingresses) == NUM_INGRESSES)
    assert process_of(ENGINE) == engine


def is_at_hand(client) -> bool:
    """Whether what is stored can be had: on a busy machine a new ingress takes a while to find it, and says so."""
    listed = client.get("/v1/audio/takes")
    return listed.status_code == 200 and all(
        client.get(f"/v1/audio/takes/{take['id']}/content").status_code == 200 for take in listed.json()["data"]
    )


def test_a_home_that_is_killed_is_replaced_and_speech_goes_on(client):
    # The test before has killed the ingresses.
    wait_until(lambda: is_at_hand(client))
    before, home = kept(client), process_of(HOME)
    assert home is not None
    with client.stream("POST", "/v1/audio/speech", json={**ask(), "model": str(GOLDEN_CHECKPOINT)}) as response:
        assert response.status_code == 200
        chunks = response.iter_raw()
        heard = next(chunks)
        os.kill(home, signal.SIGKILL)
        heard += b"".join(chunks)
    while (response := client.get("/v1/audio/voices")).status_code == 503:
        assert response.json()["error"]["code"] == "unavailable"
        time.sleep(0.2)
    assert response.status_code == 200, response.text
    after = kept(client)
    assert after["voices"] == before["voices"]
    assert after["takes"][-len(before["takes"]) :] == before["takes"]
    assert is_same_sound(spoken(client), heard)
    assert process_of(HOME) not in (None, home)


def test_a_proxy_that_is_killed_is_replaced_with_its_bounds(client):
    before, proxy = spoken(client), process_of(PROXY)
    assert proxy is not None
    os.kill(proxy, signal.SIGKILL)

    def answers() -> bool:
        try:
            response = client.post("/v1/audio/speech", json={"input": "Hi.", "voice": "Anna"})
        except httpx.TransportError:
            return False
        # Nothing of Ray's own, not even while it learns of the application.
        assert response.status_code in (200, 503), response.text
        assert response.status_code == 200 or response.json()["error"]["code"] == "unavailable"
        return response.status_code == 200

    wait_until(answers)
    assert process_of(PROXY) not in (None, proxy)
    assert is_same_sound(spoken(client), before)
    test_half_a_request_is_cut_off_by_rays_own_proxy(client)


def test_a_killed_controller_restarts_without_failed_requests(client):
    controller, engine = process_of(CONTROLLER), process_of(ENGINE)
    assert controller is not None
    before = kept(client)
    assert before["voices"]
    # Whoever listens meanwhile hears it to the end.
    with client.stream("POST", "/v1/audio/speech", json={**ask(), "model": str(GOLDEN_CHECKPOINT)}) as response:
        assert response.status_code == 200
        chunks = response.iter_raw()
        heard = next(chunks)
        os.kill(controller, signal.SIGKILL)
        heard += b"".join(chunks)
    # It is kept as soon as it was heard, the others and the voices all the while.
    wait_until(lambda: len(kept(client)["takes"]) == len(before["takes"]) + 1)
    after = kept(client)
    assert (after["voices"], after["takes"][1:]) == (before["voices"], before["takes"])
    assert is_same_sound(after["takes"][0]["sound"], heard)
    assert is_same_sound(spoken(client), heard)
    wait_until(lambda: process_of(CONTROLLER) not in (None, controller))
    wait_until(lambda: client.get("/healthz").status_code == 200)
    assert client.get("/healthz").json()["num_replicas"] == 1
    assert process_of(ENGINE) == engine
    assert is_same_sound(spoken(client), heard)


class Scaling:
    """An application that has one or two engines, as many as it needs, and no door."""

    def __init__(self, serving, voice) -> None:
        from backend.serving.deploy.ray_deployments import ReplicatedSpeech  # noqa: PLC0415 - takes seconds

        self._voice = voice
        changes = {"name": "scaling", "max_queued": 20, "max_replicas": 2}
        changes |= {"upscale_seconds": 1.0, "downscale_seconds": 1.0}
        # A long text takes two of five slots: more than two such texts are more than one replica should have.
        engine = serving.engine.model_copy(update={"num_slots": 5, "max_waiting": 20})
        scaled = serving.model_copy(update={**changes, "engine": engine})
        handle = self.serve.run(self.build(scaled), name="scaling", route_prefix=None)
        self._speech = ReplicatedSpeech(handle, "scaling", retry_after_seconds=1.0, asker="job:the test")
        self.expected = self.say(SOME)

    @property
    def serve(self):
        from ray import serve  # noqa: PLC0415 - as above

        return serve

    def build(self, serving):
        from backend.serving.deploy.ray_application import build_speech  # noqa: PLC0415 - as above

        return build_speech(serving)

    def say(self, text: str) -> bytes:
        """Speak and listen to the end."""

        async def listen() -> bytes:
            request = SynthesisRequest(voice=self._voice, text=text, seed=1, audio_format="pcm")
            events = [event async for event in self._speech.speak(request)]
            assert isinstance(events[-1], SpeechSummary), events[-1]
            return b"".join(event.content for event in events if isinstance(event, AudioChunk))

        return asyncio.run(listen())

    def keep_saying(self, until: threading.Event) -> int:
        """Take after take, each of which has to be whole; says how many."""
        number = 0
        while not until.is_set():
            assert is_same_sound(self.say(SOME), self.expected)
            number += 1
        return number

    def num_running(self) -> int:
        return asyncio.run(self._speech.state()).num_replicas

    def engines(self) -> set[int]:
        return processes_of("ServeReplica:scaling:SpeechEngine")


@pytest.fixture(scope="module")
def scaling(client, serving, voices) -> Iterator[Scaling]:
    from backend.serving.deploy import ray_application  # noqa: PLC0415 - takes seconds

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_application, "_LOOK_BACK_SECONDS", 2.0)
        scaling = Scaling(serving, voices.get("Anna"))
    yield scaling
    scaling.serve.delete("scaling")


def test_scaling_out_and_in_loses_no_take(scaling):
    """A replica that is ended while it speaks does so to the end of the take."""
    wait_until(lambda: scaling.num_running() == 1 and len(scaling.engines()) == 1)
    is_out, is_in = threading.Event(), threading.Event()
    with ThreadPoolExecutor(5) as pool:
        try:
            speaking = [pool.submit(scaling.keep_saying, until) for until in (is_in, is_out, is_out, is_out)]
            wait_until(lambda: scaling.num_running() == 2)
            # Goes to the new one, where nobody is speaking yet. As soon as the others are done, each has one.
            speaking.append(pool.submit(scaling.keep_saying, is_in))
            is_out.set()
            both = scaling.engines()
            assert len(both) == 2
            wait_until(lambda: scaling.num_running() == 1)
            # The one that goes is not counted any more, and speaks all the same.
            assert scaling.engines() == both
        finally:
            is_out.set()
            is_in.set()
        assert all(one.result() for one in speaking)
    wait_until(lambda: len(scaling.engines()) == 1)


def test_tenants_are_separated_here_too(client, home, recording):
    """The last test of this module: from the first key on, the application asks everybody for one."""
    _, key = ApiKeys(Home(home).database).add("alice")
    LimitTable(Home(home).database).save("alice", LimitChanges(characters_per_day=10))
    time.sleep(2 * FRESH_SECONDS)
    assert client.get("/v1/audio/voices").status_code == 401
    client.headers["authorization"] = f"Bearer {key}"
    assert client.get("/v1/audio/voices").json()["data"] == []
    assert client.post("/v1/audio/speech", json={"input": "Hi.", "voice": "Anna"}).status_code == 404
    form = {"name": "Anna", "consent": CONSENT.statement, "consent_by": CONSENT.who}
    file = {"audio_sample": ("a.wav", recording.read_bytes())}
    assert client.post("/v1/audio/voices", data=form, files=file).status_code == 201
    assert spoken(client)
    refused = client.post("/v1/audio/speech", json={"input": "Too long for today.", "voice": "Anna"})
    assert (refused.status_code, refused.headers["x-ratelimit-remaining-characters"]) == (429, "7")
    assert client.get("/metrics").status_code == 403
    # What one may ask for is counted for all ingresses together, which have no database themselves.
    LimitTable(Home(home).database).save("alice", LimitChanges(requests_per_minute=20))
    time.sleep(2 * FRESH_SECONDS)
    begun = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda _: client.get("/v1/models").status_code, range(40)))
    num_filled_up = (time.monotonic() - begun) * 20 / 60
    assert set(statuses) == {200, 429}
    assert 20 <= statuses.count(200) <= 20 + num_filled_up
    assert [has_database_open(process) for process in (process_of(HOME), *processes_of(INGRESS))] == [
        True,
        False,
        False,
    ]


def has_database_open(process: int) -> bool:
    """Whoever counts keeps it open."""
    return any(Path(file.path).name.startswith(DATABASE_FILE) for file in psutil.Process(process).open_files())
