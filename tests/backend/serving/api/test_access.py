"""Who is let in: with keys those who have one, without keys this machine and no web page."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.testclient import TestClient

from backend.errors import SettingsError
from backend.serving.api.factory import create_api
from backend.settings import Settings
from backend.web.hosts import AllowedHosts
from tests.backend.serving.api.served import client_of

KEYS = ("first-key", "second-key")


@pytest.fixture(scope="module")
def locked(context):
    return TestClient(create_api(context, api_keys=KEYS), base_url="http://encore.example")


@pytest.mark.parametrize("key", KEYS)
def test_any_of_the_keys_opens_from_anywhere(locked, key):
    assert locked.get("/v1/models", headers={"authorization": f"Bearer {key}"}).status_code == 200


def status_with(app, authorization: bytes) -> int:
    """What a request with the very bytes of a header is answered; the test client would encode them anew."""
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        messages.append(message)

    scope = {
        "type": "http", "method": "GET", "path": "/v1/models", "raw_path": b"/v1/models", "query_string": b"",
        "headers": [(b"host", b"encore.example"), (b"authorization", authorization)], "http_version": "1.1",
        "scheme": "http", "asgi": {"version": "3.0"}, "client": ("192.0.2.1", 1), "server": ("encore.example", 80),
        "root_path": "",
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    return messages[0]["status"]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize("key", ["schl\u00fcssel", "d\u00e9j\u00e0"])
def test_a_key_may_be_any_text_however_its_letters_are_sent(context, key, encoding):
    app = create_api(context, api_keys=["first-key", key])
    sent = [b"Bearer " + one.encode(encoding) for one in (key, f" {key}\t", key[:-1], key.upper())]
    assert [status_with(app, header) for header in sent] == [200, 200, 401, 401]


def test_a_key_that_latin_1_does_not_have_opens_as_utf_8(context):
    app = create_api(context, api_keys=["\u30ad\u30fc"])
    assert status_with(app, b"Bearer " + "\u30ad\u30fc".encode()) == 200


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic first-key", "first-key"])
@pytest.mark.parametrize("path", ["/v1/models", "/v1/audio/voices", "/metrics", "/openapi.json"])
def test_nothing_opens_without_one(locked, path, header):
    response = locked.get(path, headers={} if header is None else {"authorization": header})
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"


def test_health_checks_need_no_key(locked):
    assert locked.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8000"}, 200),
        ({"host": "[::1]:8000"}, 200),
        ({"origin": "http://localhost:7860"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": ""}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_without_keys_only_this_machine_and_no_page_from_elsewhere(app, headers, status):
    assert client_of(app).get("/v1/audio/voices", headers=headers).status_code == status


@pytest.mark.parametrize("name", ["host", "origin"])
@pytest.mark.parametrize("value", ["[", "http://[", "a b"])
def test_malformed_headers_are_a_bad_request(app, locked, name, value):
    assert client_of(app).get("/v1/models", headers={name: value}).status_code == 400
    key = {"authorization": f"Bearer {KEYS[0]}"}
    assert locked.get("/v1/models", headers={name: value, **key}).status_code == 400


def test_names_that_the_operator_adds_lead_here_and_their_pages_are_let_in(context):
    client = client_of(create_api(context, hosts=AllowedHosts("127.0.0.1", ["api.example"])))
    assert client.get("/v1/models", headers={"host": "api.example"}).status_code == 200
    assert client.get("/v1/models", headers={"origin": "https://api.example"}).status_code == 200
    assert client.get("/v1/models", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/v1/models", headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_guessing_keys_becomes_slow_and_a_key_in_use_goes_on(context):
    client = TestClient(create_api(context, api_keys=KEYS), base_url="http://encore.example")

    def status(key):
        return client.get("/v1/models", headers={"authorization": f"Bearer {key}"}).status_code

    assert status(KEYS[0]) == 200
    statuses = [status(f"guess {number}") for number in range(30)]
    assert statuses[:5] == [401] * 5
    assert statuses[-1] == 429
    assert status(KEYS[0]) == 200
    # A guess that is right is not told so meanwhile.
    assert status(KEYS[1]) == 429


def test_keys_come_from_the_environment():
    settings = Settings.from_environment({"ENCORE_API_KEYS": " a , b,", "ENCORE_HOST": "0.0.0.0"})
    assert [key.get_secret_value() for key in settings.accepted_keys()] == ["a", "b"]
    assert "a" not in repr(settings.api_keys)
    assert Settings().accepted_keys() == ()
    for environment in ({"ENCORE_HOST": "0.0.0.0"}, {"ENCORE_HOST": "0.0.0.0", "ENCORE_API_KEYS": " , "}):
        with pytest.raises(SettingsError, match="ENCORE_API_KEYS"):
            Settings.from_environment(environment).accepted_keys()
