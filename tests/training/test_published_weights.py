"""What only published weights can show: that the losses stand where those weights were trained."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.single_take import Synthesizer
from training.data.example import IGNORED, build_example, collate
from training.loss import SpeechLoss
from training.model.generation.finish_reason import FinishReason
from training.model.generation.take_request import TakeRequest, VoicePrompt, build_prompt
from training.model.voice_model import VoiceModel

pytestmark = pytest.mark.weights


@pytest.fixture(scope="module")
def model():
    return VoiceModel.load(Path(os.environ["ENCORE_TEST_WEIGHTS"]), precision="auto", device="auto")


@pytest.fixture(scope="module")
def request_of(model):
    speaker = torch.zeros(model.config.talker.hidden_size, device=model.device)
    return TakeRequest(text="The weather is fine today, is it not?", voice=VoicePrompt(speaker=speaker), seed=1)


@pytest.fixture(scope="module")
def take(model, request_of):
    return Synthesizer(model, consume=False).speak(request_of)


def test_a_sentence_ends_by_itself_after_a_sensible_time(take):
    assert take.finish_reason is FinishReason.EOS
    assert 1 < take.seconds < 8


def test_the_aligned_losses_are_the_ones_the_weights_know(model, request_of, take):
    """On stock weights the aligned cross-entropy beats the shifted one, for both losses."""
    speaker = request_of.voice.speaker
    example = build_example(model.config, build_prompt(model, request_of), take.codes.cpu(), speaker.cpu())
    batch = collate([example]).to(model.device)
    loss = SpeechLoss(model.talker)
    with torch.no_grad():
        aligned = loss(batch)
        hidden = model.talker(model.talker.embed_input(batch.inputs, batch.speaker_ND))
        logits = model.talker.codec_head(hidden).float()
        shifted_labels = batch.labels_BT.roll(-1, dims=1)
        kept = (shifted_labels != IGNORED) & (batch.labels_BT != IGNORED)
        shifted = F.cross_entropy(logits[kept], shifted_labels[kept])
        codes = batch.inputs.with_first_codebook()[batch.is_answer_BT]
        before = hidden[:, :-1][batch.is_answer_BT[:, 1:]]
        predicted = loss.code_predictor_logits(codes, before).float()
        next_codebook = F.cross_entropy(predicted[:, :-1].flatten(0, 1), codes[:, 2:].flatten())
    assert aligned.talker < shifted
    assert aligned.code_predictor < next_codebook
