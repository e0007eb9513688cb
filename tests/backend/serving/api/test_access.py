"""Who is let in: with keys those who have one, without keys this machine and no web page."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from backend.errors import SettingsError
from backend.serving.api.factory import create_api
from backend.settings import Settings
from tests.backend.serving.api.served import client_of

KEYS = ("first-key", "second-key")


@pytest.fixture(scope="module")
def locked(context):
    return TestClient(create_api(context, api_keys=KEYS), base_url="http://encore.example")


@pytest.mark.parametrize("key", KEYS)
def test_any_of_the_keys_opens_from_anywhere(locked, key):
    assert locked.get("/v1/models", headers={"authorization": f"Bearer {key}"}).status_code == 200


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic first-key", "first-key"])
@pytest.mark.parametrize("path", ["/v1/models", "/v1/audio/voices", "/metrics", "/openapi.json"])
def test_nothing_opens_without_one(locked, path, header):
    response = locked.get(path, headers={} if header is None else {"authorization": header})
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"


def test_whoever_watches_the_process_needs_no_key(locked):
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


def test_keys_come_from_the_environment():
    settings = Settings.from_environment({"ENCORE_API_KEYS": " a , b,", "ENCORE_HOST": "0.0.0.0"})
    assert [key.get_secret_value() for key in settings.accepted_keys()] == ["a", "b"]
    assert "a" not in repr(settings.api_keys)
    assert Settings().accepted_keys() == ()
    for environment in ({"ENCORE_HOST": "0.0.0.0"}, {"ENCORE_HOST": "0.0.0.0", "ENCORE_API_KEYS": " , "}):
        with pytest.raises(SettingsError, match="ENCORE_API_KEYS"):
            Settings.from_environment(environment).accepted_keys()
