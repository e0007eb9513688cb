import os

import torch

from training.pretrain.run.prefetch import Prefetch


def made(step: int) -> tuple[torch.Tensor, int]:
    return torch.full((2,), step), os.getpid()


def test_beside_a_gpu_other_processes_make_the_batches_in_order():
    source = Prefetch(made, torch.device("cuda"))
    found = [source.batch(step) for step in (3, 4, 5, 6)]
    assert [int(tensor[0]) for tensor, _ in found] == [3, 4, 5, 6]
    assert os.getpid() not in {process for _, process in found}
    assert int(source.batch(0)[0][0]) == 0
    source.stop()
    assert int(source.batch(1)[0][0]) == 1
    source.stop()


def test_a_cpu_makes_its_own():
    batch, process = Prefetch(made, torch.device("cpu")).batch(7)
    assert int(batch[0]) == 7
    assert process == os.getpid()
