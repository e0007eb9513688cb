"""Voices with adapters: one base model speaks in all of them, as each would speak with merged weights."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from backend.errors import CheckpointError
from backend.serving.engine.adapter_cache import AdapterCache
from backend.serving.engine.engine import Engine
from backend.serving.errors import EngineBusy
from backend.serving.pool.engine_pool import EnginePool
from backend.serving.requests import SynthesisRequest
from backend.serving.synthesizer import Synthesizer
from backend.store.home import Home
from backend.voices.consent import Consent
from backend.voices.errors import VoiceError
from backend.voices.registry import Voices
from backend.voices.voice import CloningMode, Voice
from tests.backend.voices.checkpoints import adapter_of, fine_tuned_checkpoint, merged_of
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import write_voice
from training.model.checkpoint.digest import adapted_digest, checkpoint_digest
from training.model.checkpoint.names import ADAPTER_FILE
from training.model.generation.adapter import Adapter, load_adapter
from training.model.voice_model import VoiceModel

CONSENT = Consent.give("Anna", "speaker-agreed")
MANY = 40


def load(folder: Path) -> Engine:
    return Engine.load(folder, precision="fp32", device="cpu", num_slots=4, cache_length=600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("adapters")


@pytest.fixture(scope="module")
def voices(folder: Path) -> dict[str, Voice]:
    """A zero-shot voice; two with adapters; the first of them with merged weights."""
    registry, recording = Voices(Home(folder / "home")), write_voice(folder / "anna.wav", seconds=1.2)
    given = {"consent": CONSENT, "model": "tiny", "transcript": "Hello."}
    made = {"base": registry.create_zero_shot("Base", recording, **given)}
    for seed, name in enumerate(("one", "two")):
        adapter = adapter_of(folder / f"run-{name}" / "adapter", seed=seed)
        made[name] = registry.add_fine_tuned(name, {}, adapter=adapter, reference=recording, **given)
    checkpoints = {
        kind: merged_of(folder / "run-one" / "adapter", folder / "merged" / kind, kind)
        for kind in ("custom_voice", "base")
    }
    made["merged"] = registry.add_fine_tuned("merged", checkpoints, reference=recording, **given)
    return made


@pytest.fixture(scope="module")
def synthesizer() -> Iterator[Synthesizer]:
    synthesizer = Synthesizer("tiny", GOLDEN_CHECKPOINT, EnginePool(load))
    yield synthesizer
    synthesizer.close()


def request_of(voice: Voice, mode: CloningMode | None = None, seed: int = 1) -> SynthesisRequest:
    return SynthesisRequest(voice=voice, text="One, two, three.", mode=mode, seed=seed, is_streamed=False)


def speak(synthesizer: Synthesizer, request: SynthesisRequest) -> np.ndarray:
    with closing(synthesizer.speak(request)) as stream:
        return np.concatenate([np.zeros(0, np.float32), *stream])


@pytest.mark.parametrize("mode", [None, "fine-tuned", "fine-tuned-in-context", "in-context", "x-vector"])
def test_an_adapter_speaks_as_its_merged_checkpoints_do(synthesizer, voices, mode):
    found, expected = (speak(synthesizer, request_of(voices[name], mode)) for name in ("one", "merged"))
    np.testing.assert_allclose(found, expected, atol=1e-3)
    if mode in (None, "fine-tuned"):
        assert not np.array_equal(found, speak(synthesizer, request_of(voices["two"], mode)))


def test_voices_speak_at_once_as_each_does_alone(synthesizer, voices):
    requests = [request_of(voices[name], seed=seed) for seed, name in enumerate(("base", "one", "two", "one"))]
    alone = [speak(synthesizer, request) for request in requests]
    with ExitStack() as stack:
        streams = [stack.enter_context(closing(synthesizer.speak(request))) for request in requests]
        together: dict[int, np.ndarray] = {}
        threads = [
            threading.Thread(target=lambda i=i, stream=stream: together.update({i: np.concatenate(list(stream))}))
            for i, stream in enumerate(streams)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for index, samples in enumerate(alone):
        np.testing.assert_allclose(together[index], samples, atol=1e-3)


def test_one_engine_holds_them_all_and_says_what_they_take(synthesizer, voices):
    for name in ("one", "two", "one"):
        speak(synthesizer, request_of(voices[name]))
    statistics = synthesizer.statistics()
    base = statistics["base"]
    assert (base.num_adapters, base.num_adapter_loads_total) == (2, 2)
    held = synthesizer.engine.adapters.num_bytes
    assert synthesizer.memory()["cpu"]["adapters"] == held > 0
    on_disk = sum((voices[name].adapter / ADAPTER_FILE).stat().st_size for name in ("one", "two"))
    assert held < 4 * on_disk


def test_a_take_says_which_base_and_which_adapter_made_it(synthesizer, voices):
    said = {}
    for name in ("base", "one", "two"):
        with closing(synthesizer.speak(request_of(voices[name]))) as stream:
            said[name] = stream.statement.checkpoint
            list(stream)
    base = checkpoint_digest(GOLDEN_CHECKPOINT)
    assert said["base"] == base
    assert said["one"] == adapted_digest(GOLDEN_CHECKPOINT, voices["one"].adapter) != said["two"]
    assert re.fullmatch("[0-9a-f]{64}", said["one"])


def test_another_base_model_is_refused_with_the_one_that_is_needed(voices, folder):
    # Another model with a speaker encoder: the reference checkpoint with other weights.
    other = merged_of(adapter_of(folder / "other-adapter", seed=9), folder / "other", "base")
    synthesizer = Synthesizer("other", other, EnginePool(load))
    try:
        needed = checkpoint_digest(GOLDEN_CHECKPOINT)[:12]
        with pytest.raises(CheckpointError, match=f"weights {needed}.*other is another model"):
            synthesizer.speak(request_of(voices["one"]))
        # In the other modes the base model clones, whichever it is.
        assert len(speak(synthesizer, request_of(voices["one"], "x-vector"))) > 0
    finally:
        synthesizer.close()


def test_a_voice_needs_an_adapter_or_checkpoints_and_not_both(voices, folder, tmp_path):
    registry = Voices(Home(tmp_path))
    adapter = folder / "run-one" / "adapter"
    with pytest.raises(VoiceError, match="needs a custom_voice checkpoint"):
        registry.add_fine_tuned("none", {}, consent=CONSENT, model="tiny")
    with pytest.raises(CheckpointError, match=r"adapter_config\.json"):
        registry.add_fine_tuned("gone", {}, adapter=tmp_path / "gone", consent=CONSENT, model="tiny")
    voice = registry.add_fine_tuned("alone", {}, adapter=adapter, consent=CONSENT, model="tiny")
    assert voice.modes == ("fine-tuned",)
    checkpoint = fine_tuned_checkpoint(tmp_path / "custom_voice")
    old = registry.add_fine_tuned("old", {"custom_voice": checkpoint}, consent=CONSENT, model="tiny")
    assert (old.adapter, old.modes) == (None, ("fine-tuned",))


@pytest.fixture(scope="module")
def shelf(folder: Path) -> list[Path]:
    """Many adapters; one is as good as another."""
    first = adapter_of(folder / "shelf" / "0")
    copies = [folder / "shelf" / str(number) for number in range(1, MANY)]
    for copy in copies:
        copy.mkdir()
        for path in first.iterdir():
            (copy / path.name).hardlink_to(path)
    return [first, *copies]


@pytest.fixture(scope="module")
def adapter(shelf: list[Path]) -> Adapter:
    return load_adapter(shelf[0], VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu"))


def test_of_many_adapters_those_used_last_are_in_memory(shelf, adapter):
    cache = AdapterCache(lambda folder: adapter, max_bytes=5 * adapter.num_bytes)
    for folder in [*shelf, shelf[0], shelf[1]]:
        with cache.use(folder):
            assert cache.num_bytes <= 5 * adapter.num_bytes
    assert cache.loaded() == [shelf[one].resolve() for one in (MANY - 3, MANY - 2, MANY - 1, 0, 1)]
    assert cache.num_loads == MANY + 2
    with cache.use(shelf[1]):
        assert cache.num_loads == MANY + 2


def test_an_adapter_that_speaks_stays_and_too_many_are_asked_to_wait(shelf, adapter):
    # Room for the third is asked for by the size of its file.
    num_bytes = (shelf[0] / ADAPTER_FILE).stat().st_size
    cache = AdapterCache(lambda folder: adapter, max_bytes=2 * adapter.num_bytes + num_bytes)
    with ExitStack() as speaking:
        for folder in shelf[:3]:
            speaking.enter_context(cache.use(folder))
        with pytest.raises(EngineBusy, match="3 voices with adapters are speaking"), cache.use(shelf[3]):
            pass
        with cache.use(shelf[0]):
            assert cache.num_loads == 3
    with cache.use(shelf[3]):
        assert shelf[1].resolve() not in cache.loaded()


def test_one_that_is_larger_than_the_bound_speaks_alone(shelf, adapter):
    cache = AdapterCache(lambda folder: adapter, max_bytes=1)
    for folder in shelf[:2]:
        with cache.use(folder):
            assert cache.loaded() == [folder.resolve()]


def test_it_is_loaded_once_for_all_who_ask_while_others_are_used(shelf, adapter):
    is_loading, may_go_on = threading.Event(), threading.Event()

    def load_slowly(folder: Path) -> Adapter:
        if folder.name == "1":
            is_loading.set()
            assert may_go_on.wait(30)
        return adapter

    cache = AdapterCache(load_slowly)
    with cache.use(shelf[0]):
        pass

    def ask() -> None:
        with cache.use(shelf[1]):
            time.sleep(0.01)

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for thread in asking:
        thread.start()
    assert is_loading.wait(30)
    with cache.use(shelf[0]) as found:
        assert found is adapter
    may_go_on.set()
    for thread in asking:
        thread.join()
    assert cache.num_loads == 2


def test_a_deleted_voice_leaves_no_adapter_in_memory(synthesizer, folder, tmp_path):
    registry = Voices(Home(tmp_path))
    source = adapter_of(tmp_path / "run", seed=5)
    voice = registry.add_fine_tuned("gone", {}, adapter=source, consent=CONSENT, model="tiny")
    with closing(synthesizer.speak(request_of(voice))) as stream:
        registry.delete("gone")
        synthesizer.forget_deleted()
        assert voice.folder / "adapter" in synthesizer.engine.adapters.loaded()
        assert len(np.concatenate(list(stream))) > 0
    synthesizer.forget_deleted()
    assert voice.folder / "adapter" not in synthesizer.engine.adapters.loaded()
