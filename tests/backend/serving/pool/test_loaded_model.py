"""A model ready to speak: its engine lives as long as somebody has it or listens to it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from backend.serving.pool.loaded_model import LoadedModel, ModelShelf
from backend.studio import Studio
from tests.backend.serving.conftest import wait_until
from tests.golden import GOLDEN_CHECKPOINT
from training.model.decoding.frame_loop import FinishReason
from training.model.decoding.take_request import TakeRequest, VoicePrompt

REQUEST = TakeRequest(text="Hello there. And so on.", voice=VoicePrompt(), seed=3, max_frames=20)


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    studio = Studio()
    studio.load_model(str(GOLDEN_CHECKPOINT), precision="fp32", device="cpu")
    return studio


def test_an_engine_ends_with_the_last_who_has_its_model():
    loaded = LoadedModel.load("tiny", GOLDEN_CHECKPOINT, precision="fp32", device="cpu")
    engine = loaded.engine
    assert engine.is_healthy
    del loaded
    assert not engine.is_healthy
    assert not engine._thread.is_alive()


def test_a_model_that_is_replaced_speaks_to_the_end():
    studio = Studio()
    first = studio.load_model(str(GOLDEN_CHECKPOINT), precision="fp32", device="cpu").engine
    speech = studio.speak(studio.loaded, REQUEST, streaming=True)
    chunks = iter(speech.chunks)
    heard = [next(chunks)]
    studio.load_model(str(GOLDEN_CHECKPOINT), precision="fp32", device="cpu")
    assert first.is_healthy
    heard.extend(chunks)
    assert speech.finish_reason is not FinishReason.CANCELLED
    del speech, chunks
    wait_until(lambda: not first.is_healthy)
    assert studio.loaded.engine.is_healthy
    assert sum(map(len, heard)) > 0


def test_the_shelf_lets_go_of_what_it_has_no_room_for(tmp_path):
    shelf = ModelShelf(max_models=1)
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.symlink_to(GOLDEN_CHECKPOINT)
    engine = shelf.get("a", GOLDEN_CHECKPOINT, precision="fp32", device="cpu").engine
    assert shelf.get("b", folders[1], precision="fp32", device="cpu").engine is engine
    shelf.forget(GOLDEN_CHECKPOINT)
    assert not engine.is_healthy


def test_two_listeners_of_one_studio_take_turns_and_hear_what_each_would_alone(studio):
    alone = np.concatenate(list(studio.speak(studio.loaded, REQUEST, streaming=True)))
    heard = {}

    def listen(number):
        heard[number] = np.concatenate(list(studio.speak(studio.loaded, REQUEST, streaming=True)))

    listeners = [threading.Thread(target=listen, args=(number,)) for number in range(3)]
    for listener in listeners:
        listener.start()
    for listener in listeners:
        listener.join()
    assert all(np.array_equal(heard[number], alone) for number in range(3))


def test_what_is_stopped_ends_at_once_whatever_was_made_ahead(studio):
    stopped = threading.Event()
    speech = studio.speak(studio.loaded, REQUEST, streaming=True, cancelled=stopped.is_set)
    chunks = iter(speech.chunks)
    next(chunks)
    engine = studio.loaded.engine
    # Nobody listens, and the engine goes on until it has made all of the sentence.
    wait_until(lambda: engine.statistics().num_active == 0)
    samples_before = speech.num_samples
    stopped.set()
    rest = sum(len(chunk) for chunk in chunks)
    assert speech.finish_reason is FinishReason.CANCELLED
    # No more than what was held back to fade it out.
    assert rest < 0.02 * engine.sample_rate
    assert speech.num_samples == samples_before + rest
