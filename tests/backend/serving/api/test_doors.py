"""Every door of the API: what comes out is marked and says that it is synthetic, signed where a whole file can be."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import soundfile

from backend.audio.formats import AUDIO_FORMATS, FORMAT_TABLE
from backend.audio.pcm16 import wav_header
from backend.provenance.check import Checker
from backend.provenance.signing import FileSigner
from backend.provenance.statement import SpeechStatement
from backend.serving.api.factory import create_api
from backend.serving.api.streaming import PROVENANCE_HEADER
from backend.serving.voice_resolver import checkpoint_of
from backend.store.home import Home
from backend.takes.takes import Takes
from tests.backend.serving.api.served import CONSENT, ask, client_of
from training.model.checkpoint.digest import checkpoint_digest

SPEECH, COMPARE, TAKE = "/v1/audio/speech", "/v1/compare", "/v1/audio/takes/{take_id}/content"
RATE = 24_000
WALKED = {("post", SPEECH), ("post", COMPARE), ("get", TAKE)}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def signing(context, voices, home):
    """The same API with a certificate of its own."""
    signer = FileSigner(home)
    takes = Takes(Home(voices.folder.parent), signer=signer)
    return replace(context, signer=signer, checker=Checker(home), takes=takes)


@pytest.fixture(scope="module")
def client(signing):
    return client_of(create_api(signing))


@pytest.fixture
def check(home, tmp_path):
    """Looks a file up by its bytes; raw samples get a header."""

    def look_up(content, audio_format="wav"):
        path = tmp_path / "heard"
        head = wav_header(RATE, num_bytes=len(content)) if audio_format == "pcm" else b""
        path.write_bytes(head + content)
        return Checker(home).check(path)

    return look_up


def test_every_route_that_hands_out_sound_is_walked_here(signing):
    """Found in the API's own description: audio as a body, or as base64 in a field called audio."""
    document = create_api(signing).openapi()
    doors = set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            content = operation["responses"].get("200", {}).get("content", {})
            fields = _fields(content.get("application/json", {}).get("schema", {}), document)
            if any(kind.startswith("audio/") for kind in content) or "audio" in fields:
                doors.add((method, path))
    assert doors == WALKED


def _fields(schema, document, seen=()):
    """Names of all fields below a schema."""
    if isinstance(schema, list):
        return {name for one in schema for name in _fields(one, document, seen)}
    if not isinstance(schema, dict):
        return set()
    reference = schema.get("$ref")
    if reference:
        name = reference.rpartition("/")[2]
        return set() if name in seen else _fields(document["components"]["schemas"][name], document, (*seen, name))
    below = {name for value in schema.values() for name in _fields(value, document, seen)}
    return below | set(schema.get("properties", {}))


def stated(response):
    return SpeechStatement.model_validate_json(response.headers[PROVENANCE_HEADER])


@pytest.mark.parametrize("audio_format", AUDIO_FORMATS)
def test_a_whole_file_is_signed_where_its_format_can_be(client, voices, check, audio_format):
    consent = voices.get("Anna").consent
    response = client.post(SPEECH, json=ask(response_format=audio_format, stream=False))
    said = stated(response)
    assert (said.voice, said.consent, said.consent_sha256) == ("zero-shot", CONSENT.statement, consent.digest)
    assert len(said.checkpoint) == 64
    assert CONSENT.who not in response.headers[PROVENANCE_HEADER]
    verdict = check(response.content, audio_format)
    assert verdict.watermark is not None
    assert verdict.comment == (said if FORMAT_TABLE[audio_format].has_comment else None)
    if FORMAT_TABLE[audio_format].signed_as:
        assert (verdict.signed.trust, verdict.signed.is_synthetic, verdict.signed.statement) == ("ours", True, said)
    else:
        assert verdict.signed is None


@pytest.mark.parametrize("audio_format", AUDIO_FORMATS)
def test_a_stream_says_it_in_its_header_and_its_comment_and_is_signed_when_it_is_kept(
    client, voices, check, audio_format
):
    response = client.post(SPEECH, json=ask(voice="Tuned", response_format=audio_format))
    said = stated(response)
    assert (said.voice, said.checkpoint) == ("fine-tuned", checkpoint_digest(checkpoint_of(voices.get("Tuned"))))
    streamed = check(response.content, audio_format)
    assert streamed.watermark is not None
    if FORMAT_TABLE[audio_format].has_comment:
        assert streamed.comment == said
    take = client.get("/v1/audio/takes").json()["data"][0]
    kept = client.get(TAKE.format(take_id=take["id"]))
    assert stated(kept) == said
    verdict = check(kept.content)
    assert verdict.watermark is not None
    if audio_format != "aac":
        assert verdict.statement_ids == (said.id,)
        is_signed = audio_format in ("wav", "flac", "mp3", "m4a", "pcm")
        assert (verdict.signed.trust if verdict.signed else None) == ("ours" if is_signed else None)


def test_events_say_it_in_the_header(client, check):
    response = client.post(SPEECH, json=ask(stream_format="sse"))
    assert stated(response).voice == "zero-shot"
    events = [json.loads(line.removeprefix("data: ")) for line in response.text.split("\n\n") if line]
    sound = b"".join(base64.b64decode(event["audio"]) for event in events if "audio" in event)
    assert check(sound, "pcm").watermark is not None


def test_speaker_and_text_are_told_in_the_signed_statement_alone_and_only_if_asked(client, check):
    asked = {"name_speaker": True, "name_text": True}
    response = client.post(SPEECH, json=ask(response_format="m4a", stream=False, **asked))
    verdict = check(response.content)
    assert (verdict.signed.statement.speaker, verdict.signed.statement.text) == ("Anna", ask()["input"])
    for said in (stated(response), verdict.comment):
        assert (said.speaker, said.text) == (None, None)
    assert ["“Anna”" in line for line in verdict.lines].count(True) == 1
    silent = client.post(SPEECH, json=ask(response_format="m4a", stream=False))
    assert b"Anna" not in silent.content


def test_compared_takes_are_signed(client, check):
    asked = {"input": "Hi.", "voices": ["Anna", "Tuned"], "seed": 1, "response_format": "wav"}
    takes = client.post(COMPARE, json=asked).json()["takes"]
    verdicts = [check(base64.b64decode(take["audio"])) for take in takes]
    assert [one.signed.statement.voice for one in verdicts] == ["zero-shot", "fine-tuned"]
    assert all(one.watermark is not None for one in verdicts)


def test_a_file_is_looked_up_through_the_api(client, signing):
    heard = client.post(SPEECH, json=ask(response_format="wav", stream=False))
    found = client.post("/v1/audio/check", files={"file": ("heard.wav", heard.content)}).json()
    (take, *_) = signing.takes.list("")
    assert (found["is_made_by_encore"], found["signed"]["trust"]) == (True, "ours")
    assert found["take"]["id"] == take.id
    assert any("unchanged since" in line for line in found["says"])
    changed = bytearray(heard.content)
    changed[len(changed) // 4] ^= 1
    found = client.post("/v1/audio/check", files={"file": ("heard.wav", bytes(changed))}).json()
    assert found["signed"]["trust"] == "changed"
    soundfile.write(unmarked := io.BytesIO(), np.sin(np.arange(24_000) / 20) / 4, 24_000, format="wav")
    found = client.post("/v1/audio/check", files={"file": ("tone.wav", unmarked.getvalue())}).json()
    assert not found["is_made_by_encore"]
    assert "does not mean" in found["says"][-1]
    told = client.get("/v1/audio/check").json()
    assert told["signed_formats"] == ["wav", "flac", "mp3", "m4a"]
    assert "BEGIN CERTIFICATE" in told["certificates"]
    assert "PRIVATE" not in json.dumps(told)


def test_what_is_no_recording_is_refused(client):
    answer = client.post("/v1/audio/check", files={"file": ("x.wav", b"no sound")})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_audio")
    assert client.post("/v1/audio/check", files={}).status_code in (400, 415)
