"""Excerpts of long recordings: whole sentences, what is said in them, and nothing where that is not sure."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from backend.audio.resample import resample
from backend.audio.voice_activity import VOICE_ACTIVITY_HZ
from backend.store.home import Home
from backend.transcription.pocketsphinx_transcriber import PocketsphinxTranscriber
from backend.voices import excerpt as excerpt_module
from backend.voices.cloning import clone_voice
from backend.voices.excerpt import find_excerpt
from backend.voices.excerpt_search import MIN_EXCERPT_SECONDS, search_excerpt
from backend.voices.prompt_file import write_prompt_file
from backend.voices.prompts import VoicePrompts, fingerprint
from backend.voices.reference import read_reference
from backend.voices.registry import Voices
from backend.voices.samples import get_sample
from tests.golden import GOLDEN_CHECKPOINT
from training.model.voice_model import VoiceModel

MAX_SECONDS = 10.0
NAMES = ("iris", "owen", "rufus")


@pytest.fixture(scope="module")
def recordings():
    return {name: read_reference(get_sample(name).path) for name in NAMES}


@pytest.fixture(scope="module")
def model():
    whole = VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu")
    assert whole.max_reference_seconds is None
    return dataclasses.replace(whole, max_reference_seconds=MAX_SECONDS)


def text_of(name: str) -> str:
    return " ".join(sentence.text for sentence in get_sample(name).sentences)


def excerpt_of(recording, transcript: str, max_seconds: float = MAX_SECONDS):
    sound = resample(recording.samples, recording.sample_rate, VOICE_ACTIVITY_HZ)
    return search_excerpt(sound, transcript, max_seconds=max_seconds)


def letters_of(text: str) -> str:
    return re.sub(r"[^a-z]", "", text.lower())


def bare(text: str) -> str:
    """As a recogniser writes it down."""
    return " ".join(re.sub(r"[^a-z' ]", " ", text.lower()).split())


@pytest.mark.parametrize(
    ("name", "max_seconds", "written"),
    [("iris", 5.5, str), ("owen", 10.0, bare), ("rufus", 16.0, str), ("iris", 12.0, bare), ("owen", 16.0, str)],
)
def test_an_excerpt_is_the_first_sentences_and_what_they_say(recordings, name, max_seconds, written):
    transcript = written(text_of(name))
    excerpt = excerpt_of(recordings[name], transcript, max_seconds)
    assert MIN_EXCERPT_SECONDS <= excerpt.seconds <= max_seconds
    assert transcript.startswith(excerpt.transcript)
    # As many as there is room for, each to its end.
    said = [sentence for sentence in get_sample(name).sentences if sentence.end_seconds < max_seconds - 0.3]
    assert letters_of(excerpt.transcript) == letters_of(" ".join(sentence.text for sentence in said))
    assert 0.0 < excerpt.seconds - said[-1].end_seconds < 0.5


def test_a_beginning_that_may_say_something_else_is_none(recordings):
    first, second, *rest = (sentence.text for sentence in get_sample("owen").sentences)
    assert excerpt_of(recordings["owen"], text_of("iris")) is None
    assert excerpt_of(recordings["owen"], " ".join([second, first, *rest])) is None
    assert excerpt_of(recordings["owen"], " ".join([second, *rest])) is None


def test_an_excerpt_ends_before_what_the_transcript_has_not(recordings):
    first, _, *rest = (sentence.text for sentence in get_sample("owen").sentences)
    assert excerpt_of(recordings["owen"], " ".join([first, *rest])).transcript == first


@pytest.mark.parametrize("text", ["...", "我每天早上都去面包店。", "Я чиню часы."])
def test_what_cannot_be_laid_over_english_speech_gives_none(recordings, text):
    assert excerpt_of(recordings["rufus"], text) is None


def test_without_a_pause_or_speech_there_is_none(recordings):
    recording = recordings["rufus"]
    first = get_sample("rufus").sentences[0]
    assert excerpt_of(recording, text_of("rufus"), first.end_seconds - 0.1) is None
    silence = np.zeros(20 * recording.sample_rate, np.float32)
    assert excerpt_of(dataclasses.replace(recording, samples=silence), text_of("rufus")) is None


def test_it_is_looked_for_in_a_process_of_its_own(recordings, monkeypatch):
    recording, text = recordings["rufus"], text_of("rufus")
    expected = excerpt_of(recording, text)
    assert expected is not None
    # Here it would hold the interpreter while others speak.
    monkeypatch.delattr(PocketsphinxTranscriber, "place")
    assert find_excerpt(recording.samples, recording.sample_rate, text, max_seconds=MAX_SECONDS) == expected


def test_a_search_that_hangs_is_ended(recordings, monkeypatch, caplog):
    monkeypatch.setattr(excerpt_module, "_MAX_SEARCH_SECONDS", 0.01)
    recording = recordings["rufus"]
    assert find_excerpt(recording.samples, recording.sample_rate, "I repair clocks.", max_seconds=MAX_SECONDS) is None
    assert "was ended" in caplog.text


def test_beside_a_word_that_cannot_be_pronounced_nothing_is_sure(recordings):
    # The word would be left out when the others are counted, and the excerpt's text would end a word too early.
    assert excerpt_of(recordings["owen"], text_of("owen").replace("a small", "a \u6f22\u5b57 small")) is None


def test_a_search_that_fails_finds_nothing_and_says_why_in_the_log(recordings, monkeypatch, caplog):
    monkeypatch.setattr(excerpt_module, "_PROCESS", "backend.voices.no_such_process")
    recording = recordings["rufus"]
    assert find_excerpt(recording.samples, recording.sample_rate, "I repair clocks.", max_seconds=MAX_SECONDS) is None
    assert "no_such_process" in caplog.text


def test_a_model_continues_no_more_than_it_can(model, recordings):
    recording, text = recordings["iris"], text_of("iris")
    prompt = clone_voice(model, recording, f" {text}\n")
    excerpt = excerpt_of(recording, text)
    assert prompt.reference_text == excerpt.transcript
    whole = clone_voice(dataclasses.replace(model, max_reference_seconds=None), recording, text)
    assert whole.reference_text == text
    # Half a second of silence follows.
    share = (excerpt.seconds + 0.5) / (recording.seconds + 0.5)
    assert len(prompt.reference_codes) == pytest.approx(share * len(whole.reference_codes), rel=0.05)
    # Who speaks is heard in all of it.
    assert torch.equal(prompt.speaker, whole.speaker)


def test_a_recording_that_is_short_enough_is_continued_as_it_is(model, recordings):
    recording = recordings["iris"]
    short = dataclasses.replace(recording, samples=recording.samples[: 8 * recording.sample_rate])
    assert clone_voice(model, short, "Whatever it says.").reference_text == "Whatever it says."


def test_where_no_beginning_is_sure_the_sound_alone_has_to_do(model, recordings):
    prompt = clone_voice(model, recordings["iris"], text_of("owen"))
    assert not prompt.is_in_context
    assert torch.equal(prompt.speaker, clone_voice(model, recordings["iris"]).speaker)


def test_a_kept_prompt_knows_what_its_codes_say(model, tmp_path):
    sample = get_sample("owen")
    voice = Voices(Home(tmp_path / "home")).create_zero_shot(
        "Owen", sample.path, consent=sample.consent(), model="mini", transcript=text_of("owen")
    )
    made = VoicePrompts(model).get(voice)
    assert made.reference_text == " ".join(sentence.text for sentence in sample.sentences[:2])
    (path,) = voice.prompts_folder.iterdir()
    assert set(load_file(path)) == {"speaker", "codes"}
    # Somebody else's file may claim anything.
    write_prompt_file(path, dataclasses.replace(made, reference_text="Something else."))
    assert VoicePrompts(model).get(voice).reference_text == made.reference_text
    voice.reference.unlink()
    again = VoicePrompts(model).get(voice)
    assert again.reference_text == made.reference_text
    assert torch.equal(again.reference_codes, made.reference_codes)


def test_a_model_that_continues_more_has_prompts_of_its_own(model):
    assert fingerprint(model) != fingerprint(dataclasses.replace(model, max_reference_seconds=None))
