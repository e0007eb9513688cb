"""The official client against a real server: nothing about it is changed but the address."""

from __future__ import annotations

import asyncio
import base64
import json
import threading

import openai
import pytest
import uvicorn

from backend.serving.api.factory import create_api
from tests.backend.serving.api.served import MODEL, TEXT, ask, is_same_sound, wait_until

KEY = "test-key"


@pytest.fixture(scope="module")
def server(context):
    config = uvicorn.Config(create_api(context, api_keys=(KEY,)), host="127.0.0.1", port=0, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive(), "the server listens")
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/v1"
    server.should_exit = True
    thread.join(90)
    assert not thread.is_alive()


@pytest.fixture
def openai_client(server):
    with openai.OpenAI(base_url=server, api_key=KEY, max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture
def expected(client):
    return client.post("/v1/audio/speech", json=ask(stream=False)).content


def test_create_gives_the_whole_take(openai_client, expected):
    response = openai_client.audio.speech.create(
        model=MODEL, voice="Anna", input=TEXT, response_format="pcm", extra_body={"seed": 1}
    )
    assert is_same_sound(response.content, expected)


def test_streaming_gives_it_in_pieces(openai_client, voices, expected, tmp_path):
    request = openai_client.audio.speech.with_streaming_response.create(
        model=MODEL, voice={"id": voices.get("Anna").id}, input=TEXT, response_format="pcm", extra_body={"seed": 1}
    )
    with request as response:
        pieces = list(response.iter_bytes(chunk_size=None))
    assert is_same_sound(b"".join(pieces), expected)
    assert len(pieces) > 1
    with openai_client.audio.speech.with_streaming_response.create(
        model=MODEL, voice="Anna", input=TEXT, response_format="mp3"
    ) as response:
        response.stream_to_file(tmp_path / "take.mp3")
    assert (tmp_path / "take.mp3").stat().st_size > 1000


def test_streaming_events(openai_client, expected):
    with openai_client.audio.speech.with_streaming_response.create(
        model=MODEL, voice="Anna", input=TEXT, response_format="pcm", stream_format="sse", extra_body={"seed": 1}
    ) as response:
        events = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: ")]
    sound = b"".join(base64.b64decode(event["audio"]) for event in events if event["type"] == "speech.audio.delta")
    assert is_same_sound(sound, expected)
    assert events[-1]["type"] == "speech.audio.done"


def test_models_are_listed(openai_client):
    assert [model.id for model in openai_client.models.list()] == [MODEL]


def test_errors_are_the_clients_own(openai_client, server):
    with pytest.raises(openai.NotFoundError, match="Nobody") as caught:
        openai_client.audio.speech.create(model=MODEL, voice="Nobody", input=TEXT)
    assert caught.value.code == "voice_not_found"
    with pytest.raises(openai.BadRequestError, match="instructions"):
        openai_client.audio.speech.create(model=MODEL, voice="Anna", input=TEXT, instructions="Whisper.")
    with (
        openai.OpenAI(base_url=server, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


def test_the_asynchronous_client_too(server, expected):
    async def speak():
        async with (
            openai.AsyncOpenAI(base_url=server, api_key=KEY, max_retries=0, timeout=120) as client,
            client.audio.speech.with_streaming_response.create(
                model=MODEL, voice="Anna", input=TEXT, response_format="pcm", extra_body={"seed": 1}
            ) as response,
        ):
            return b"".join([piece async for piece in response.iter_bytes()])

    assert is_same_sound(asyncio.run(speak()), expected)


def test_a_connection_that_is_dropped_frees_the_slot(openai_client, synthesizer, context):
    with openai_client.audio.speech.with_streaming_response.create(
        model=MODEL, voice="Anna", input="One two three four five six seven. " * 20, response_format="pcm"
    ) as response:
        next(response.iter_bytes(chunk_size=None))
    wait_until(lambda: synthesizer.statistics()["base"].num_active == 0, "the slot is free")
    wait_until(lambda: context.service.num_requests == 0, "the request is over")
