"""Two processes that take requests and have no home: all that is stored is asked of one that has it.

The tests of routes and limits are run again here, each request to the other one of the two.
"""

from __future__ import annotations

import asyncio
import itertools
import pickle
from datetime import UTC, datetime

import pytest

from backend.provenance.check import Checker
from backend.provenance.signing import FileSigner
from backend.serving.api.dependencies import ApiContext
from backend.serving.api.factory import create_api
from backend.serving.api.stored import HomeStores
from backend.serving.deploy.home_calls import HomeCall, HomeFacts, Scope
from backend.serving.deploy.home_service import HomeService
from backend.serving.deploy.local_server import LocalSpeech
from backend.serving.deploy.remote_home import keep_telling, remote_stores
from backend.serving.errors import HomeUnavailable
from backend.serving.requests import SynthesisRequest
from backend.serving.voice_files import VoiceFiles, VoiceFilesMissing, require_files
from backend.store.home import Home
from backend.takes.takes import TakeBounds, Takes
from backend.tenants.directory import TenantDirectory
from backend.tenants.keys import ApiKeys
from backend.tenants.limits import LimitChanges, Limits, LimitTable
from backend.tenants.tenant_store import HomeTenants
from backend.voices.published_index import PublishedIndex
from backend.voices.publisher import VoicePublisher
from backend.web.attempts import NUM_FREE, Attempts
from tests.backend.serving.api.served import MODEL, ask, client_of, wait_until
from tests.backend.serving.api.test_limits import (
    test_characters_are_counted_when_they_are_spoken,
    test_many_requests_at_once_speak_no_more_than_is_left,
    test_requests_beyond_the_limit_are_told_to_wait,
    test_voices_beyond_the_limit_are_refused_until_one_is_deleted,
)
from tests.backend.serving.api.test_take_routes import *  # noqa: F403 - all of them again
from tests.backend.serving.api.test_take_routes import _empty
from tests.backend.serving.api.test_voice_routes import *  # noqa: F403 - as above
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore

__all__ = [
    "_empty",
    "test_characters_are_counted_when_they_are_spoken",
    "test_many_requests_at_once_speak_no_more_than_is_left",
    "test_requests_beyond_the_limit_are_told_to_wait",
    "test_voices_beyond_the_limit_are_refused_until_one_is_deleted",
]

OPERATOR = "of-the-operator"
NAMES = itertools.count()


def service_of(home, voices, takes):
    """Answers calls as if they came from another process."""
    stores = HomeStores(
        voices=voices,
        takes=takes,
        signer=FileSigner(home.folder),
        checker=Checker(home.folder),
        tenants=HomeTenants(home),
        attempts=Attempts(),
    )
    service = HomeService(stores, HomeFacts(can_instruct=False, started_at=datetime.now(UTC)))
    return lambda call: pickle.loads(pickle.dumps(service.answer(pickle.loads(pickle.dumps(call)))))


@pytest.fixture(scope="module")
def home(voices):
    return Home(voices.folder.parent)


@pytest.fixture(scope="module")
def send(home, voices, takes):
    return service_of(home, voices, takes)


@pytest.fixture(scope="module")
def speech(synthesizer):
    return LocalSpeech(synthesizer, max_requests=8)


def context_of(send, speech, index=None, process=""):
    stores = remote_stores(send, keeps_takes=True, index=index)
    context = ApiContext(
        service=speech, voices=stores.voices, takes=stores.takes, signer=stores.signer, checker=stores.checker,
        totals=stores.totals, process=process, model_name=MODEL,
    )  # fmt: skip
    return context, stores


@pytest.fixture(scope="module")
def context(send, speech):
    return context_of(send, speech)[0]


@pytest.fixture(scope="module")
def client(context):
    return client_of(create_api(context))


@pytest.fixture(scope="module")
def two(send, speech):
    """Makes a client of two processes, by turns."""

    def make(key=OPERATOR, send=send, index=None):
        def one(name):
            context, stores = context_of(send, speech, index, name)
            # Every look at the clock is later than what was read before.
            directory = TenantDirectory(stores.tenants, Limits(), clock=itertools.count(step=10).__next__)
            return create_api(context, api_keys=[OPERATOR], directory=directory, attempts=stores.attempts)

        turns = itertools.cycle([one("a"), one("b")])

        async def either(scope, receive, send):
            await next(turns)(scope, receive, send)

        return client_of(either, headers={"authorization": f"Bearer {key}"})

    return make


@pytest.fixture
def enter(two, home):
    """Makes a tenant with limits, and a client with a key of it."""

    def make(**limits):
        name = f"far-{next(NAMES)}"
        _, key = ApiKeys(home.database).add(name)
        LimitTable(home.database).save(name, LimitChanges.model_validate(limits))
        return two(key)

    return make


def test_both_keep_within_one_bound_of_takes(home, voices, speech, two):
    takes = Takes(home.of_tenant("bounded"), TakeBounds(max_takes=3))
    client = two(ApiKeys(home.database).add("bounded")[1], send=service_of(home, voices, takes))
    voices.of_tenant("bounded").create_zero_shot(
        "Anna", voices.get("Anna").reference, consent=voices.get("Anna").consent, model=MODEL
    )
    ids = [takes.list() for _ in range(5) if client.post("/v1/audio/speech", json=ask()).status_code == 200]
    assert [len(kept) for kept in ids] == [1, 2, 3, 3, 3]
    listed = client.get("/v1/audio/takes").json()["data"]
    assert [take["id"] for take in listed] == [take.id for take in takes.list()]
    part = client.get(f"/v1/audio/takes/{listed[0]['id']}/content", headers={"range": "bytes=4-11"})
    assert (part.status_code, part.content) == (206, takes.list()[0].path.read_bytes()[4:12])


def test_whoever_guesses_keys_waits_at_both(home, voices, takes, two):
    client, guess = two(send=service_of(home, voices, takes)), {"authorization": "Bearer wrong"}
    statuses = [client.get("/v1/models", headers=guess).status_code for _ in range(NUM_FREE + 3)]
    assert statuses == [401] * NUM_FREE + [429] * 3
    # So does a right key that is new from there.
    assert [client.get("/v1/models").status_code for _ in range(2)] == [429, 429]


def test_either_tells_the_numbers_of_both(home, voices, takes, two):
    client = two(send=service_of(home, voices, takes))
    for _ in range(3):
        assert client.post("/v1/audio/speech", json=ask()).status_code == 200
    texts = [client.get("/metrics").text for _ in range(3)]
    assert all('encore_speeches_total{outcome="done"} 3.0' in text for text in texts[1:])
    assert "encore_seconds_to_first_audio_count 3.0" in texts[2]
    assert 'encore_engine{engine="base"' in texts[2]


def test_counts_are_told_without_being_asked_for(context, monkeypatch):
    monkeypatch.setattr("backend.serving.deploy.remote_home._TELL_SECONDS", 0.01)
    told = []

    class Totals:
        def exchange(self, process, counts):
            told.append(process)
            return counts

    has_ended = keep_telling(Totals(), "a", context.metrics)
    wait_until(lambda: len(told) > 1, "told twice")
    has_ended.set()


def test_while_the_home_is_away_the_operator_speaks_in_what_is_published(tmp_path, home, voices, send, two):
    (tmp_path / "shared").mkdir()
    store = ObjectStore(StorageLocation("file", str(tmp_path / "shared")), patience_seconds=0)
    assert VoicePublisher(voices, store, home.folder).publish()
    is_there, others_key = True, ApiKeys(home.database).add("cut-off")[1]

    def send_if_there(call):
        if not is_there:
            raise HomeUnavailable
        return send(call)

    client = two(send=send_if_there, index=PublishedIndex(store, voices.folder))
    assert client.get("/v1/audio/takes").status_code == 200
    is_there = False
    spoken = client.post("/v1/audio/speech", json=ask(stream=False))
    assert spoken.status_code == 200, spoken.text
    assert spoken.headers["x-encore-take-problem"] == "the server could not write it"
    assert "Anna" in client.get("/v1/audio/voices").json()["voices"]
    for answer in (
        client.post("/v1/audio/speech", json=ask(voice="Somebody")),
        client.get("/v1/audio/takes"),
        client.get("/v1/models", headers={"authorization": f"Bearer {others_key}"}),
        client.get("/v1/models", headers={"authorization": "Bearer wrong"}),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    is_there = True
    assert client.get("/v1/audio/takes").status_code == 200


def test_a_machine_without_the_home_fetches_the_files_of_a_voice(tmp_path, home, voices):
    (tmp_path / "shared").mkdir()
    store = ObjectStore(StorageLocation("file", str(tmp_path / "shared")), patience_seconds=0)
    VoicePublisher(voices, store, home.folder).publish()
    anna = voices.get("Anna")
    unseen = anna.model_copy(update={"folder": tmp_path / "unseen" / anna.id})
    files = VoiceFiles(store, tmp_path / "cache")
    found = files.here(SynthesisRequest(voice=unseen, text="Hi.")).voice
    assert found.folder.is_relative_to(tmp_path / "cache")
    assert found.reference.read_bytes() == anna.reference.read_bytes()
    seen = SynthesisRequest(voice=anna, text="Hi.")
    assert files.here(seen) is seen
    unpublished = SynthesisRequest(voice=unseen.model_copy(update={"id": "0" * 32}), text="Hi.")
    assert files.here(unpublished) is unpublished
    assert VoiceFiles(None, tmp_path).here(SynthesisRequest(voice=unseen, text="Hi.")).voice == unseen


def test_a_machine_without_the_home_waits_for_a_voice_that_was_made_just_now(tmp_path, home, voices):
    """It said that the voice had no recording, and should be made again."""
    (tmp_path / "shared").mkdir()
    store = ObjectStore(StorageLocation("file", str(tmp_path / "shared")), patience_seconds=0)
    anna = voices.get("Anna")
    unseen = SynthesisRequest(voice=anna.model_copy(update={"folder": tmp_path / "unseen" / anna.id}), text="Hi.")

    async def publish_meanwhile() -> SynthesisRequest:
        coming = asyncio.create_task(VoiceFiles(store, tmp_path / "cache").soon(unseen))
        await asyncio.sleep(0.1)
        assert not coming.done()
        VoicePublisher(voices, store, home.folder).publish()
        return await coming

    found = asyncio.run(publish_meanwhile()).voice
    assert found.reference.read_bytes() == anna.reference.read_bytes()
    lost = unseen.model_copy(update={"voice": unseen.voice.model_copy(update={"id": "0" * 32})})
    for files in (VoiceFiles(None, tmp_path), VoiceFiles(store, tmp_path / "other")):
        with pytest.raises(VoiceFilesMissing, match="Anna"):
            require_files(asyncio.run(files.soon(lost, seconds=0)))


def test_only_what_the_api_needs_can_be_called(send):
    for method in ("sweep", "_drop", "__init__", "add_fine_tuned"):
        with pytest.raises(ValueError, match="has no"):
            send(HomeCall(scope=Scope(part="voices"), method=method))
