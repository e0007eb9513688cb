"""What runs on a GPU that is not CUDA's: plain operations alone, no float64, no packed weights, no graphs.

`meta` stands for such a device. It computes shapes only, but every operation that is sent to it can be looked at.
"""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from training.model.checkpoint.reading import read_config, read_speech_tokenizer_config
from training.model.generation.frame_loop import FrameLoop
from training.model.generation.graphed_calls import GraphedCalls
from training.model.network import grouped_attention
from training.model.network.mel import log_mel
from training.model.voice_model import build_networks

PACKED = ("quantized", "mkldnn", "fbgemm", "prepack", "int8pack", "varlen", "flash_attention_forward")


class Watched(TorchDispatchMode):
    """Notes the operations on the device that a GPU may lack."""

    def __init__(self) -> None:
        super().__init__()
        self.num_seen, self.lacking = 0, set[str]()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs, out)) if isinstance(leaf, torch.Tensor)]
        on_device = [tensor for tensor in tensors if tensor.device.type == "meta"]
        if on_device:
            self.num_seen += 1
            if any(tensor.dtype in (torch.float64, torch.complex128) for tensor in on_device):
                self.lacking.add(f"{function} in float64")
            if any(word in str(function) for word in PACKED):
                self.lacking.add(str(function))
        return out


@pytest.fixture(scope="module")
def networks(golden_folder):
    config = read_config(golden_folder)
    return config, *build_networks(config, read_speech_tokenizer_config(golden_folder))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("num_slots", [1, 3])
def test_frames_are_made_of_plain_operations(networks, precision, num_slots):
    config, talker, *_ = networks
    with Watched() as watched, torch.inference_mode():
        loop = FrameLoop(talker, config, precision=precision, num_slots=num_slots, cache_length=64)
        assert not loop._graphs.enabled
        x_TD = torch.empty(5, config.talker.hidden_size, device="meta", dtype=loop.dtype)
        loop._main.prefill(x_TD, 0)
        loop._state.first_draw.set_slot(0, (0.9, 50, 0.95))
        loop._state.rest_draw.set_slot(0, (0.9, 0, 1.0))
        loop._talker_step(loop._state, 6)
        loop._predict_residual(loop._state)
    assert watched.num_seen > 100
    assert watched.lacking == set()


def test_recordings_are_analysed_and_decoded_with_plain_operations(networks):
    _, _, speaker_encoder, speech_tokenizer = networks
    with Watched() as watched, torch.inference_mode():
        waveform_S = torch.empty(24_000, device="meta")
        speaker_encoder(log_mel(waveform_S.unsqueeze(0), 24_000, speaker_encoder.config.mel_dim))
        num_codebooks = speech_tokenizer.config.encoder_valid_num_quantizers
        codes_BFQ = torch.zeros(1, 12, num_codebooks, dtype=torch.long, device="meta")
        # Not `decode`, which first looks at the codes themselves.
        speech_tokenizer.decoder(speech_tokenizer.decoder.quantizer.decode(codes_BFQ))
    assert watched.num_seen > 50
    assert watched.lacking == set()


@pytest.mark.parametrize("kind", ["cpu", "mps", "xpu"])
def test_graphs_are_captured_on_cuda_alone(kind):
    called = []
    calls = GraphedCalls.on(torch.device(kind))
    for _ in range(3):
        calls.run("key", lambda: called.append(1))
    assert len(called) == 3


def test_attention_without_a_grouped_kernel_is_the_same(monkeypatch: pytest.MonkeyPatch):
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, heads, 7, 16, generator=generator) for heads in (4, 2, 2))
    mask = torch.ones(7, 7, dtype=torch.bool).tril()
    native = grouped_attention.grouped_attention(q, k, v, is_causal=True)
    monkeypatch.setattr(grouped_attention, "NATIVE", frozenset())
    torch.testing.assert_close(grouped_attention.grouped_attention(q, k, v, is_causal=True), native)
    torch.testing.assert_close(grouped_attention.grouped_attention(q, k, v, mask=mask), native)
