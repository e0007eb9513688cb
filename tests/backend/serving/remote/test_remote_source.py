"""A stream whose sound arrives from another process is the stream of an engine: sound, progress, parts and facts."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backend.errors import SettingsError
from backend.provenance.statement import VERSION
from backend.serving.at_hand import at_hand
from backend.serving.errors import EngineBusy
from backend.serving.loaded_model import ModelFacts
from backend.serving.remote import remote_model
from backend.serving.remote.errors import ClusterSpeechError
from backend.serving.remote.messages import facts_in, packed
from backend.serving.remote.remote_model import RemoteSource
from backend.serving.requests import Reference, SoundBegun, SoundChunk, SpeechFailure, SynthesisRequest
from backend.serving.speech.audio_stream import AudioStream
from backend.serving.speech.speech_source import SpeechState
from backend.settings import Settings
from backend.studio import Studio
from backend.takes.take import TakeOrigin
from backend.voices.errors import VoiceError
from tests.backend.serving.speech.test_audio_stream import SENTENCE
from training.model.generation.finish_reason import FinishReason
from training.model.sampling_settings import Sampling

ORIGIN = TakeOrigin(made_by="studio", voice="Anna", model_name="tiny", is_fine_tuned=False, consent=None)


@pytest.fixture
def ends():
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def in_background(there, *messages, leaves=True):
    def send():
        for message in messages:
            there.sendall(packed(message))
        if leaves:
            there.shutdown(socket.SHUT_WR)

    threading.Thread(target=send, daemon=True).start()


def events_of(stream):
    sent = SpeechState()
    yield SoundBegun(plan=stream.plan, origin=ORIGIN)
    for samples in stream:
        added = stream.state.since(sent)
        sent.add(added)
        yield SoundChunk(samples=samples, added=added)
    yield SoundChunk(samples=np.zeros(0, np.float32), added=stream.state.since(sent))


def test_it_is_told_from_the_engines_own_stream_by_nothing_but_the_clock(engine, request_of, ends):
    request = replace(request_of, text=SENTENCE * 8, max_frames=8)
    made = AudioStream.of_engine(engine, request, streaming=True, origin=ORIGIN)
    events, seen = [], []
    for event in events_of(made):
        events.append(event)
        seen.append(replace(made.progress(), wall_seconds=0.0, seconds_left=0.0))
    in_background(ends[1], *events)
    heard, shown = [], []
    with closing(AudioStream(RemoteSource(ends[0], "there:1"), origin=ORIGIN)) as stream:
        for chunk in stream:
            heard.append(chunk)
            shown.append(replace(stream.progress(), wall_seconds=0.0, seconds_left=0.0))
    sound = [event.samples for event in events if isinstance(event, SoundChunk)]
    np.testing.assert_array_equal(np.concatenate(heard), np.concatenate(sound))
    assert shown == seen[1:-1]
    clocks = {"real_time_factor", "seconds_to_first_audio"}
    assert stream.facts().model_dump(exclude=clocks) == made.facts().model_dump(exclude=clocks)
    assert stream.timelines == made.timelines
    assert len(stream.parts) == len(stream.segments) > 1


def test_a_failure_arrives_as_it_is(ends):
    in_background(ends[1], SpeechFailure(error=EngineBusy("All is taken.", retry_after_seconds=3.0)))
    with pytest.raises(EngineBusy, match=r"All is taken\. Try again in 3 s"):
        RemoteSource(ends[0], "there:1")


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_cluster_that_is_lost_or_silent_is_a_sentence(engine, request_of, ends, monkeypatch, is_silent):
    monkeypatch.setattr(remote_model, "MAX_SILENT_SECONDS", 0.2)
    made = events_of(AudioStream.of_engine(engine, request_of, streaming=True))
    in_background(ends[1], next(made), next(made), leaves=not is_silent)
    stream = AudioStream(RemoteSource(ends[0], "there:1"), origin=ORIGIN)
    assert len(next(stream))
    with pytest.raises(ClusterSpeechError, match="has sent nothing for" if is_silent else "was lost while it spoke"):
        next(stream)
    assert stream.finish_reason is FinishReason.CANCELLED
    # Who speaks there learns that nobody listens.
    assert ends[1].recv(1) == b""


def test_stopping_ends_it_and_leaves(engine, request_of, ends):
    made = events_of(AudioStream.of_engine(engine, request_of, streaming=True))
    in_background(ends[1], next(made), next(made), leaves=False)
    stream = AudioStream(RemoteSource(ends[0], "there:1"), origin=ORIGIN)
    assert len(next(stream))
    stream.cancel()
    assert list(stream) == []
    assert ends[1].recv(1) == b""


def test_a_recording_comes_along_and_other_files_have_to_be_there(tmp_path):
    request = SynthesisRequest(voice=Reference(name="Anna", recording=Path("/laptop/anna.flac")), text="Hm.")
    with at_hand(request, b"sound") as found:
        assert found.voice.recording.read_bytes() == b"sound"
        assert found.voice.recording.suffix == ".flac"
    assert not found.voice.recording.exists()
    unseen = request.voice.model_copy(update={"checkpoint": tmp_path / "base"})
    with (
        pytest.raises(VoiceError, match="cannot see the files of Anna"),
        at_hand(request.model_copy(update={"voice": unseen}), b"sound"),
    ):
        pytest.fail("it was let through")


def test_an_application_says_what_it_has_loaded_if_it_is_of_this_version():
    facts = ModelFacts(name="tiny", precision="fp32", device="cpu", languages=("english",), default_sampling=Sampling())
    about = {"version": VERSION, "facts": facts.model_dump_json()}
    assert facts_in(about, "there:1") == facts.model_copy(update={"cluster": "there:1"})
    # What another version says of itself need not be understood here.
    with pytest.raises(ClusterSpeechError, match=r"is of Encore 0\.0\.9, and this is .*; there is no room for another"):
        facts_in({"version": "0.0.9", "facts": "{}"}, "there:1")


def test_where_it_speaks_is_a_setting(tmp_path, monkeypatch):
    def cluster(speech):
        return Studio(Settings(home=tmp_path, speech=speech)).cluster

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert [cluster(each) for each in ("auto", "cluster", "local")] == [None, None, None]
    with pytest.raises(SettingsError, match="There is no cluster to speak on"):
        Studio(Settings(home=tmp_path)).load_on_cluster("mini")
    monkeypatch.setenv("RAY_ADDRESS", "there:1")
    assert [cluster(each) for each in ("auto", "cluster", "local")] == ["there:1", "there:1", None]
    monkeypatch.setenv("RAY_ADDRESS", "ray://there:1")
    assert cluster("auto") is None
