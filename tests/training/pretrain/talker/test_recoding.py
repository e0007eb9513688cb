"""A talker that is carried over to other codes says what it said before, as far as they can say it."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.training.pretrain.talker.test_training import JOB
from tests.training.pretrain.tiny_corpus import write_corpus
from training.loss import SpeechLoss
from training.model.network.talker import Talker
from training.pretrain.codec import frame_codes
from training.pretrain.codec.frame_codes import CodedCorpus, frames_of
from training.pretrain.corpus.corpus import TRAIN, Corpus, open_corpus
from training.pretrain.errors import PretrainError
from training.pretrain.talker.network import TalkerNetwork
from training.pretrain.talker.recoding import paired_codes, recode

ENTRIES, CODEBOOKS, FRAMES = JOB.size.codebook_size, 16, 3000


@pytest.fixture
def talker() -> Talker:
    torch.manual_seed(3)
    return TalkerNetwork(JOB).talker


def spoken(seed: int = 1) -> Tensor:
    return torch.randint(ENTRIES, (FRAMES, CODEBOOKS), generator=torch.Generator().manual_seed(seed))


def renumbered(codes: Tensor) -> tuple[Tensor, Tensor]:
    """The codes with the entries of each codebook but the first in another order, and these orders."""
    random = torch.Generator().manual_seed(2)
    orders = torch.stack([torch.arange(ENTRIES), *(torch.randperm(ENTRIES, generator=random) for _ in range(15))])
    return orders.t().gather(0, codes), orders


def test_codes_that_are_only_renumbered_lose_nothing(talker: Talker):
    before = spoken()
    after, orders = renumbered(before)
    changed = copy.deepcopy(talker)
    recode(changed, before, after)
    assert torch.allclose(
        changed.code_predictor.sum_residual(after), talker.code_predictor.sum_residual(before), atol=1e-5
    )
    states = torch.randn(FRAMES, JOB.size.width)
    found = SpeechLoss(changed).code_predictor_logits(after, states)
    known = SpeechLoss(talker).code_predictor_logits(before, states)
    expected = torch.empty_like(known).scatter_(2, orders[1:].expand(FRAMES, -1, -1), known)
    assert torch.allclose(found, expected, atol=1e-4)


def test_embeddings_of_codes_that_mean_something_else_are_fitted_to_what_frames_sounded_like(talker: Talker):
    before = spoken()
    # Each entry of a codebook depends on those of two.
    after = torch.cat([before[:, :1], (before[:, 1:] + 3 * before[:, 1:].roll(1, dims=1)) % ENTRIES], dim=1)
    known = talker.code_predictor.sum_residual(before)
    changed = copy.deepcopy(talker)
    recode(changed, before, after)

    def missed(of: Talker) -> float:
        return float((of.code_predictor.sum_residual(after) - known).detach().square().mean())

    assert missed(changed) < 0.7 * missed(talker)


def test_entries_that_no_frame_has_stay_as_they_are(talker: Talker):
    before = spoken()
    after = before.clamp(max=ENTRIES - 2)
    changed = copy.deepcopy(talker)
    recode(changed, before, after)
    for old, new in zip(talker.code_predictor.lm_head, changed.code_predictor.lm_head, strict=True):
        assert torch.equal(old.get_parameter("weight")[-1], new.get_parameter("weight")[-1])


def test_codebook_0_and_all_layers_are_left_alone(talker: Talker):
    before = talker.state_dict()
    changed = copy.deepcopy(talker)
    recode(changed, spoken(), spoken(seed=5))
    differing = {key for key, value in changed.state_dict().items() if not torch.equal(value, before[key])}
    assert {key.rsplit(".", 2)[0] for key in differing} == {
        "code_predictor.lm_head",
        "code_predictor.model.codec_embedding",
    }


def test_codes_with_more_entries_are_refused(talker: Talker):
    with pytest.raises(PretrainError, match=f"more than {ENTRIES} entries"):
        recode(talker, spoken(), spoken() + 1)


def write_codes(folder: Path, corpus: Corpus, seed: int) -> CodedCorpus:
    """Random codes of a corpus, in the place where a tokenizer's run would write them."""
    random = torch.Generator().manual_seed(seed)
    for shard, numbers in enumerate(corpus.shards()):
        num_frames = sum(frames_of(corpus.entries[number].num_samples) for number in numbers)
        codes = torch.randint(ENTRIES, (num_frames, CODEBOOKS), generator=random)
        frame_codes.write_codes(frame_codes.shard_codes(folder, shard), [codes])
    return CodedCorpus(corpus, folder)


def test_pairs_are_of_the_same_frames(tmp_path: Path):
    corpus = open_corpus(write_corpus(tmp_path / "tones"), TRAIN)
    one, other = (write_codes(tmp_path / str(seed), corpus, seed) for seed in (1, 2))
    before, after = paired_codes(one, other)
    assert torch.equal(before, torch.cat([one.codes(number) for number in range(len(one))]))
    assert torch.equal(after, torch.cat([other.codes(number) for number in range(len(one))]))
    fewer, _ = paired_codes(one, other, max_frames=int(one.num_frames.sum()) // 2)
    assert torch.equal(fewer, torch.cat([one.codes(number) for number in range(0, len(one), 2)]))


def test_codes_of_another_corpus_are_refused(tmp_path: Path):
    one, other = (
        write_codes(tmp_path / f"codes-{num}", open_corpus(write_corpus(tmp_path / str(num), num), TRAIN), seed=num)
        for num in (8, 12)
    )
    with pytest.raises(PretrainError, match="same corpus"):
        paired_codes(one, other)
