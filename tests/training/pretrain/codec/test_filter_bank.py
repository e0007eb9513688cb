from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
import torch
from torch import Tensor, nn

from tests.training.pretrain.tiny_corpus import write_corpus
from training.model.codec.convolution import CausalConvolution
from training.model.project import PROJECT_FOLDER
from training.pretrain.codec import filter_bank
from training.pretrain.codec.code_space import CodeSpace
from training.pretrain.codec.frame_features import Features, FrameFeatures
from training.pretrain.codec.job import CropShape, TokenizerJob, TokenizerSize
from training.pretrain.codec.network import TokenizerNetwork
from training.pretrain.codec.training import TokenizerTraining
from training.pretrain.codec.write_tokenizer import export_tokenizer

JOB = TokenizerJob(
    num_steps=4,
    size=TokenizerSize(num_filters=32, num_layers=1, decoder_size=16, codebook_size=16, filter_bank=True),
    crops=(CropShape(share=1, num_crops=2, num_frames=4),),
    encoder_only=True,
    num_warmup_steps=1,
    validate_every=4,
    log_every=2,
)
WIDTH = JOB.size.codebook_width


@pytest.fixture(scope="module")
def speech() -> Mapping[str, Tensor]:
    found = {}
    for name in ("iris", "owen", "rufus"):
        samples, rate_hz = soundfile.read(PROJECT_FOLDER / "assets" / "voices" / f"{name}.flac", dtype="float32")
        samples = soxr.resample(samples, rate_hz, 16_000)
        found[name] = torch.from_numpy(samples * np.float32(0.07 / np.sqrt(np.square(samples).mean())))
    return found


def features_of(speech: Mapping[str, Tensor]) -> Features:
    measured = [FrameFeatures(16_000)(samples) for samples in speech.values()]
    return Features(torch.cat([one.content for one in measured]), torch.cat([one.sound for one in measured]))


@pytest.fixture(scope="module")
def space(speech: Mapping[str, Tensor]) -> CodeSpace:
    torch.set_num_threads(1)
    return CodeSpace.fit(features_of(speech), num_codebooks=16, codebook_size=16, width=WIDTH, seed=0)


@pytest.fixture(scope="module")
def network(speech: Mapping[str, Tensor], space: CodeSpace) -> TokenizerNetwork:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    made = TokenizerNetwork(JOB)
    known = [samples for name, samples in speech.items() if name != "rufus"]
    filter_bank.install(made.tokenizer.encoder, space, known)
    return made


def convolutions(network: TokenizerNetwork) -> list[nn.Conv1d]:
    layers = network.tokenizer.encoder.encoder.layers
    return [layer.conv for layer in layers if isinstance(layer, CausalConvolution)]


@torch.no_grad()
def test_the_bank_is_what_filters_of_350_samples_find_in_the_waveform(network: TokenizerNetwork):
    bank = convolutions(network)[3]
    waveform = torch.randn(8000, generator=torch.Generator().manual_seed(1)).clamp(-4, 4) * 0.2
    hidden = waveform[None, None]
    for layer in network.tokenizer.encoder.encoder.layers:
        hidden = layer(hidden)
        if isinstance(layer, CausalConvolution) and layer.conv is bank:
            break
    window = np.hanning(352)[1:-1] * 300 / np.linalg.norm(np.hanning(352))
    # The third phase of the sub-band around 200 Hz.
    taps = window * np.cos(2 * np.pi * (200 * np.arange(350) / 16_000 + 2 / 3))
    direct = np.convolve(waveform.numpy(), taps)[159:8000:160]
    # At the very beginning the samples before it are not yet known to be silence.
    assert hidden[0, 3 * 3 + 2, 3:].numpy() == pytest.approx(direct[3:], abs=0.02)
    assert np.abs(direct).max() > 50


@torch.no_grad()
def test_without_training_a_voice_it_was_not_fitted_to_is_encoded_much_as_the_analysis_would(
    network: TokenizerNetwork, space: CodeSpace, speech: Mapping[str, Tensor]
):
    unheard = speech["rufus"]
    measured = FrameFeatures(16_000)(unheard)
    content, sound = network.vectors(unheard[None])
    for found, wanted, most in (
        (sound[0], space.sound(measured.sound), 0.35),
        (content[0], space.content(measured.content), 0.6),
    ):
        missed = (found - wanted).square().sum() / (wanted - wanted.mean(dim=0)).square().sum()
        assert missed < most


def test_the_filters_stay_while_the_rest_is_trained_and_a_run_goes_on(tmp_path: Path):
    corpus = write_corpus(tmp_path / "tones")
    run = TokenizerTraining(JOB, corpus, tmp_path / "run", device=torch.device("cpu"), compiled=False, report=print)
    before = {name: value.clone() for name, value in run.network.state_dict().items()}
    assert not run.run(save_every_seconds=1e9, should_stop=lambda: run.step == 2)

    told: list[str] = []
    resumed = TokenizerTraining(
        JOB, corpus, tmp_path / "run", device=torch.device("cpu"), compiled=False, report=told.append
    )
    assert "fitting the encoder's filters" not in told
    assert resumed.run(save_every_seconds=1e9, should_stop=lambda: False)
    after = resumed.network.state_dict()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    of_encoder = {name.removeprefix("tokenizer.encoder.") for name in changed}
    assert "downsample.conv.weight" in of_encoder
    assert {name for name in of_encoder if name.startswith("encoder.layers")} == {
        f"encoder.layers.{len(run.network.tokenizer.encoder.encoder.layers) - 1}.conv.{kind}"
        for kind in ("weight", "bias")
    }


def test_a_run_that_starts_from_such_an_encoder_goes_on_with_it(tmp_path: Path):
    corpus = write_corpus(tmp_path / "tones")
    first = TokenizerTraining(JOB, corpus, tmp_path / "first", device=torch.device("cpu"), compiled=False, report=print)
    trained = first.network.tokenizer
    with torch.no_grad():
        trained.encoder.downsample.conv.weight.mul_(0.5)
    start = tmp_path / "checkpoint" / "speech_tokenizer"
    export_tokenizer(start, trained)
    second = TokenizerTraining(
        JOB, corpus, tmp_path / "second", device=torch.device("cpu"), compiled=False, report=print, start=start
    )
    own = second.network.tokenizer.state_dict()
    assert all(torch.equal(own[name], value) for name, value in trained.state_dict().items())


@pytest.mark.parametrize("size", [{"num_filters": 16}, {"num_filters": 32, "hidden_size": 96}])
def test_an_encoder_without_room_for_the_filters_is_refused(size: dict[str, int]):
    with pytest.raises(ValueError, match=r"with filter_bank, .* must be at least"):
        TokenizerSize(filter_bank=True, **size)


def test_more_layers_for_the_encoder_leave_the_decoder_alone():
    config = TokenizerSize(num_layers=1, num_encoder_layers=3).config()
    assert (config.encoder.num_hidden_layers, config.decoder.num_hidden_layers) == (3, 1)
