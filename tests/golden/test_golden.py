from __future__ import annotations

import pytest
import torch

from tests.golden import GOLDEN_CHECKPOINT
from tests.golden.check import compare, main


def test_everything_recorded_agrees_with_the_reference(capsys):
    status = main([str(GOLDEN_CHECKPOINT)])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("FAIL")] == []
    assert any(line.startswith("ok   sft.talker_loss:") for line in lines)
    assert status == 0


@pytest.mark.parametrize(
    ("name", "expected", "found"),
    [
        ("a.codes", torch.tensor([1, 2]), torch.tensor([1, 3])),
        ("a.waveform", torch.zeros(4), torch.full((4,), 2e-4)),
        ("a.waveform", torch.zeros(4), torch.zeros(5)),
        ("sft.talker_loss", torch.tensor(1.0), torch.tensor(1.0001)),
        ("sft.grad.x", torch.ones(3), torch.ones(3) * 1.01),
        ("a.log_mel", torch.zeros(2), torch.tensor([0.0, float("nan")])),
    ],
)
def test_a_difference_is_noticed(name, expected, found):
    assert not compare(name, expected, found).passed


def test_a_folder_that_is_no_checkpoint_is_one_line_and_status_two(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
