"""Everything an engine speaks carries the mark, whichever way it comes out."""

from __future__ import annotations

import ast
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from pydantic import SecretBytes

from backend.serving.engine.engine import Engine
from backend.serving.speech.audio_stream import AudioStream
from backend.watermark.detector import detect
from backend.watermark.mark import Mark
from training.model.project import PROJECT_FOLDER

KEY = bytes(range(32))


@pytest.fixture(scope="module")
def marking_engine(tiny_model):
    with Engine(
        tiny_model, num_slots=4, cache_length=600, consume=False, mark=Mark(installation_key=SecretBytes(KEY))
    ) as engine:
        yield engine


def speak(engine, request, **options):
    stream = AudioStream.of_engine(engine, request, **({"streaming": False} | options))
    return np.concatenate(list(stream)), stream


@pytest.fixture
def long_request(request_of):
    return replace(request_of, max_frames=80)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("speed", [1.0, 1.5])
def test_speech_says_what_it_is_at_any_speed(marking_engine, long_request, streaming, speed):
    audio, stream = speak(marking_engine, long_request, streaming=streaming, speed=speed)
    assert stream.is_marked
    assert stream.num_samples == round(stream.seconds * stream.sample_rate)
    found = detect(audio, stream.sample_rate, KEY)
    assert found.is_marked
    assert found.payload == stream.payload


def test_an_engine_marks_unless_it_is_told_otherwise(tiny_model, long_request):
    with Engine(tiny_model, num_slots=1, cache_length=600, consume=False) as engine:
        audio, stream = speak(engine, long_request)
    assert stream.is_marked
    assert stream.payload is None
    assert detect(audio, stream.sample_rate).is_marked


def test_unmarked_speech_has_the_networks_samples(engine, long_request):
    audio, stream = speak(engine, long_request)
    assert not stream.is_marked
    assert stream.payload is None
    assert not detect(audio, stream.sample_rate).is_marked


def test_several_at_once_are_marked_as_each_alone(marking_engine, long_request):
    requests = [replace(long_request, seed=seed) for seed in (1, 2, 3)]
    alone = [speak(marking_engine, request) for request in requests]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda request: speak(marking_engine, request), requests))
    for (audio, stream), (other, other_stream) in zip(alone, together, strict=True):
        assert stream.payload == other_stream.payload
        np.testing.assert_allclose(audio, other, atol=1e-4)
    assert len({stream.payload for _, stream in alone}) == 3


def test_nothing_but_the_marked_stream_asks_an_engine_to_speak():
    """A door that asked the engine itself would hand out sound without the mark."""
    asking = set()
    for folder in ("backend", "ui"):
        for path in (PROJECT_FOLDER / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                called = node.func if isinstance(node, ast.Call) else None
                names = {keyword.arg for keyword in node.keywords} if isinstance(node, ast.Call) else set()
                if isinstance(called, ast.Attribute) and called.attr == "submit" and "is_live" in names:
                    asking.add(path.name)
                if isinstance(called, ast.Name) and called.id == "SegmentQueue":
                    asking.add(path.name)
    assert asking == {"segments.py", "engine_source.py"}


def test_the_mark_is_all_that_differs(engine, marking_engine, long_request):
    unmarked, _ = speak(engine, long_request)
    audio, stream = speak(marking_engine, long_request)
    marker = marking_engine.mark.marker(stream.sample_rate, stream.payload)
    np.testing.assert_allclose(np.concatenate([marker.add(unmarked), marker.finish()]), audio, atol=1e-4)
