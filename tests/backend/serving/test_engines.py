from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from backend.errors import CheckpointError
from backend.serving.engine import Engine
from backend.serving.engines import Engines
from backend.serving.errors import EngineClosed, TooBusy
from tests.golden import GOLDEN_CHECKPOINT


class Loading:
    """Loads the tiny checkpoint whatever folder is named, and remembers which were."""

    def __init__(self):
        self.folders = []
        self.num_at_once = self.most_at_once = 0
        self._lock = threading.Lock()

    def __call__(self, folder):
        with self._lock:
            self.num_at_once += 1
            self.most_at_once = max(self.most_at_once, self.num_at_once)
            self.folders.append(folder)
        try:
            return Engine.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu", num_slots=2, cache_length=256)
        finally:
            with self._lock:
                self.num_at_once -= 1


@pytest.fixture
def loading():
    return Loading()


@pytest.fixture
def engines(loading):
    made = Engines(loading, most_engines=2)
    yield made
    made.close()


def folders(*names):
    return [Path("/voices", name).resolve() for name in names]


def test_the_one_used_longest_ago_makes_room(engines, loading):
    for name in "abac":
        with engines.use(Path("/voices", name)):
            pass
    assert engines.loaded() == folders("a", "c")
    assert loading.folders == folders("a", "b", "c")


def test_an_engine_in_use_is_never_unloaded(engines):
    with engines.use(Path("/voices/a")) as first:
        for name in "bcb":
            with engines.use(Path("/voices", name)):
                pass
        assert first.is_healthy
        assert folders("a")[0] in engines.loaded()
        with engines.use(Path("/voices/b")), pytest.raises(TooBusy) as refused, engines.use(Path("/voices/c")):
            pass
        assert refused.value.retry_after_seconds > 0
        assert not engines.unload(Path("/voices/a"))
    assert engines.unload(Path("/voices/a"))
    assert not first.is_healthy


def test_many_at_once_load_once(engines, loading):
    together = threading.Barrier(6, timeout=120)

    def use(number):
        together.wait()
        with engines.use(Path("/voices", "ab"[number % 2])) as engine:
            return engine

    with ThreadPoolExecutor(6) as threads:
        used = set(threads.map(use, range(6)))
    assert len(used) == 2
    assert sorted(loading.folders) == folders("a", "b")
    assert loading.most_at_once == 1


def test_a_broken_engine_is_replaced(engines, loading, request_of):
    with engines.use(Path("/voices/a")) as broken:
        broken.close()
    with engines.use(Path("/voices/a")) as fresh:
        assert fresh is not broken
        assert len(fresh.submit(request_of).take().codes) > 0
    assert len(loading.folders) == 2


def test_engines_of_one_checkpoint_speak_alike(engines, request_of):
    with ExitStack() as stack:
        pair = [stack.enter_context(engines.use(Path("/voices", name))) for name in "ab"]
        takes = [handle.take() for handle in [engine.submit(request_of) for engine in pair]]
        assert torch.equal(takes[0].codes, takes[1].codes)
        assert set(engines.statistics()) == set(folders("a", "b"))


def test_what_cannot_be_loaded_says_so_and_holds_nothing(tmp_path):
    engines = Engines()
    with pytest.raises(CheckpointError), engines.use(tmp_path):
        pass
    assert engines.loaded() == []


def test_nothing_is_handed_out_after_closing(engines):
    with engines.use(Path("/voices/a")) as engine:
        engines.close()
        assert not engine.is_healthy
    with pytest.raises(EngineClosed), engines.use(Path("/voices/b")):
        pass
    assert not engines.is_healthy
