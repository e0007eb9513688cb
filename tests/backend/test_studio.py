"""The studio's model: what it speaks, loading it in the background, and what becomes of it when it is replaced."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from backend.dataset.errors import DatasetInUse, DatasetNotFound
from backend.errors import EncoreError, ModelError
from backend.runs.storage.states import RunState
from backend.serving.requests import Reference, SynthesisRequest
from backend.settings import Settings
from backend.studio import Studio
from backend.voices.consent import Consent
from backend.watermark.pattern import STEP_SECONDS
from tests.backend.serving.conftest import wait_until
from tests.backend.voices.checkpoints import fine_tuned_checkpoint
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import write_voice
from training.model.generation.finish_reason import FinishReason
from training.model.hub.hub import DownloadProgress
from training.model.project import PROJECT_FOLDER


def new_studio(home):
    studio = Studio(Settings(home=home))
    studio.load_model(str(GOLDEN_CHECKPOINT), precision="fp32", device="cpu")
    return studio


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    return new_studio(tmp_path_factory.mktemp("studio"))


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return write_voice(tmp_path_factory.mktemp("recording") / "anna.wav", seconds=1.5)


@pytest.fixture(scope="module")
def request_of(recording):
    return SynthesisRequest(voice=Reference(name="Anna", recording=recording), text="Hm. And so on.", seed=3)


def test_a_studio_that_is_dropped_ends_its_engine(tmp_path):
    studio = new_studio(tmp_path)
    engine = studio.loaded.engine
    assert engine.is_healthy
    del studio
    gc.collect()
    wait_until(lambda: not engine.is_healthy)


def test_a_model_that_is_replaced_speaks_to_the_end(tmp_path, request_of):
    studio = new_studio(tmp_path)
    first = studio.loaded.engine
    stream = studio.loaded.speak(request_of)
    heard = [next(stream)]
    studio.load_model(str(GOLDEN_CHECKPOINT), precision="fp32", device="cpu")
    assert first.is_healthy
    heard.extend(stream)
    assert stream.finish_reason is not FinishReason.CANCELLED
    wait_until(lambda: not first.is_healthy)
    assert studio.loaded.engine.is_healthy
    assert sum(map(len, heard)) > 0


def test_concurrent_clients_of_one_studio_get_the_same_takes_as_alone(studio, request_of):
    alone = np.concatenate(list(studio.loaded.speak(request_of)))
    heard = {}

    def listen(number):
        heard[number] = np.concatenate(list(studio.loaded.speak(request_of)))

    listeners = [threading.Thread(target=listen, args=(number,)) for number in range(3)]
    for listener in listeners:
        listener.start()
    for listener in listeners:
        listener.join()
    assert all(np.array_equal(heard[number], alone) for number in range(3))


def test_stopping_ends_at_once_even_with_segments_made_ahead(studio, request_of):
    stopped = threading.Event()
    stream = studio.loaded.speak(request_of, cancelled=stopped.is_set)
    first = next(stream)
    engine = studio.loaded.engine
    # Nothing is read, and the engine goes on until it has made all of the sentence.
    wait_until(lambda: engine.statistics().num_active == 0)
    stopped.set()
    rest = sum(len(chunk) for chunk in stream)
    assert stream.finish_reason is FinishReason.CANCELLED
    # No more than what was held back to fade it out, and the one window that the mark waits for.
    assert rest < (0.02 + 2 * STEP_SECONDS) * engine.sample_rate
    assert stream.seconds == pytest.approx((len(first) + rest) / engine.sample_rate)


def test_a_deleted_voice_is_unloaded_after_its_running_takes_end(studio, recording, tmp_path):
    consent = Consent.give("Anna Example")
    zero_shot = studio.voices.create_zero_shot("Anna", recording, consent=consent, model="tiny")
    tuned = studio.voices.add_fine_tuned(
        "Tuned", {"custom_voice": fine_tuned_checkpoint(tmp_path / "export")}, consent=consent, model="tiny"
    )
    prompts = studio.loaded._resolver._prompts_of(studio.loaded.engine)
    studio.loaded.prompt(SynthesisRequest(voice=zero_shot, text="Hm."))
    assert any(key[0] == zero_shot.folder for key in prompts._prompts)
    stream = studio.loaded.speak(SynthesisRequest(voice=tuned, text="Hm.", seed=1))
    assert tuned.id in studio.loaded.statistics()
    studio.delete_voice("Anna")
    studio.delete_voice("Tuned")
    assert not any(key[0] == zero_shot.folder for key in prompts._prompts)
    assert sum(len(chunk) for chunk in stream) > 0
    assert stream.finish_reason is not FinishReason.CANCELLED
    assert tuned.id not in studio.loaded.statistics()


class Download:
    """Stands where a model is found; reports and waits as the test says."""

    def __init__(self, error=None):
        self.error, self.reported, self.may_end = error, threading.Event(), threading.Event()

    def __call__(self, name, *, progress, cancel):
        for bytes_done in (40, 50):
            progress(DownloadProgress(bytes_done=bytes_done, bytes_total=100, file="model.safetensors"))
        self.reported.set()
        self.may_end.wait()
        if cancel():
            raise EncoreError("stopped")
        if self.error:
            raise self.error
        return GOLDEN_CHECKPOINT


@pytest.fixture
def download(monkeypatch):
    made = Download()
    monkeypatch.setattr("backend.studio.resolve_model", made)
    yield made
    made.may_end.set()


def wait_for_end(studio):
    wait_until(lambda: not studio.loading.is_running)
    return studio.loading


def test_loading_is_watched_from_outside_and_only_one_is_accepted(tmp_path, download):
    studio = Studio(Settings(home=tmp_path))
    studio.start_loading("first")
    download.reported.wait()
    state = studio.loading
    assert (state.what, state.is_running, state.num_done, state.num_total) == ("first", True, 50, 100)
    assert (state.num_at_start, state.detail) == (40, "model.safetensors")
    assert state.seconds_left == pytest.approx(state.seconds_so_far * 5, abs=1)
    with pytest.raises(ModelError, match="first is being loaded"):
        studio.start_loading("second")
    download.may_end.set()
    assert wait_for_end(studio).problem == ""
    assert studio.loaded.name == "first"


def test_cancelling_a_loading_ends_it_and_the_next_one_is_not_cancelled(tmp_path, download):
    studio = Studio(Settings(home=tmp_path))
    studio.start_loading("first")
    download.reported.wait()
    studio.cancel_loading()
    download.may_end.set()
    assert wait_for_end(studio).problem == "stopped"
    download.error = EncoreError("not cancelled")
    studio.start_loading("second")
    assert wait_for_end(studio).problem == "not cancelled"


def test_a_fault_while_loading_ends_in_a_state_too_and_is_logged(tmp_path, download, caplog):
    studio = Studio(Settings(home=tmp_path))
    download.error = ZeroDivisionError("oops")
    download.may_end.set()
    studio.start_loading("first")
    assert "fault in Encore" in wait_for_end(studio).problem
    assert "oops" in caplog.text


@pytest.mark.parametrize(
    ("state", "error"), [(RunState.RUNNING, DatasetInUse), (RunState.PAUSED, DatasetNotFound)], ids=str
)
def test_a_dataset_is_not_deleted_while_a_run_learns_from_it(tmp_path, state, error):
    studio = Studio(Settings(home=tmp_path))
    run = SimpleNamespace(dataset="ann", voice="Ann", state=state)
    studio.__dict__["runs"] = SimpleNamespace(list=lambda: [run])
    with pytest.raises(error, match="ann"):
        studio.delete_dataset("ann")


def test_a_studio_starts_without_a_listener_or_a_verifier(tmp_path):
    """They are loaded when something is first listened to."""
    code = (
        "import sys; from pathlib import Path; import ui.layout; from backend.settings import Settings; "
        "from backend.studio import Studio; from training.model.speaker_verifier import load_verifier; "
        "Studio(Settings(home=Path(sys.argv[1]))); assert load_verifier.cache_info().currsize == 0; "
        "assert not {'pocketsphinx', 'whisper'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, cwd=PROJECT_FOLDER, timeout=600)
