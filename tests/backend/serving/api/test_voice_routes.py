"""Voices over HTTP: made, listed, spoken with at once, deleted; never without consent."""

from __future__ import annotations

import pytest

from backend.audio.writing import write_wav
from backend.provenance.statement import SpeechStatement
from backend.store.trash import Trash
from backend.voices.styles import StyleClip
from tests.backend.serving.api.served import CONSENT, MODEL, ask, is_same_sound
from tests.backend.voices.checkpoints import fine_tuned_checkpoint
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import RATE, speak_like, write_broken


def create(client, recording, **fields):
    data = {"name": "Berta", "consent": "speaker-agreed", "consent_by": "Ben", **fields}
    files = {"audio_sample": ("berta.wav", recording.read_bytes(), "audio/wav")}
    return client.post("/v1/audio/voices", data={k: v for k, v in data.items() if v is not None}, files=files)


@pytest.fixture
def berta(client, recording):
    response = create(client, recording, ref_text="Hello.", language="english")
    assert response.status_code == 201, response.text
    yield response.json()
    client.delete("/v1/audio/voices/Berta")


def test_a_new_voice_speaks_without_a_restart_and_is_gone_when_deleted(client, berta, voices):
    assert berta["name"] == "Berta"
    assert berta["kind"] == "zero-shot"
    assert berta["has_transcript"] is True
    assert berta["consent"]["who"] == "Ben"
    assert client.post("/v1/audio/speech", json=ask(voice="Berta", language="auto")).status_code == 200
    assert "Berta" in client.get("/v1/audio/voices").json()["voices"]
    assert client.get(f"/v1/audio/voices/{berta['id']}").json() == berta
    folder = voices.get("Berta").folder
    assert client.delete("/v1/audio/voices/berta").json() == {"id": berta["id"], "object": "voice", "deleted": True}
    assert not folder.exists()
    assert client.post("/v1/audio/speech", json=ask(voice="Berta")).status_code == 404
    assert client.delete("/v1/audio/voices/Berta").status_code == 404


def test_instructions_choose_one_of_the_voices_styles(client, voices, recording, tmp_path):
    folder = fine_tuned_checkpoint(tmp_path / "styled")
    checkpoints = {"custom_voice": folder, "base": GOLDEN_CHECKPOINT}
    styles = [StyleClip(name="calm", clip=recording, text="Hello.")]
    voice = voices.add_fine_tuned(
        "Styled", checkpoints, consent=CONSENT, model=MODEL, reference=recording, styles=styles
    )
    try:
        assert client.get("/v1/audio/voices/Styled").json()["styles"] == ["calm"]
        calm = client.post("/v1/audio/speech", json=ask(voice="Styled", instructions=" Calm"))
        usual = client.post("/v1/audio/speech", json=ask(voice="Styled"))
        assert (calm.status_code, usual.status_code) == (200, 200)
        assert not is_same_sound(calm.content, usual.content)
        assert client.get("/v1/audio/takes").json()["data"][1]["style"] == "calm"
        refused = client.post("/v1/audio/speech", json=ask(voice="Styled", instructions="Speak angrily."))
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["param"]) == (400, "unknown_style", "instructions")
        assert "It has: calm." in error["message"]
    finally:
        voices.trash.purge(voices.delete(voice.id).id)
    refused = client.post("/v1/audio/speech", json=ask(voice="Tuned", instructions="calm"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_parameter")


def test_a_deleted_voice_is_restored_with_its_consent_unless_its_name_is_taken(client, berta, recording):
    client.delete("/v1/audio/voices/Berta")
    assert create(client, recording).status_code == 201
    taken = client.post(f"/v1/audio/voices/{berta['id']}/restore")
    assert (taken.status_code, taken.json()["error"]["code"]) == (409, "name_taken")
    client.delete("/v1/audio/voices/Berta?for_good=true")
    assert client.post("/v1/audio/voices/berta/restore").json() == berta
    assert client.get("/v1/audio/voices/Berta").json() == berta
    assert client.post("/v1/audio/speech", json=ask(voice="Berta", language="auto")).status_code == 200
    again = client.post(f"/v1/audio/voices/{berta['id']}/restore")
    assert (again.status_code, again.json()["error"]["code"]) == (404, "not_in_trash")


def test_what_was_deleted_for_good_is_not_restored(client, berta):
    client.delete("/v1/audio/voices/Berta?for_good=true")
    assert client.post(f"/v1/audio/voices/{berta['id']}/restore").status_code == 404


def test_deleting_for_good_while_the_trash_is_emptied_is_no_error(client, berta, monkeypatch):
    """It was 404: the voice was gone as it was to be, but by another process."""
    put = Trash.put

    def put_and_empty(trash, *arguments, **options):
        deleted = put(trash, *arguments, **options)
        trash.empty()
        return deleted

    monkeypatch.setattr(Trash, "put", put_and_empty)
    assert client.delete("/v1/audio/voices/Berta?for_good=true").status_code == 200
    assert client.get("/v1/audio/voices/Berta").status_code == 404


def test_nothing_tells_where_the_files_are(client, voices):
    text = client.get("/v1/audio/voices").text
    assert str(voices.folder) not in text


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"consent": None}, 400, "consent_required"),
        ({"consent_by": None}, 400, "consent_required"),
        ({"consent_by": "  "}, 400, "consent_required"),
        ({"consent": "sure"}, 400, "invalid_value"),
        ({"name": "anna"}, 409, "voice_exists"),
        ({"name": "../x"}, 400, "invalid_name"),
        ({"name": ""}, 400, "invalid_value"),
        ({"name": None}, 400, "invalid_value"),
        ({"language": "a b"}, 400, "invalid_value"),
        ({"surprise": "1"}, 400, "invalid_value"),
    ],
)
def test_voices_that_are_not_made(client, recording, voices, fields, status, code):
    before = voices.list()
    response = create(client, recording, **fields)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code), response.text
    assert voices.list() == before


def test_a_recording_that_is_none_or_missing(client, tmp_path):
    broken = create(client, write_broken(tmp_path / "broken.wav"))
    assert (broken.status_code, broken.json()["error"]["code"]) == (400, "invalid_audio")
    assert "berta.wav" in broken.json()["error"]["message"]
    data = {"name": "Berta", "consent": "own-voice", "consent_by": "Ben"}
    missing = client.post("/v1/audio/voices", files={name: (None, value) for name, value in data.items()})
    assert (missing.status_code, missing.json()["error"]["code"]) == (400, "missing_audio")
    misnamed = client.post("/v1/audio/voices", data=data, files={"file": ("a.wav", b"x")})
    assert misnamed.status_code == 400


def test_a_deleted_voice_leaves_no_weights_in_memory(client, voices, synthesizer, tmp_path):
    folder = fine_tuned_checkpoint(tmp_path / "custom_voice", scale=1.2)
    voice = voices.add_fine_tuned("Gone", {"custom_voice": folder}, consent=CONSENT, model=MODEL)
    assert client.post("/v1/audio/speech", json=ask(voice="Gone")).status_code == 200
    assert len(synthesizer.statistics()) == 2
    assert client.delete("/v1/audio/voices/Gone").status_code == 200
    assert set(synthesizer.statistics()) == {"base"}
    assert not voice.folder.exists()
    assert client.post("/v1/audio/speech", json=ask(voice="Gone")).status_code == 404


def test_a_recording_that_encore_made_is_asked_about(client, tmp_path):
    path = tmp_path / "made.wav"
    write_wav(path, speak_like(2.0), RATE, SpeechStatement().as_comment())
    answer = create(client, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "made_by_encore")
    assert answer.json()["error"]["param"] == "accept_synthetic"
    assert create(client, path, accept_synthetic="true").status_code == 201
    client.delete("/v1/audio/voices/Berta")
