"""What the API spoke is kept, told and deleted; what broke off, and what people spoke elsewhere, is not."""

from __future__ import annotations

import io
import wave

import pytest

from backend.serving.api.dependencies import ApiContext
from backend.serving.api.factory import create_api
from backend.store.home import Home
from backend.takes.take import TakeFacts
from backend.takes.takes import Takes
from tests.backend.serving.api.served import TEXT, ask, client_of, wav_samples


@pytest.fixture(autouse=True)
def _empty(takes):
    for take in takes.list():
        takes.delete(take.id)


def only_take(client):
    (take,) = client.get("/v1/audio/takes").json()["data"]
    return take


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("audio_format", ["pcm", "wav", "mp3"])
def test_the_stored_take_equals_the_response(client, audio_format, stream):
    heard = client.post("/v1/audio/speech", json=ask(response_format=audio_format, stream=stream)).content
    take = only_take(client)
    assert (take["voice"], take["input"], take["seeds"], take["made_by"]) == ("Anna", TEXT, [1], "api")
    kept = client.get(f"/v1/audio/takes/{take['id']}/content")
    assert len(kept.content) == take["bytes"]
    if audio_format == "mp3":
        assert (kept.headers["content-type"], kept.content) == ("audio/mpeg", heard)
        return
    with wave.open(io.BytesIO(kept.content)) as file:
        samples = file.readframes(file.getnframes())
        assert file.getnframes() / file.getframerate() == pytest.approx(take["seconds"], abs=0.01)
    assert samples == (heard if audio_format == "pcm" else wav_samples(heard))


@pytest.mark.parametrize(("voice", "model"), [("Anna", "tiny"), ("Tuned", "Tuned")])
def test_a_take_names_the_weights_that_spoke(client, voice, model):
    client.post("/v1/audio/speech", json=ask(voice=voice))
    assert only_take(client)["model"] == model


def test_takes_are_there_after_a_restart_and_gone_when_deleted(client, context, takes):
    client.post("/v1/audio/speech", json=ask())
    take = only_take(client)
    opened_anew = Takes(Home(takes.folder.parent))
    restarted = client_of(
        create_api(ApiContext(service=context.service, voices=context.voices, model_name="x", takes=opened_anew))
    )
    assert restarted.get(f"/v1/audio/takes/{take['id']}").json() == take
    assert opened_anew.get(take["id"]).consent.who == "Anna Example"
    deleted = restarted.delete(f"/v1/audio/takes/{take['id']}").json()
    assert deleted == {"id": take["id"], "object": "take", "deleted": True}
    answer = client.get(f"/v1/audio/takes/{take['id']}/content")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "take_not_found")


def test_a_deleted_take_is_restored_with_its_sound(client):
    client.post("/v1/audio/speech", json=ask())
    take = only_take(client)
    sound = client.get(f"/v1/audio/takes/{take['id']}/content").content
    client.delete(f"/v1/audio/takes/{take['id']}")
    assert client.post(f"/v1/audio/takes/{take['id']}/restore").json() == take
    assert client.get(f"/v1/audio/takes/{take['id']}/content").content == sound
    again = client.post(f"/v1/audio/takes/{take['id']}/restore")
    assert (again.status_code, again.json()["error"]["code"]) == (404, "not_in_trash")


def test_lists_of_people_are_not_told_and_not_touched(client, takes):
    client.post("/v1/audio/speech", json=ask())
    (take,) = takes.list()
    with takes.incoming() as file:
        file.write_bytes(b"x")
        facts = TakeFacts.model_validate({name: getattr(take, name) for name in TakeFacts.model_fields})
        of_somebody = takes.add(facts, file, "a browser")
    assert only_take(client)["id"] == take.id
    for method in ("GET", "DELETE"):
        assert client.request(method, f"/v1/audio/takes/{of_somebody.id}").status_code == 404
    assert takes.get(of_somebody.id)
    takes.delete(of_somebody.id, "a browser")
    assert client.post(f"/v1/audio/takes/{of_somebody.id}/restore").status_code == 404


def test_a_speech_that_is_refused_leaves_no_take(client, takes):
    assert client.post("/v1/audio/speech", json=ask(language="klingon")).status_code == 400
    assert client.get("/v1/audio/takes").json()["data"] == []
    assert not list((takes.folder / "incoming").glob("*"))


def test_where_takes_cannot_be_kept_people_still_hear(context, tmp_path, caplog):
    full = Takes(Home(tmp_path))
    full.folder.write_text("in the way")
    client = client_of(
        create_api(ApiContext(service=context.service, voices=context.voices, model_name="tiny", takes=full))
    )
    assert len(client.post("/v1/audio/speech", json=ask()).content) > 100
    assert "a take is not kept" in caplog.text


def test_without_a_store_no_takes_are_kept(context):
    context = ApiContext(service=context.service, voices=context.voices, model_name="tiny")
    client = client_of(create_api(context))
    assert client.post("/v1/audio/speech", json=ask()).status_code == 200
    assert client.get("/v1/audio/takes").json()["data"] == []
    assert client.get("/v1/audio/takes/x").status_code == 404
