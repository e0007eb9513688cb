"""A text of any length through an engine, whose pieces are spoken side by side."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from backend.serving.errors import EngineBusy
from backend.serving.speech.audio_stream import AudioStream
from backend.serving.speech.crossfade import CROSSFADE_SECONDS
from tests.backend.serving.conftest import take_of, wait_until
from training.model.generation.finish_reason import FinishReason

SENTENCE = "This is a sentence of some length, which is spoken for the sake of its neighbours. "


@pytest.mark.parametrize("streaming", [False, True])
def test_pieces_come_in_order_and_as_if_alone(engine, request_of, streaming):
    request = replace(request_of, text=SENTENCE * 10, max_frames=6)
    speech = AudioStream.of_engine(engine, request, streaming=streaming)
    audio = np.concatenate(list(speech))
    assert len(speech.segments) >= 4
    takes = [take_of(engine.submit(replace(request, text=piece))).waveform for piece in speech.segments]
    overlap = round(CROSSFADE_SECONDS * speech.sample_rate)
    assert len(audio) == sum(map(len, takes)) - overlap * (len(takes) - 1)
    start = 0
    for take in takes:
        inside = slice(start + overlap, start + len(take) - overlap)
        assert np.abs(audio[inside] - take[overlap:-overlap]).max() < 1e-4
        start += len(take) - overlap
    assert len(speech.finish_reasons) == len(speech.seeds) == len(takes)
    assert speech.seconds_to_first_audio > 0
    assert speech.real_time_factor > 0


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("way", ["cancel", "close", "drop", "callback"])
def test_ending_a_stream_early_frees_the_engine_and_releases_it_once(engine, request_of, way, has_begun):
    left, released = threading.Event(), []
    request = replace(request_of, text=SENTENCE * 10, max_frames=100)
    stream = AudioStream.of_engine(
        engine, request, streaming=True, cancelled=left.is_set, release=lambda: released.append("released")
    )
    if has_begun:
        next(stream)
    if way == "drop":
        # Nothing holds it, not even a cycle: it ends without the garbage collector.
        del stream
    elif way == "close":
        stream.close()
        stream.close()
        assert list(stream) == []
    else:
        left.set() if way == "callback" else stream.cancel()
        list(stream)
        assert stream.finish_reason is FinishReason.CANCELLED
    wait_until(lambda: engine.statistics().num_active + engine.statistics().num_waiting == 0)
    assert released == ["released"]


def test_a_speech_that_finds_no_place_is_refused_at_once(new_engine, request_of, gate):
    with new_engine(num_slots=1, max_waiting=1) as engine:
        # Kept, or their places would be free again at once.
        kept: list[object] = [engine.submit(request_of, cancelled=gate)]
        gate.wait_until_reached()
        with pytest.raises(EngineBusy):
            kept.extend(AudioStream.of_engine(engine, request_of, streaming=True) for _ in range(3))
        gate.open()


@pytest.mark.parametrize("streaming", [False, True])
def test_an_unheard_runaway_is_spoken_again(engine, request_of, monkeypatch, streaming):
    monkeypatch.setattr("training.model.generation.take_request.frame_cap", lambda *args, **kwargs: 3)
    submitted = []
    submit = engine.submit
    monkeypatch.setattr(
        engine, "submit", lambda request, **options: (submitted.append(request), submit(request, **options))[1]
    )
    request = replace(request_of, text=SENTENCE * 7, seed=None, max_frames=None)
    speech = AudioStream.of_engine(engine, request, streaming=streaming)
    chunks = iter(speech)
    first = next(chunks)
    # Whatever was asked for ahead is over now, so that a streamed text can tell, too.
    wait_until(lambda: engine.statistics().num_active + engine.statistics().num_waiting == 0)
    audio = [first, *chunks]
    assert len(np.concatenate(audio)) > 0
    assert set(speech.finish_reasons) <= {FinishReason.LENGTH, FinishReason.EOS}
    retried = len(submitted) - len(speech.segments)
    assert retried >= 1
    if streaming:
        # The first piece is heard as it is made, and cannot be taken back.
        assert retried < len(speech.segments)


def test_a_seed_is_a_promise(engine, request_of, monkeypatch):
    monkeypatch.setattr("training.model.generation.take_request.frame_cap", lambda *args, **kwargs: 3)
    speech = AudioStream.of_engine(
        engine, replace(request_of, text=SENTENCE * 4, seed=9, max_frames=None), streaming=False
    )
    list(speech)
    assert set(speech.seeds) == {9}
