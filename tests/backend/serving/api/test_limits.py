"""Limits of tenants at the API: what is refused costs nothing, and everybody is told what is left."""

from __future__ import annotations

import asyncio
import itertools

import httpx
import pytest

from backend.serving.api.factory import create_api
from backend.store.home import Home
from backend.tenants.directory import TenantDirectory
from backend.tenants.keys import ApiKeys
from backend.tenants.limits import LimitChanges, Limits, LimitTable
from backend.tenants.tenant_store import HomeTenants
from tests.backend.serving.api.served import CONSENT, TEXT, ask, client_of

FORM = {"consent": CONSENT.statement, "consent_by": "Anna Example"}
WHOLE = {"stream": False}
NAMES = itertools.count()


@pytest.fixture
def enter(context, voices):
    """Makes a tenant with limits, and a client with a key of it."""
    home = Home(voices.folder.parent)

    def make(**limits):
        name = f"tenant-{next(NAMES)}"
        _, key = ApiKeys(home.database).add(name)
        LimitTable(home.database).save(name, LimitChanges.model_validate(limits))
        app = create_api(context, api_keys=["of-the-operator"], directory=TenantDirectory(HomeTenants(home), Limits()))
        return client_of(app, headers={"authorization": f"Bearer {key}"})

    return make


def clone(client, recording, name="Anna"):
    file = {"audio_sample": ("a.wav", recording.read_bytes())}
    return client.post("/v1/audio/voices", data={"name": name, **FORM}, files=file)


def left(answer, what="characters"):
    return int(answer.headers[f"x-ratelimit-remaining-{what}"])


def test_requests_beyond_the_limit_are_told_to_wait(enter):
    client, other = enter(requests_per_minute=2), enter(requests_per_minute=2)
    answers = [client.get("/v1/models") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [left(answer, "requests") for answer in answers] == [1, 0, 0]
    assert answers[2].json()["error"] == {
        "message": "The limit is 2 requests per minute. Send them more slowly.",
        "type": "rate_limit_error",
        "param": None,
        "code": "rate_limit_exceeded",
    }
    assert 25 <= int(answers[2].headers["retry-after"]) <= 30
    assert answers[2].headers["x-ratelimit-limit-requests"] == "2"
    assert answers[0].headers["x-ratelimit-reset-requests"] in ("30s", "29.9s", "29.8s")
    assert client.get("/healthz").status_code == 200
    assert other.get("/v1/models").status_code == 200


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_characters_are_counted_when_they_are_spoken(enter, recording, stream):
    client = enter(characters_per_day=len(TEXT) + 5)
    clone(client, recording)
    assert client.post("/v1/audio/speech", json=ask(language="klingon", stream=stream)).status_code == 400
    assert client.post("/v1/audio/speech", json=ask(voice="Nobody", stream=stream)).status_code == 404
    refused = client.post("/v1/audio/speech", json=ask(input="x" * (len(TEXT) + 6), stream=stream))
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    assert left(refused) == len(TEXT) + 5
    spoken = client.post("/v1/audio/speech", json=ask(stream=stream))
    assert spoken.status_code == 200
    assert left(spoken) == 5
    assert left(client.get("/v1/models")) == 5
    assert client.post("/v1/compare", json={"voices": ["Anna", "Anna"], "input": TEXT}).status_code == 429
    assert left(client.get("/v1/models")) == 5


def test_many_requests_at_once_speak_no_more_than_is_left(enter, recording):
    client = enter(characters_per_day=2 * len(TEXT))
    clone(client, recording)

    async def ask_all() -> list[int]:
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=client.headers) as many:
            asked = [many.post("/v1/audio/speech", json=ask(**WHOLE)) for _ in range(5)]
            return sorted(answer.status_code for answer in await asyncio.gather(*asked))

    assert asyncio.run(ask_all()) == [200, 200, 429, 429, 429]


def test_voices_beyond_the_limit_are_refused_until_one_is_deleted(enter, recording):
    client = enter(max_voices=1)
    assert clone(client, recording).status_code == 201
    refused = clone(client, recording, "Second")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "voice_limit_reached")
    assert refused.json()["error"]["type"] == "permission_error"
    assert client.delete("/v1/audio/voices/Anna").status_code == 200
    assert clone(client, recording, "Second").status_code == 201
    again = client.post("/v1/audio/voices/Anna/restore")
    assert (again.status_code, again.json()["error"]["code"]) == (403, "voice_limit_reached")
    assert client.delete("/v1/audio/voices/Second").status_code == 200
    assert client.post("/v1/audio/voices/Anna/restore").status_code == 200


def test_without_limits_nothing_is_counted_and_nothing_told(enter):
    client = enter()
    assert not [name for name in client.get("/v1/models").headers if name.startswith("x-ratelimit")]


def test_the_first_key_closes_the_api_and_revoking_it_opens_nothing(context, tmp_path):
    keys = ApiKeys(Home(tmp_path).database)
    # Every look at the clock is later than what was read before.
    directory = TenantDirectory(HomeTenants(Home(tmp_path)), clock=itertools.count(step=10).__next__)
    client = client_of(create_api(context, directory=directory))

    def status(key=None, host="127.0.0.1"):
        headers = {"host": host} | ({"authorization": f"Bearer {key}"} if key else {})
        return client.get("/v1/models", headers=headers).status_code

    assert (status(), status(host="evil.example")) == (200, 403)
    made, key = keys.add("alice")
    assert (status(), status(key), status(key, "api.example")) == (401, 200, 200)
    assert keys.list()[0].last_used_at is not None
    keys.revoke(made.id)
    assert (status(), status(key)) == (401, 401)
