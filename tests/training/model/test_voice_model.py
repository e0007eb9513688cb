from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
import torch

from tests.training.model.prompting import prompt_for
from training.model.errors import PromptError
from training.model.hub.hub import EMBEDDED_FOLDER
from training.model.voice_model import VoiceModel, is_out_of_memory


def logits_of(model):
    rows = prompt_for(model, "The same words for both.").inputs.batched()
    speaker = torch.full((1, model.config.talker.hidden_size), 0.05, dtype=model.talker.codec_head.weight.dtype)
    with torch.inference_mode():
        return model.talker.codec_head(model.talker(model.talker.embed_input(rows, speaker)))


def test_what_is_saved_loads_with_the_same_logits_codes_and_sound(golden_model, tmp_path):
    golden_model.save(tmp_path / "saved", dtype=torch.float32)
    loaded = VoiceModel.load(tmp_path / "saved", precision="fp32", device="cpu")
    assert torch.equal(logits_of(loaded), logits_of(golden_model))
    waveform = torch.sin(torch.arange(30_000) * 0.03) * 0.3
    codes = golden_model.encode(waveform)
    assert torch.equal(loaded.encode(waveform), codes)
    assert torch.equal(loaded.embed_speaker(waveform), golden_model.embed_speaker(waveform))
    decoded = [model.speech_tokenizer.decode(codes.unsqueeze(0)) for model in (loaded, golden_model)]
    assert torch.equal(*decoded)
    assert loaded.default_sampling == golden_model.default_sampling
    assert loaded.text_tokenizer.encode_text("Größe: 42") == golden_model.text_tokenizer.encode_text("Größe: 42")


def test_saving_in_bfloat16_only_rounds(golden_model, tmp_path):
    golden_model.save(tmp_path / "saved")
    loaded = VoiceModel.load(tmp_path / "saved", precision="fp32", device="cpu")
    weight, exact = loaded.talker.codec_head.weight, golden_model.talker.codec_head.weight
    assert torch.equal(weight, exact.bfloat16().float())


def test_a_model_emptied_for_decoding_cannot_be_saved(golden_folder, tmp_path):
    model = VoiceModel.load(golden_folder, precision="fp32", device="cpu")
    model.talker.model.layers.to("meta")
    with pytest.raises(AssertionError, match="emptied"):
        model.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_a_checkpoint_without_a_speaker_encoder_does_not_clone(golden_model):
    named = dataclasses.replace(golden_model, speaker_encoder=None)
    with pytest.raises(PromptError, match="Base"):
        named.embed_speaker(torch.zeros(24_000))


def test_memory_that_runs_out_while_a_model_is_loaded_is_said_in_a_sentence():
    # Wherever it ends: in a mapped file, in a tensor or in a list of Python's.
    script = f"""
import os, resource
from pathlib import Path
from training.model.errors import ModelError
from training.model.voice_model import VoiceModel, is_out_of_memory

for megabytes in range(0, 80, 20):
    if (child := os.fork()) == 0:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 10**6,) * 2)
        try:
            VoiceModel.load(Path({str(EMBEDDED_FOLDER)!r}), precision="fp32", device="cpu")
        except ModelError as error:
            print(error, flush=True)
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0, megabytes
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("There is not enough memory for the model in mini. Close other programs") == 4


def test_what_pytorch_raises_where_memory_ends_is_recognised():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 46)
    assert is_out_of_memory(raised.value)
    assert not is_out_of_memory(RuntimeError("the shapes do not fit"))
