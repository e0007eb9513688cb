import pytest
import torch
from torch import nn

from training.pretrain.run.muon import Muon, matrices_of, orthogonalise


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 24, 6), (1, 6, 24)], ids=["square", "tall", "wide"])
def test_all_directions_come_out_about_alike(shape: tuple[int, int, int]):
    # Singular values from 1 to 10, about as far apart as a gradient's.
    rows, columns = shape[1:]
    smaller = min(rows, columns)
    left, _ = torch.linalg.qr(torch.randn(shape[0], rows, smaller))
    right, _ = torch.linalg.qr(torch.randn(shape[0], columns, smaller))
    matrices = left @ torch.diag(torch.logspace(0, 1, smaller)) @ right.mT
    found = orthogonalise(matrices, num_iterations=5).float()
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.5
    assert values.max() < 1.3
    # The nearest orthogonal matrix is in the same directions.
    nearest = left @ right.mT
    assert nn.functional.cosine_similarity(found.flatten(1), nearest.flatten(1)).min() > 0.9


@pytest.mark.parametrize("is_fast", [True, False])
def test_bfloat16_is_used_where_it_is_fast(is_fast: bool, monkeypatch: pytest.MonkeyPatch):
    """Emulated, as on processors with AVX2 alone, it made a step ten times as long."""
    monkeypatch.setattr("training.pretrain.run.muon.supports_bf16", lambda device: is_fast)
    assert orthogonalise(torch.randn(1, 4, 8), 5).dtype == (torch.bfloat16 if is_fast else torch.float32)


def test_a_matrix_is_found_and_kernels_count_as_matrices():
    torch.manual_seed(0)
    target = torch.randn(6, 4, 3)
    kernel = nn.Parameter(torch.zeros(6, 4, 3))
    optimizer = Muon([kernel], lr=0.05, weight_decay=0.0)
    losses = []
    for _ in range(100):
        loss = (kernel - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


def test_a_resumed_optimizer_steps_as_one_that_never_stopped():
    def steps(parameter: nn.Parameter, optimizer: Muon, numbers: range) -> None:
        for number in numbers:
            parameter.grad = torch.randn(8, 4, generator=torch.Generator().manual_seed(number))
            optimizer.step()

    whole = nn.Parameter(torch.zeros(8, 4))
    steps(whole, Muon([whole]), range(6))
    first = nn.Parameter(torch.zeros(8, 4))
    stopped = Muon([first])
    steps(first, stopped, range(3))
    second = nn.Parameter(first.detach().clone())
    resumed = Muon([second])
    resumed.load_state_dict(stopped.state_dict())
    steps(second, resumed, range(3, 6))
    assert torch.equal(second, whole)


def test_embeddings_vectors_and_what_is_named_are_left_to_another_optimizer():
    network = nn.ModuleDict(
        {"table": nn.Embedding(5, 4), "body": nn.Linear(4, 4), "kernel": nn.Conv1d(4, 4, 3), "head": nn.Linear(4, 2)}
    )
    matrices, rest = matrices_of(network, but=("head",))
    assert {tuple(one.shape) for one in matrices} == {(4, 4), (4, 4, 3)}
    assert len(matrices) + len(rest) == len(list(network.parameters()))
