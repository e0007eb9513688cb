"""Requests that cannot be answered: 4xx, one sentence, OpenAI's shape."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.serving.api.factory import create_api
from backend.voices.errors import VoiceError
from tests.backend.serving.api.served import ask, client_of


def assert_refused(response, status, code=None):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].endswith((".", ")"))
    assert "\n" not in error["message"]
    if code is not None:
        assert error["code"] == code
    return error


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"voice": "Nobody"}, 404, "voice"),
        ({"voice": {"id": "0" * 32}}, 404, "voice"),
        ({"voice": 3}, 400, "voice"),
        ({"voice": {}}, 400, "voice"),
        ({"voice": {"name": "x"}}, 400, "voice"),
        ({"voice": {"id": "Anna", "name": "x"}}, 400, "voice"),
        ({"voice": None}, 400, "voice"),
        ({"voice": ""}, 400, "voice"),
        ({"input": ""}, 400, "input"),
        ({"input": "  \n "}, 400, "input"),
        ({"input": "a" * 100_000}, 400, "input"),
        ({"input": None}, 400, "input"),
        ({"input": "." * 4096}, 400, "input"),
        ({"input": "\u200b" * 4096}, 400, "input"),
        ({"input": "Hi" + "\u0301" * 4000}, 400, "input"),
        ({"language": "klingon"}, 400, "input"),
        ({"language": ""}, 400, "language"),
        ({"response_format": "ogg"}, 400, "response_format"),
        ({"response_format": None}, 400, "response_format"),
        ({"speed": 0.1}, 400, "speed"),
        ({"speed": 5}, 400, "speed"),
        ({"speed": "fast"}, 400, "speed"),
        ({"seed": -1}, 400, "seed"),
        ({"seed": 2**63}, 400, "seed"),
        ({"seed": 1.5}, 400, "seed"),
        ({"stream_format": "ws"}, 400, "stream_format"),
        ({"model": "gpt"}, 404, "model"),
        ({"instructions": "Whisper."}, 400, "instructions"),
        ({"surprise": True}, 400, "surprise"),
    ],
)
def test_fields_that_are_wrong(client, fields, status, param):
    error = assert_refused(client.post("/v1/audio/speech", json=ask(**fields)), status)
    if param is not None:
        assert error["param"] == param


@pytest.mark.parametrize("voice", [3, {}, {"name": "x"}, None, "", "a" * 201])
def test_a_voice_that_is_none_is_told_both_forms_in_which_one_is_named(client, voice):
    """It was "voice.constrained-str: Input should be a valid string", also for who had sent an object."""
    error = assert_refused(client.post("/v1/audio/speech", json=ask(voice=voice)), 400, "invalid_value")
    told = 'Send the name or id of a voice as text of 1 to 200 characters, or as {"id": "..."}.'
    assert (error["param"], error["message"]) == ("voice", f"voice: {told}")


def test_a_field_that_there_is_not_is_said_in_plain_words(client):
    error = assert_refused(client.post("/v1/audio/speech", json=ask(surprise=True)), 400, "invalid_value")
    assert error["message"] == "surprise: there is no such field."


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"input": ""}, "input is empty."),
        ({"language": ""}, "language is empty."),
        ({"language": "a" * 41}, "language is too long: it may have 40 characters."),
    ],
)
def test_what_is_empty_or_too_long_is_said_without_speaking_of_strings(client, fields, said):
    assert assert_refused(client.post("/v1/audio/speech", json=ask(**fields)), 400)["message"] == said


def test_what_is_missing_is_said(client):
    asked = ask()
    del asked["input"]
    assert assert_refused(client.post("/v1/audio/speech", json=asked), 400)["message"] == "input is missing."


def test_how_long_a_text_may_be_is_settable_and_told(context):
    client = client_of(create_api(replace(context, max_characters=20)))
    error = assert_refused(client.post("/v1/audio/speech", json=ask(input="a" * 21)), 400, "string_above_max_length")
    assert "21" in error["message"]
    assert "20" in error["message"]
    both = {"voices": ["Anna", "Anna"], "input": "a" * 21}
    assert_refused(client.post("/v1/compare", json=both), 400, "string_above_max_length")
    paths = client.get("/openapi.json").json()["paths"]
    for path, kind in (("/v1/audio/speech", "multipart/form-data"), ("/v1/compare", "application/json")):
        body = paths[path]["post"]["requestBody"]["content"][kind]["schema"]
        assert body["properties"]["input"]["maxLength"] == 20


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"input": "Hi.", "voice": "Anna", "speed": NaN}', b"[" * 100_000]
)
@pytest.mark.parametrize("path", ["/v1/audio/speech", "/v1/compare"])
def test_bodies_that_are_no_json(client, path, body):
    assert_refused(client.post(path, content=body, headers={"content-type": "application/json"}), 400)


def test_nan_is_no_speed_in_a_form_either(client):
    fields = {"input": (None, "Hi."), "voice": (None, "Anna"), "speed": (None, "nan")}
    assert assert_refused(client.post("/v1/audio/speech", files=fields), 400)["param"] == "speed"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
@pytest.mark.parametrize("path", ["/v1/audio/speech", "/v1/compare", "/v1/audio/voices"])
def test_kinds_of_body_that_are_not_read(client, path, kind):
    response = client.post(path, content=b"{}", headers={"content-type": kind})
    assert_refused(response, 415, "unsupported_media_type")


def test_forms_that_are_broken(client):
    headers = {"content-type": "multipart/form-data"}
    assert_refused(client.post("/v1/audio/speech", content=b"x", headers=headers), 400)
    headers = {"content-type": "multipart/form-data; boundary=b"}
    assert_refused(client.post("/v1/audio/speech", content=b"--b\r\nnonsense", headers=headers), 400)
    assert_refused(client.post("/v1/audio/speech", files={"input": (None, "Hi.")}), 400, "missing_voice")


def test_an_upload_that_is_no_audio(client):
    files = {"ref_audio": ("me.wav", b"MZ" * 2000)}
    data = {"input": "Hi.", "consent": "own-voice", "consent_by": "Anna"}
    error = assert_refused(client.post("/v1/audio/speech", data=data, files=files), 400, "invalid_audio")
    assert "me.wav" in error["message"]
    both = client.post("/v1/audio/speech", data={**data, "voice": "Anna"}, files=files)
    assert_refused(both, 400, "invalid_value")


@pytest.mark.parametrize("name", ["../../etc/passwd", "a" * 300 + ".wav", "", "\x00", "😀.wav"])
def test_names_of_uploads_lead_nowhere(client, name):
    data = {"input": "Hi.", "consent": "own-voice", "consent_by": "Anna"}
    files = {"ref_audio": (name or "x", b"not audio")}
    assert_refused(client.post("/v1/audio/speech", data=data, files=files), 400)


@pytest.mark.parametrize(
    "fields",
    [
        {"voices": ["Anna"]},
        {"voices": []},
        {"voices": ["Anna"] * 9},
        {"voices": "Anna"},
        {"input": ""},
        {"speed": 9},
        {"response_format": "x"},
        {"model": "gpt"},
    ],
)
def test_comparisons_of_nothing(client, fields):
    body = {"voices": ["Anna", "Tuned"], "input": "Hi.", **fields}
    assert_refused(client.post("/v1/compare", json=body), 404 if "model" in fields else 400)


def test_paths_and_methods_that_are_not_there(client):
    assert_refused(client.get("/v1/nothing"), 404)
    assert_refused(client.get("/v1/audio/speech"), 405)
    assert_refused(client.get("/docs"), 404)


def test_a_body_beyond_the_limit_is_not_read(context):
    small = client_of(create_api(context, max_body_bytes=1000))
    body = ask(input="a" * 2000)
    assert_refused(small.post("/v1/audio/speech", json=body), 413, "too_large")

    def in_pieces():
        for _ in range(100):
            yield b"a" * 100

    response = small.post("/v1/audio/speech", content=in_pieces(), headers={"content-type": "application/json"})
    assert_refused(response, 413, "too_large")
    assert small.post("/v1/audio/speech", json=ask(stream=False)).status_code == 200


def test_errors_name_no_path_of_the_server(context, tmp_path, monkeypatch):
    def fail(*_):
        raise VoiceError(f"{tmp_path}/voices/1/custom_voice/generation_config.json cannot be used. Import it again.")

    monkeypatch.setattr(type(context.voices), "get", fail)
    response = client_of(create_api(context)).post("/v1/audio/speech", json=ask())
    assert_refused(response, 400, "invalid_voice")
    assert str(tmp_path) not in response.text
    assert "generation_config.json cannot be used" in response.text


def test_a_fault_of_ours_says_nothing_about_itself(context, monkeypatch):
    def fail(*_):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(type(context.voices), "list", fail)
    response = client_of(create_api(context), raise_server_exceptions=False).get("/v1/audio/voices")
    assert_refused(response, 500, "internal_error")
    assert "secret" not in response.text
