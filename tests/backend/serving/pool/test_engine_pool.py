from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import torch

from backend.errors import CheckpointError
from backend.serving.engine.engine import Engine
from backend.serving.errors import EngineBusy, EngineClosed
from backend.serving.pool.engine_pool import EnginePool
from tests.backend.serving.conftest import take_of
from tests.golden import GOLDEN_CHECKPOINT


class Loading:
    """Loads the tiny checkpoint whatever folder is named, and remembers which were."""

    def __init__(self):
        self.folders = []
        self.num_at_once = self.max_at_once = 0
        self._lock = threading.Lock()

    def __call__(self, folder):
        with self._lock:
            self.num_at_once += 1
            self.max_at_once = max(self.max_at_once, self.num_at_once)
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
    made = EnginePool(loading, max_engines=2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """Folders that are there; what is in them is the tiny checkpoint's anyway."""
    folder = tmp_path_factory.mktemp("voices")
    for name in "abc":
        (folder / name).mkdir()
    return folder


def names_of(engines):
    return [folder.name for folder in engines.loaded()]


def test_the_one_used_longest_ago_makes_room(engines, shelf, loading):
    for name in "abac":
        with engines.use(shelf / name):
            pass
    assert names_of(engines) == ["a", "c"]
    assert [folder.name for folder in loading.folders] == ["a", "b", "c"]


def test_an_engine_in_use_is_never_unloaded(engines, shelf):
    with engines.use(shelf / "a") as first:
        for name in "bcb":
            with engines.use(shelf / name):
                pass
        assert first.is_healthy
        assert "a" in names_of(engines)
        with engines.use(shelf / "b"), pytest.raises(EngineBusy) as refused, engines.use(shelf / "c"):
            pass
        assert refused.value.retry_after_seconds > 0
        assert not engines.unload(shelf / "a")
    assert engines.unload(shelf / "a")
    assert not first.is_healthy


def test_many_at_once_load_once(engines, shelf, loading):
    together = threading.Barrier(6, timeout=120)

    def use(number):
        together.wait()
        with engines.use(shelf / "ab"[number % 2]) as engine:
            return engine

    with ThreadPoolExecutor(6) as threads:
        used = set(threads.map(use, range(6)))
    assert len(used) == 2
    assert sorted(folder.name for folder in loading.folders) == ["a", "b"]
    assert loading.max_at_once == 1


def test_a_broken_engine_is_replaced(engines, shelf, loading, request_of):
    with engines.use(shelf / "a") as broken:
        broken.close()
    with engines.use(shelf / "a") as fresh:
        assert fresh is not broken
        assert len(take_of(fresh.submit(request_of)).codes) > 0
    assert len(loading.folders) == 2


def test_engines_of_one_checkpoint_speak_alike(engines, shelf, request_of):
    with ExitStack() as stack:
        pair = [stack.enter_context(engines.use(shelf / name)) for name in "ab"]
        takes = [take_of(handle) for handle in [engine.submit(request_of) for engine in pair]]
        assert torch.equal(takes[0].codes, takes[1].codes)
        assert {folder.name for folder in engines.statistics()} == {"a", "b"}


def test_what_cannot_be_loaded_says_so_and_holds_nothing(tmp_path):
    engines = EnginePool()
    with pytest.raises(CheckpointError), engines.use(tmp_path):
        pass
    assert engines.loaded() == []


def test_what_is_deleted_is_let_go_of(engines, shelf, request_of):
    gone = shelf / "gone"
    gone.mkdir()
    with engines.use(gone) as engine:
        gone.rmdir()
        engines.unload_deleted()
        # Whoever listens hears it to the end.
        assert len(take_of(engine.submit(request_of)).codes) > 0
    assert names_of(engines) == []
    assert not engine.is_healthy
    gone.mkdir()
    with engines.use(gone):
        pass
    gone.rmdir()
    with engines.use(shelf / "a"):
        pass
    assert names_of(engines) == ["a"]


def test_a_closed_pool_hands_out_no_engine(engines, shelf):
    with engines.use(shelf / "a") as engine:
        engines.close()
        assert not engine.is_healthy
    with pytest.raises(EngineClosed), engines.use(shelf / "b"):
        pass
    assert not engines.is_healthy
