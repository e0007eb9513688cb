"""Prompts of voices: made once, kept as safetensors, and never believed when they do not fit."""

from __future__ import annotations

import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors.torch import load_file, save_file

from backend.store.home import Home
from backend.voices.cloning import clone_voice
from backend.voices.consent import Consent
from backend.voices.errors import VoiceError
from backend.voices.prompts import VoicePrompts, fingerprint
from backend.voices.reference import read_reference
from backend.voices.registry import Voices
from tests.backend.voices.checkpoints import SPEAKER, fine_tuned_checkpoint
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import write_voice
from training.model.voice_model import VoiceModel

CONSENT = Consent.give("Anna")


@pytest.fixture(scope="module")
def model():
    return VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu")


@pytest.fixture
def voices(tmp_path):
    return Voices(Home(tmp_path / "home"))


@pytest.fixture
def voice(voices, tmp_path):
    recording = write_voice(tmp_path / "anna.wav", seconds=1.5)
    return voices.create_zero_shot("Anna", recording, consent=CONSENT, model="mini", transcript="Hello there.")


def test_a_prompt_is_what_cloning_makes_and_is_read_back_the_same(model, voice):
    prompts = VoicePrompts(model)
    made = prompts.get(voice)
    assert prompts.get(voice) is made
    direct = clone_voice(model, read_reference(voice.reference), "Hello there.")
    (path,) = voice.prompts_folder.iterdir()
    voice.reference.unlink()
    again = VoicePrompts(model).get(voice)
    for prompt in (made, again):
        assert torch.equal(prompt.speaker, direct.speaker)
        assert torch.equal(prompt.reference_codes, direct.reference_codes)
        assert prompt.reference_text == "Hello there."
    assert path.suffix == ".safetensors"
    assert set(load_file(path)) == {"speaker", "codes"}


@pytest.fixture(scope="module")
def matching(model):
    return dataclasses.replace(model, matches_timbre=True)


def test_of_a_model_that_matches_timbre_the_match_is_kept_too(model, matching, voice):
    made = VoicePrompts(matching).get(voice)
    (path,) = voice.prompts_folder.iterdir()
    assert set(load_file(path)) == {"speaker", "codes", "timbre_matrix", "timbre_offset"}
    voice.reference.unlink()
    again = VoicePrompts(matching).get(voice)
    assert torch.equal(again.timbre.matrix_EE, made.timbre.matrix_EE)
    assert torch.equal(again.timbre.offset_E, made.timbre.offset_E)
    assert fingerprint(matching) != fingerprint(model), "another talker would have another match"


@pytest.mark.parametrize(
    "change",
    [
        {"timbre_matrix": None},
        {"timbre_offset": None},
        {"timbre_matrix": lambda matrix: matrix * torch.nan},
        {"timbre_offset": lambda offset: offset.unsqueeze(0)},
        {"timbre_matrix": lambda matrix: matrix[1:, 1:].contiguous(), "timbre_offset": lambda offset: offset[1:]},
        {"timbre_matrix": lambda matrix: matrix.half()},
    ],
)
def test_a_match_that_does_not_fit_is_made_anew(matching, voice, change):
    made = VoicePrompts(matching).get(voice)
    (path,) = voice.prompts_folder.iterdir()
    tensors = load_file(path)
    changed = {name: change.get(name, lambda value: value) for name in tensors}
    save_file({name: how(tensors[name]).clone() for name, how in changed.items() if how is not None}, path)
    again = VoicePrompts(matching).get(voice)
    assert torch.equal(again.timbre.matrix_EE, made.timbre.matrix_EE)


def test_a_match_is_not_used_by_a_model_that_needs_none(model, matching, voice):
    VoicePrompts(matching).get(voice)
    (path,) = voice.prompts_folder.iterdir()
    path.rename(path.with_stem(fingerprint(model)))
    assert VoicePrompts(model).get(voice).timbre is None


def test_a_prompt_that_two_ask_for_at_once_is_made_once(model, voice, monkeypatch):
    made, both_ask = [], threading.Barrier(2)

    def clone(*arguments):
        made.append(arguments)
        # The other one asks by now.
        time.sleep(0.3)
        return clone_voice(*arguments)

    def ask(_):
        both_ask.wait()
        return prompts.get(voice)

    monkeypatch.setattr("backend.voices.prompts.clone_voice", clone)
    prompts = VoicePrompts(model)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(ask, range(2))
    assert first is second
    assert len(made) == 1


def test_a_prompt_that_could_not_be_made_is_tried_again(model, voice, monkeypatch):
    prompts = VoicePrompts(model)
    with monkeypatch.context() as patch:
        patch.setattr("backend.voices.prompts.clone_voice", _fail)
        with pytest.raises(VoiceError, match="damaged"):
            prompts.get(voice)
    assert prompts.get(voice).speaker is not None


def _fail(*_):
    raise VoiceError("damaged")


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: {"speaker": tensors["speaker"][:-1], "codes": tensors["codes"]},
        lambda tensors: {"speaker": tensors["speaker"] * torch.nan, "codes": tensors["codes"]},
        lambda tensors: {"speaker": tensors["speaker"], "codes": tensors["codes"][:, :2].contiguous()},
        lambda tensors: {"speaker": tensors["speaker"], "codes": tensors["codes"] + 1000},
        lambda tensors: {"speaker": tensors["speaker"], "codes": tensors["codes"] - 1000},
        lambda tensors: {"speaker": tensors["speaker"], "codes": tensors["codes"].float()},
        lambda tensors: {"codes": tensors["codes"]},
        lambda tensors: {**tensors, "more": torch.zeros(1)},
    ],
)
def test_a_prompt_that_does_not_fit_is_made_anew(model, voice, change):
    made = VoicePrompts(model).get(voice)
    (path,) = voice.prompts_folder.iterdir()
    save_file(change(load_file(path)), path)
    again = VoicePrompts(model).get(voice)
    assert torch.equal(again.speaker, made.speaker)
    assert torch.equal(again.reference_codes, made.reference_codes)


def test_a_damaged_prompt_is_made_anew(model, voice):
    made = VoicePrompts(model).get(voice)
    (path,) = voice.prompts_folder.iterdir()
    path.write_bytes(b"\x80\x04pickle")
    assert torch.equal(VoicePrompts(model).get(voice).speaker, made.speaker)
    assert set(load_file(path)) == {"speaker", "codes"}


def test_the_least_used_prompt_is_forgotten(model, voice, voices, tmp_path):
    other = voices.create_zero_shot("Ben", write_voice(tmp_path / "b.wav", 1.2), consent=CONSENT, model="mini")
    prompts = VoicePrompts(model, max_prompts=1)
    first = prompts.get(voice)
    assert not prompts.get(other).is_in_context
    assert prompts.get(voice) is not first


def test_a_fine_tuned_voice_speaks_by_its_name(voices, tmp_path):
    folder = fine_tuned_checkpoint(tmp_path / "custom_voice")
    voice = voices.add_fine_tuned("Anna", {"custom_voice": folder}, consent=CONSENT, model="mini")
    tuned = VoiceModel.load(voice.variants["custom_voice"], precision="fp32", device="cpu")
    assert VoicePrompts(tuned).get(voice).speaker_name == SPEAKER


def test_a_voice_without_reference_says_so(model, voice):
    voice.reference.unlink()
    with pytest.raises(VoiceError, match="no reference recording"):
        VoicePrompts(model).get(voice)


def test_another_encoder_is_another_fingerprint(model):
    again = VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu")
    assert fingerprint(again) == fingerprint(model)
    with torch.no_grad():
        next(again.speaker_encoder.parameters()).add_(1.0)
    assert fingerprint(again) != fingerprint(model)
