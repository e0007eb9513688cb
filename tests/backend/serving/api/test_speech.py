"""Speech over HTTP: every format, streamed and whole, stored voices and one that comes with the request."""

from __future__ import annotations

import base64
import io
import json
import re
import wave

import av
import psutil
import pytest

from backend.serving.engine.frame_pace import MAX_LEAD_SECONDS
from tests.backend.serving.api.served import MODEL, ask, is_same_sound, wav_samples
from tests.golden import GOLDEN_CHECKPOINT

CONTENT_TYPES = {
    "wav": "audio/wav",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "m4a": "audio/mp4",
    "pcm": "audio/pcm",
}


def speak(client, **fields) -> bytes:
    response = client.post("/v1/audio/speech", json=ask(**fields))
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == CONTENT_TYPES[fields.get("response_format", "pcm")]
    return response.content


@pytest.fixture(scope="module")
def whole(client) -> bytes:
    """The sound that everything else is compared with."""
    return speak(client, stream=False)


def test_streamed_sound_is_the_whole_take(client, whole):
    assert len(whole) > 2 * 1920
    assert is_same_sound(speak(client), whole)


def test_a_whole_take_says_how_it_went(client):
    response = client.post("/v1/audio/speech", json=ask(stream=False))
    seconds = float(response.headers["x-encore-seconds"])
    assert seconds == pytest.approx(len(response.content) / 2 / 24_000, abs=1e-3)
    assert response.headers["x-encore-seeds"] == "1"
    assert response.headers["x-encore-finish-reason"] in ("eos", "length")
    assert float(response.headers["x-encore-real-time-factor"]) > 0


def test_wav_holds_the_same_sound_with_its_true_length(client, whole):
    with wave.open(io.BytesIO(speak(client, response_format="wav", stream=False))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        assert is_same_sound(file.readframes(file.getnframes()), whole)
    assert is_same_sound(wav_samples(speak(client, response_format="wav")), whole)


@pytest.mark.parametrize("form", ["flac", "mp3", "opus", "aac", "m4a"])
def test_compressed_streams_can_be_played(client, whole, form):
    content = speak(client, response_format=form)
    with av.open(io.BytesIO(content)) as container:
        frames = list(container.decode(audio=0))
    seconds = sum(frame.samples / frame.sample_rate for frame in frames)
    # Lossy formats pad at both ends.
    assert seconds == pytest.approx(len(whole) / 48_000, abs=0.15)
    if form == "flac":
        assert is_same_sound(b"".join(frame.to_ndarray().tobytes() for frame in frames), whole)


def test_what_cannot_be_streamed_is_sent_whole_and_not_in_events(client):
    response = client.post("/v1/audio/speech", json=ask(response_format="m4a"))
    assert int(response.headers["content-length"]) == len(response.content)
    assert "x-encore-seconds" in response.headers
    refused = client.post("/v1/audio/speech", json=ask(response_format="m4a", stream_format="sse"))
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "response_format"


def test_mp3_is_the_default_format(client):
    body = ask()
    del body["response_format"], body["model"]
    response = client.post("/v1/audio/speech", json=body)
    assert response.status_code == 200
    assert response.headers["content-type"] == "audio/mpeg"


def test_speed_changes_the_length(client, whole):
    fast = speak(client, speed=2.0, stream=False)
    assert len(fast) == pytest.approx(len(whole) / 2, rel=0.1)


def test_events_carry_the_same_sound(client, whole):
    response = client.post("/v1/audio/speech", json=ask(stream_format="sse"))
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line.removeprefix("data: ")) for line in response.text.split("\n\n") if line]
    deltas, done = events[:-1], events[-1]
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    assert is_same_sound(b"".join(base64.b64decode(event["audio"]) for event in deltas), whole)
    assert len(deltas) > 2
    assert 0 <= deltas[0]["lead_seconds"] <= MAX_LEAD_SECONDS
    assert not any("lead_seconds" in event for event in deltas[1:])
    assert done["type"] == "speech.audio.done"
    assert done["usage"]["total_tokens"] == done["usage"]["input_tokens"] + done["usage"]["output_tokens"]


def test_a_voice_by_id_in_any_case_and_with_another_seed(client, voices, whole):
    assert is_same_sound(speak(client, voice={"id": voices.get("Anna").id}), whole)
    assert is_same_sound(speak(client, voice="ANNA"), whole)
    assert not is_same_sound(speak(client, seed=2), whole)


def test_a_fine_tuned_voice_speaks_with_its_own_weights(client, whole):
    tuned = speak(client, voice="Tuned")
    assert not is_same_sound(tuned, whole)
    assert is_same_sound(speak(client, voice="tuned", stream=False), tuned)


def form_of(recording, **fields):
    return {
        "data": {"input": "Hi.", "seed": "1", "response_format": "pcm", **fields},
        "files": {"ref_audio": ("me.wav", recording.read_bytes(), "audio/wav")},
    }


def test_a_recording_speaks_once(client, recording, voices, whole):
    before = voices.list()
    form = form_of(recording, consent="own-voice", consent_by="Anna")
    response = client.post("/v1/audio/speech", **form)
    assert response.status_code == 200, response.text
    # The same recording without transcript, so the same voice.
    assert is_same_sound(response.content, whole)
    in_context = client.post(
        "/v1/audio/speech", **form_of(recording, consent="own-voice", consent_by="A", ref_text="Ah.")
    )
    assert in_context.status_code == 200
    assert not is_same_sound(in_context.content, whole)
    assert voices.list() == before


def test_a_form_may_name_a_stored_voice(client, whole):
    fields = {"input": "Hi.", "seed": "1", "response_format": "pcm", "voice": "Anna", "speed": "1.0", "stream": "false"}
    response = client.post("/v1/audio/speech", files={name: (None, value) for name, value in fields.items()})
    assert response.status_code == 200, response.text
    assert is_same_sound(response.content, whole)


def test_a_recording_without_consent_speaks_never(client, recording):
    for fields in ({}, {"consent": "own-voice"}, {"consent_by": "Anna"}, {"consent": "own-voice", "consent_by": " "}):
        response = client.post("/v1/audio/speech", **form_of(recording, **fields))
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "consent_required"


def test_two_voices_say_the_same(client, whole):
    response = client.post(
        "/v1/compare", json={"voices": ["Anna", "Tuned"], "input": "Hi.", "seed": 1, "response_format": "pcm"}
    )
    assert response.status_code == 200, response.text
    body = response.json()
    first, second = (base64.b64decode(take["audio"]) for take in body["takes"])
    assert [take["voice"] for take in body["takes"]] == ["Anna", "Tuned"]
    assert is_same_sound(first, whole)
    assert is_same_sound(second, speak(client, voice="Tuned"))
    assert body["seed"] == 1


def test_a_comparison_with_a_voice_that_is_not_there(client):
    response = client.post("/v1/compare", json={"voices": ["Anna", "Nobody"], "input": "Hi."})
    assert response.status_code == 404


def test_what_is_counted(client):
    client.post("/v1/audio/speech", json=ask(stream=False))
    text = client.get("/metrics").text
    numbers = {line.split(" ")[0]: float(line.split(" ")[1]) for line in text.splitlines() if not line.startswith("#")}
    assert numbers['encore_speeches_total{outcome="done"}'] >= 1
    assert numbers["encore_active_speeches"] == 0
    assert numbers["encore_audio_seconds_total"] > 0
    assert numbers['encore_engine{engine="base",number="num_slots"}'] == 4


def test_memory_by_owner(client):
    client.post("/v1/audio/speech", json=ask(stream=False))
    text = client.get("/metrics").text
    owners = {
        owner: float(num_bytes)
        for owner, num_bytes in re.findall(
            r'^encore_memory_bytes{device="cpu",owner="(\w+)"} (\S+)$', text, re.MULTILINE
        )
    }
    resident = psutil.Process().memory_info().rss
    assert owners.keys() == {
        "weights", "adapters", "kv_caches", "decoder_states", "graphs", "voices", "audio_buffers", "arena", "libraries",
        "other",
    }  # fmt: skip
    weights = sum(file.stat().st_size for file in GOLDEN_CHECKPOINT.rglob("*.safetensors"))
    # Stored in 16 bits and computed in 32; two engines may be loaded.
    assert weights / 2 < owners["weights"] < 8 * weights
    assert min(owners["kv_caches"], owners["decoder_states"], owners["voices"], owners["other"]) > 0
    assert owners["audio_buffers"] == 0
    assert sum(owners.values()) == pytest.approx(resident, rel=0.2)


def test_models_and_health(client):
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == [MODEL]
    assert client.get("/healthz").json() == {"status": "ok", "model": MODEL, "num_replicas": 1}
