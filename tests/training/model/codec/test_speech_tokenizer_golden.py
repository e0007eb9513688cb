"""The speech tokenizer against the reference package's recorded outputs and the published tensor list."""

from __future__ import annotations

import copy
import dataclasses
import json

import pytest
import torch
from torch import Tensor

from tests.golden import CONTRACT
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.model.config import SpeechTokenizerConfig
from training.model.errors import ConfigError


@pytest.mark.parametrize("index", [0, 1])
def test_codes_of_a_lone_recording(golden_tokenizer: SpeechTokenizer, expected: dict[str, Tensor], index: int) -> None:
    (codes_FQ,) = golden_tokenizer.encode([expected[f"audio.{index}.waveform"]])
    assert codes_FQ.dtype == torch.int64
    assert torch.equal(codes_FQ, expected[f"audio.{index}.codes"].long())


def test_codes_do_not_depend_on_the_batch(golden_tokenizer: SpeechTokenizer, expected: dict[str, Tensor]) -> None:
    codes = golden_tokenizer.encode([expected["audio.0.waveform"], expected["audio.1.waveform"]])
    for index, codes_FQ in enumerate(codes):
        assert torch.equal(codes_FQ, expected[f"audio.{index}.codes"].long())


def test_waveform_in_double_precision(golden_tokenizer: SpeechTokenizer, expected: dict[str, Tensor]) -> None:
    decoder = copy.deepcopy(golden_tokenizer.decoder).double()
    with torch.no_grad():
        waveform_BS = decoder(decoder.quantizer.decode(expected["decode.codes"].long().unsqueeze(0)))
    torch.testing.assert_close(waveform_BS[0].float(), expected["decode.waveform"], rtol=0, atol=1e-4)


def test_waveform_in_single_precision(golden_tokenizer: SpeechTokenizer, expected: dict[str, Tensor]) -> None:
    waveform_BS = golden_tokenizer.decode(expected["decode.codes"].unsqueeze(0))
    assert waveform_BS.dtype == torch.float32
    # The random weights drive snake activations to 2000, where float32 resolves a sine to 1e-4: the recorded
    # waveform itself is 8e-5 from the exact one, and so is ours.
    torch.testing.assert_close(waveform_BS[0], expected["decode.waveform"], rtol=0, atol=2e-4)


def test_published_names_shapes_and_size() -> None:
    contract = json.loads((CONTRACT / "speech-tokenizer-12hz.json").read_text())
    with torch.device("meta"):
        tokenizer = SpeechTokenizer(SpeechTokenizerConfig.from_json(contract["config"]))
    shapes = {name: list(tensor.shape) for name, tensor in tokenizer.state_dict().items()}
    assert shapes == dict(contract["tensors"])
    # The published count leaves out the encoder's codebooks, which are buffers.
    assert sum(parameter.numel() for parameter in tokenizer.parameters()) == contract["parameters"]


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("encoder", {"use_causal_conv": False}),
        ("encoder", {"pad_mode": "reflect"}),
        ("encoder", {"num_quantizers": 8}),
        ("decoder", {"upsample_rates": (8, 5, 4, 2)}),
    ],
)
def test_another_architecture_is_refused(
    tiny_config: SpeechTokenizerConfig, part: str, changes: dict[str, object]
) -> None:
    changed = dataclasses.replace(getattr(tiny_config, part), **changes)
    with pytest.raises(ConfigError, match=r"speech_tokenizer/config\.json"):
        SpeechTokenizer(dataclasses.replace(tiny_config, **{part: changed}))
