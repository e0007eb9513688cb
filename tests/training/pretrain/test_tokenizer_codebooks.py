import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.model.codec.quantizer import EncoderCodebook
from training.pretrain.codec import vector_quantizer_training as vq

WIDTH = 3


def codebook_at(entries: torch.Tensor) -> EncoderCodebook:
    codebook = EncoderCodebook(len(entries), entries.shape[1])
    codebook.embed_sum.copy_(entries)
    return codebook


def entries_of(codebook: EncoderCodebook) -> torch.Tensor:
    return codebook.decode(torch.arange(len(codebook.cluster_usage)))


def random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(seed=st.integers(0, 10_000), decay=st.sampled_from([0.5, 0.9, 0.98]), num_steps=st.integers(1, 12))
def test_a_codebook_entry_is_a_running_mean_of_its_vectors(seed: int, decay: float, num_steps: int):
    codebook = codebook_at(torch.tensor([[-10.0, 0, 0], [10.0, 0, 0]]))
    # What falls to each entry keeps to its side, so that the assignments are known.
    sides = torch.tensor([-10.0, 10.0, 10.0, 10.0]).unsqueeze(-1)
    batches = [
        torch.cat((sides, torch.zeros(4, 2)), dim=1) + torch.randn(4, 3, generator=random(seed + i)) * 0.5
        for i in range(num_steps)
    ]
    weighted_sum = torch.tensor([-10.0, 0, 0])
    weight = 1.0
    for batch in batches:
        vq.follow([codebook], vq.quantize([codebook], batch), decay)
        # One of four vectors, when an average entry would have two.
        weighted_sum = decay * weighted_sum + (1 - decay) * batch[0] / 2
        weight = decay * weight + (1 - decay) / 2
    torch.testing.assert_close(entries_of(codebook)[0], weighted_sum / weight)


def test_an_entry_that_always_gets_the_same_vectors_becomes_their_mean():
    codebook = codebook_at(torch.tensor([[0.0, 0, 0], [100.0, 0, 0]]))
    vectors = torch.tensor([[1.0, 2, 3], [3.0, 4, 5], [90.0, 0, 0]])
    for _ in range(200):
        vq.follow([codebook], vq.quantize([codebook], vectors), 0.9)
    torch.testing.assert_close(entries_of(codebook), torch.tensor([[2.0, 3, 4], [90.0, 0, 0]]))
    torch.testing.assert_close(codebook.cluster_usage, torch.tensor([4 / 3, 2 / 3]))


def test_a_dead_entry_becomes_a_vector_of_the_batch_and_the_living_stay():
    codebook = codebook_at(torch.tensor([[0.0, 0, 0], [500.0, 0, 0], [1.0, 1, 1]]))
    vectors = torch.randn(50, WIDTH, generator=random(1))
    for _ in range(400):
        vq.follow([codebook], vq.quantize([codebook], vectors), 0.98)
    before = entries_of(codebook)[[0, 2]].clone()
    is_dead = vq.revive(codebook, vectors, random())
    assert is_dead.tolist() == [False, True, False]
    torch.testing.assert_close(entries_of(codebook)[[0, 2]], before)
    revived = entries_of(codebook)[1]
    assert (vectors == revived).all(dim=1).any()
    assert codebook.cluster_usage[1] == 1
    # It is found from now on, and so does not die again at once.
    assert 1 in vq.quantize([codebook], vectors).codes
    assert not vq.revive(codebook, vectors, random(2)).any()


def test_revival_draws_do_not_depend_on_which_entries_are_dead():
    vectors = torch.randn(30, WIDTH, generator=random(1))
    one, all_of_them = (codebook_at(torch.zeros(4, WIDTH)) for _ in range(2))
    one.cluster_usage[3] = 0
    all_of_them.cluster_usage[:] = 0
    vq.revive(one, vectors, random())
    vq.revive(all_of_them, vectors, random())
    torch.testing.assert_close(entries_of(one)[3], entries_of(all_of_them)[3])


def test_k_means_finds_clusters_that_lie_apart():
    centres = 100 * torch.eye(WIDTH)
    vectors = centres.repeat(40, 1) + torch.randn(120, WIDTH, generator=random())
    # One mean per cluster at the outset; which vectors are drawn is up to the seed.
    seed = next(
        s for s in range(100) if {int(i) % 3 for i in torch.randperm(120, generator=random(s))[:3]} == {0, 1, 2}
    )
    means = vq.k_means(vectors, 3, random(seed))
    expected = vectors.view(40, 3, WIDTH).mean(dim=0)
    order = means.argmax(dim=1).argsort()
    torch.testing.assert_close(means[order], expected)


@given(seed=st.integers(0, 10_000), num_vectors=st.integers(1, 60))
def test_starting_leaves_less_and_less_of_the_vectors(seed: int, num_vectors: int):
    vectors = torch.randn(num_vectors, WIDTH, generator=random(seed))
    codebooks = [EncoderCodebook(8, WIDTH) for _ in range(4)]
    vq.start(codebooks, vectors, random(seed))
    quantized = vq.quantize(codebooks, vectors)
    left = [float(inputs.square().sum()) for inputs in quantized.inputs]
    left.append(float((quantized.inputs[-1] - quantized.entries[-1]).square().sum()))
    assert all(after <= before * 1.0001 + 1e-6 for before, after in itertools.pairwise(left))
    assert all(torch.isfinite(entries_of(codebook)).all() for codebook in codebooks)


def test_what_was_started_is_the_mean_of_its_vectors_in_every_codebook():
    vectors = torch.randn(500, WIDTH, generator=random())
    codebooks = [EncoderCodebook(8, WIDTH) for _ in range(3)]
    vq.start(codebooks, vectors, random())
    quantized = vq.quantize(codebooks, vectors)
    for codebook, codes, inputs in zip(codebooks, quantized.codes, quantized.inputs, strict=True):
        means = torch.stack([inputs[codes == entry].mean(dim=0) for entry in range(8)])
        # Lloyd's iterations had not all come to rest when they were stopped.
        assert (entries_of(codebook) - means).abs().max() < 0.1 * inputs.std()
        torch.testing.assert_close(codebook.cluster_usage.sum(), torch.tensor(8.0))


def test_perplexity_counts_equally_used_entries():
    assert vq.perplexity(torch.tensor([5, 5, 5, 0])) == pytest.approx(3)
    assert vq.perplexity(torch.tensor([7, 0, 0, 0])) == pytest.approx(1)
    assert 1 < vq.perplexity(torch.tensor([100, 1])) < math.sqrt(2)
