"""Everything in one go, tiny, and in a given time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.training.pretrain.talker import test_training as talker_stage
from tests.training.pretrain.tiny_corpus import write_corpus
from training.model.checkpoint.names import is_codebook_statistic
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.model.voice_model import VoiceModel
from training.pretrain.pack.pack import MAX_BYTES
from training.pretrain.run.training_state import read_step
from training.pretrain.talker.network import TalkerNetwork
from training.pretrain.train_all import CHECKPOINT, CODEC, TALKER, jobs_for, make_checkpoint

CPU = torch.device("cpu")
MANY = 100_000


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_corpus(tmp_path_factory.mktemp("corpus") / "tones")
    (folder / "manifest.json").write_text(json.dumps({"parts": {"train": {"hours": 0.01, "speakers": 1}}}))
    return folder


def test_it_ends_in_time_and_packs_what_it_has(corpus: Path, tmp_path: Path):
    torch.set_num_threads(1)
    rare = {"num_steps": MANY, "log_every": 1, "validate_every": MANY}
    codec = talker_stage.TOKENIZER_JOB.model_copy(update={**rare, "joint_from": 0.3, "codebooks_learn": True})
    talker = talker_stage.JOB.model_copy(update=rare)
    told: list[str] = []
    assert make_checkpoint(corpus, tmp_path, codec, talker, device=CPU, seconds=4.0, report=told.append) == 0
    assert 0 < (read_step(tmp_path / CODEC) or 0) < MANY
    assert 0 < (read_step(tmp_path / TALKER) or 0) < MANY
    assert any("encoded shard" in line for line in told)
    model = VoiceModel.load(tmp_path / CHECKPOINT, precision="fp32", device="cpu")
    assert model.speaker_encoder is not None
    steps = read_step(tmp_path / TALKER)
    # All time is spent: the same call trains no further and packs again.
    assert make_checkpoint(corpus, tmp_path, codec, talker, device=CPU, seconds=4.0, report=told.append) == 0
    assert read_step(tmp_path / TALKER) == steps


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_recipes_of_both_stages_fit_together(kind: str, tmp_path: Path):
    codec, talker = jobs_for(torch.device(kind), seed=1, out=tmp_path)
    assert codec.size.codebook_size == talker.size.codebook_size
    assert codec.joint_from is not None
    assert codec.size.config().decoder.num_quantizers == talker.size.config().talker.num_code_groups
    with torch.device("meta"):
        networks = TalkerNetwork(talker), SpeechTokenizer(codec.size.config())
    tensors = [pair for network in networks for pair in network.state_dict().items()]
    num_bytes = sum(value.numel() * (4 if is_codebook_statistic(name) else 2) for name, value in tensors)
    assert num_bytes < 0.97 * MAX_BYTES
