"""A studio that speaks on a cluster: the same takes as here, and sentences where it cannot."""

from __future__ import annotations

import sys
import time
from contextlib import closing

import numpy as np
import pytest

from backend.errors import PromptError
from backend.serving.remote import remote_model
from backend.serving.remote.errors import ClusterSpeechError
from backend.serving.remote.remote_model import RemoteModel
from backend.serving.requests import Reference, RunCheckpoint, SynthesisRequest
from backend.settings import Settings
from backend.studio import Studio
from backend.voices.consent import Consent
from backend.voices.errors import VoiceError
from tests.backend.cluster.other_ray import WITHOUT_TOKEN, other_ray
from tests.backend.serving.conftest import wait_until
from tests.backend.voices.checkpoints import fine_tuned_checkpoint
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import write_voice

pytestmark = pytest.mark.ray

LONG = "One two three four five six seven eight nine ten eleven twelve. " * 40


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch, other_ray(folder) as address:
        for name, value in {**WITHOUT_TOKEN, "RAY_ADDRESS": address}.items():
            patch.setenv(name, value)
        studio = Studio(Settings(home=folder / "home"))
        studio.load_on_cluster(str(GOLDEN_CHECKPOINT), precision="fp32")
        yield studio
        process = studio.loaded._link._process
        studio.loaded.retire()
        process.wait(60)


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return write_voice(tmp_path_factory.mktemp("recording") / "anna.wav", seconds=1.5)


def spoken(loaded, request):
    with closing(loaded.speak(request)) as stream:
        return np.concatenate(list(stream)), stream


def test_takes_on_a_cluster_are_those_of_this_process(studio, recording, tmp_path):
    there = studio.loaded
    assert there.facts.cluster
    assert "ray" not in sys.modules or not sys.modules["ray"].is_initialized()
    here = Studio(Settings(home=studio.home.folder))
    here.load_model(str(GOLDEN_CHECKPOINT), precision="fp32", device="cpu")
    assert here.loaded.facts == there.facts.model_copy(update={"cluster": ""})
    consent = Consent.give("Anna Example")
    zero_shot = studio.voices.create_zero_shot("Anna", recording, consent=consent, model="tiny")
    tuned = studio.voices.add_fine_tuned(
        "Tuned", {"custom_voice": fine_tuned_checkpoint(tmp_path / "export")}, consent=consent, model="tiny"
    )
    for voice in (Reference(name="Anna", recording=recording), zero_shot, tuned):
        request = SynthesisRequest(voice=voice, text="Hm. And so on.", seed=3, made_by="studio")
        there.prepare(request)
        (samples, stream), (expected, own) = spoken(there, request), spoken(here.loaded, request)
        assert np.abs(samples - expected).max() < 1e-4
        differing = {"real_time_factor", "seconds_to_first_audio", "statement"}
        facts, own_facts = stream.facts(), own.facts()
        assert facts.model_dump(exclude=differing) == own_facts.model_dump(exclude=differing)
        assert facts.statement.checkpoint == own_facts.statement.checkpoint
        assert stream.progress().share_done == own.progress().share_done == 1.0
        assert 0 < facts.seconds_to_first_audio <= stream.wall_seconds


def test_what_cannot_be_spoken_is_said_and_the_next_take_is_spoken(studio, recording, tmp_path):
    request = SynthesisRequest(voice=Reference(name="Anna", recording=recording), text="Hm.", seed=3)
    with pytest.raises(PromptError, match="klingon"):
        studio.loaded.speak(request.model_copy(update={"language": "klingon"}))
    unseen = RunCheckpoint(name="step 7", checkpoint=tmp_path / "elsewhere")
    with pytest.raises(VoiceError, match=r"The cluster cannot see the files of step 7: .*elsewhere"):
        studio.loaded.speak(SynthesisRequest(voice=unseen, text="Hm."))
    stream = studio.loaded.speak(request.model_copy(update={"text": LONG}))
    assert len(next(stream))
    # A cluster that is lost takes the process along that has joined it.
    studio.loaded._link._process.kill()
    with pytest.raises(ClusterSpeechError, match=r"was lost while it spoke\. Speak again, or load the model on this"):
        list(stream)
    samples, _ = spoken(studio.loaded, request)
    assert len(samples)


def test_who_was_there_before_does_not_end_what_is_used_again(studio, recording):
    """Where something was still being spoken, the next model was ended together with it."""
    request = SynthesisRequest(voice=Reference(name="Anna", recording=recording), text="Hm.", seed=3)
    before, process = studio.loaded, studio.loaded._link._process
    stream = before.speak(request.model_copy(update={"text": LONG}))
    assert len(next(stream))
    studio.load_on_cluster(str(GOLDEN_CHECKPOINT), precision="fp32")
    assert len(next(stream))
    stream.close()
    assert process.wait(60) == 0
    # A comparison that goes on would start the model before in the place of this one.
    with pytest.raises(ClusterSpeechError, match="Another model was loaded meanwhile"):
        before.speak(request)
    samples, _ = spoken(studio.loaded, request)
    assert len(samples)


def test_a_model_that_finds_no_room_can_be_given_up(studio, monkeypatch):
    """Two processors are all that there is, and a replica waits for what is not there for as long as it takes."""
    asked = studio._cluster_settings(str(GOLDEN_CHECKPOINT), "bf16")
    asked = asked.model_copy(update={"num_cpus": 64.0, "name": "encore-too-large"})
    begun, left = time.monotonic(), []
    monkeypatch.setattr(remote_model, "_end", lambda control, process: (left.append(process), control.close()))
    with pytest.raises(ClusterSpeechError, match="stopped before it began"):
        RemoteModel(asked, studio.cluster, cancelled=lambda: time.monotonic() > begun + 8)
    # The process has seen it, and has taken back what it asked for.
    assert left[0].wait(60) == 1


def test_whoever_leaves_frees_the_place(studio, recording):
    request = SynthesisRequest(voice=Reference(name="Anna", recording=recording), text=LONG, client="me")
    stopped = []
    for _ in range(12):  # more than a replica has places
        stream = studio.loaded.speak(request, cancelled=lambda: bool(stopped))
        assert len(next(stream))
        stream.close()
    stream = studio.loaded.speak(request, cancelled=lambda: bool(stopped))
    next(stream)
    stopped.append(True)
    wait_until(lambda: next(stream, None) is None)
    assert stream.finish_reason == "cancelled"
