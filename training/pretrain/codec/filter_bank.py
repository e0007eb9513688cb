"""Gives the encoder the filters of the analysis, which it would need days to find by itself.

The encoder's convolutions can compute nearly what the analysis measures. The first three only collect samples, each at
its delay; the fourth holds a filter bank of 350 samples; ELU rectifies what it finds. The fifth adds neighbouring
filters to mel bands and divides each by several levels, so that ELU makes saturating exponentials of them. A sum of
these is a logarithm (Frullani's integral, ln a = the integral of (exp(-t) - exp(-a t)) / t), and which sum is found by
linear regression. Pitch, and what depends on the whole utterance, is left to the transformer, which starts as the
identity and is trained.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from training.model.codec.convolution import CausalConvolution
from training.model.codec.encoder import Encoder, ResidualBlock
from training.model.network.mel import mel_filterbank
from training.pretrain.codec.code_space import CodeSpace
from training.pretrain.codec.frame_features import (
    CONTENT_BANDS,
    CONTENT_FFT_SIZE,
    FFT_SIZE,
    NUM_BANDS,
    FrameFeatures,
)
from training.pretrain.codec.job import FILTER_BANK_RATIOS
from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ

# Samples are raised by this, so that none is negative and ELU leaves them as they are.
_RAISED = 1.0
# The quietest sound that the analysis tells from silence is then about 1, where ELU begins to saturate.
_GAIN = 300.0
# Harmonics of low voices are apart by a band of the lower ones.
_CENTRES_HZ = np.concatenate((np.arange(50, 550, 50), np.arange(550, 8000, 100)))
# A half-wave alone would follow the phase; three of them hardly do.
_NUM_PHASES = 3
# Levels of a band, as shares of the frames of speech in which it is quieter.
_SOUND_LEVELS, _CONTENT_LEVELS = (0.2, 0.5, 0.75, 0.93), (0.35, 0.8)
_MIN_LEVEL = 0.5
# Windows of the analysis within 40 ms, the distance of the encoder's steps.
_SOUND_WINDOWS, _CONTENT_WINDOWS = 2, 4
_STEPS_PER_FRAME = 2
_RIDGE = 1e-3

_NUM_SOUND, _NUM_PITCH = _SOUND_WINDOWS * NUM_BANDS, 2
_NUM_CONTENT = _CONTENT_WINDOWS * CONTENT_BANDS
_NUM_READ = _NUM_SOUND + _NUM_PITCH + _NUM_CONTENT


@torch.no_grad()
def install(encoder: Encoder, space: CodeSpace, speech: Sequence[Tensor]) -> None:
    """Set the encoder's weights, before any training, so that it imitates the analysis `space`.

    Args:
        encoder: of a `TokenizerSize` with `filter_bank`.
        space: the codebooks' analysis.
        speech: float32 waveforms (samples,) at 16 kHz to fit levels and logarithms to; some minutes suffice.
    """
    *first, bank, bands, read_out = (layer.conv for layer in _layers(encoder) if isinstance(layer, CausalConvolution))
    for block in _layers(encoder):
        if isinstance(block, ResidualBlock):
            _silence(block)
    num_delays = _collect_samples(first)
    _measure_sub_bands(bank, num_delays)
    padded = [functional.pad(one, (0, -len(one) % encoder.samples_per_frame)) for one in speech]
    measured = [_until(bands, encoder, one) for one in padded]
    _saturate(bands, measured)
    targets = [_targets(FrameFeatures(SAMPLE_RATE_HZ), one) for one in padded]
    means = _regress(read_out, [functional.elu(bands(_before(bands, one)))[0] for one in measured], targets)
    _project(encoder, space, means)


def frozen_layers(encoder: Encoder) -> list[nn.Module]:
    """What keeps its weights in training: all convolutions but the last."""
    return _layers(encoder)[:-1]


def _layers(encoder: Encoder) -> list[nn.Module]:
    return list(encoder.encoder.layers)


def _silence(block: ResidualBlock) -> None:
    """Let a block pass on what it is given."""
    last = block.block[-1]
    assert isinstance(last, CausalConvolution)
    for parameter in last.parameters():
        parameter.zero_()


def _collect_samples(convolutions: Sequence[nn.Conv1d]) -> int:
    """Make channel i of each convolution the sample i before its newest one; returns the last one's number of them."""
    step, num_inputs = 1, 1
    for convolution in convolutions:
        kernel_size = convolution.kernel_size[0]
        num_outputs = num_inputs + (kernel_size - 1) * step
        weight = torch.zeros_like(convolution.weight)
        for delay in range(num_outputs):
            taps_back = min(delay // step, kernel_size - 1)
            weight[delay, delay - taps_back * step, kernel_size - 1 - taps_back] = 1.0
        convolution.weight.copy_(weight)
        _bias(convolution).zero_()
        if num_inputs == 1:
            _bias(convolution)[:num_outputs] = _RAISED
        step, num_inputs = step * convolution.stride[0], num_outputs
    return num_inputs


def _measure_sub_bands(bank: nn.Conv1d, num_delays: int) -> None:
    """Filters of one sub-band each, in three phases."""
    kernel_size, step = bank.kernel_size[0], math.prod(FILTER_BANK_RATIOS[-2:])
    num_taps = num_delays + (kernel_size - 1) * step
    window = np.hanning(num_taps + 2)[1:-1]
    window *= _GAIN / np.linalg.norm(window)
    weight = torch.zeros_like(bank.weight)
    bias = torch.zeros_like(_bias(bank))
    for channel, (hz, phase) in enumerate(itertools.product(_CENTRES_HZ, range(_NUM_PHASES))):
        angle = 2 * np.pi * (hz * np.arange(num_taps) / SAMPLE_RATE_HZ + phase / _NUM_PHASES)
        taps = window * np.cos(angle)
        for delay, value in enumerate(taps):
            taps_back = min(delay // step, kernel_size - 1)
            weight[channel, delay - taps_back * step, kernel_size - 1 - taps_back] = float(value)
        bias[channel] = -_RAISED * float(taps.sum())
    bank.weight.copy_(weight)
    _bias(bank).copy_(bias)


def _saturate(bands: nn.Conv1d, measured: Sequence[Tensor]) -> None:
    """Mel bands of each window, divided by levels of their own, and negative, where ELU is an exponential."""
    sound = _sums_of_sub_bands(FFT_SIZE, NUM_BANDS)
    content = _sums_of_sub_bands(CONTENT_FFT_SIZE, CONTENT_BANDS)
    kernel_size, newest = bands.kernel_size[0], FILTER_BANK_RATIOS[0]
    weight = torch.zeros_like(bands.weight)
    channel = 0
    for sums, num_windows, levels in (
        (sound, _SOUND_WINDOWS, _SOUND_LEVELS),
        (content, _CONTENT_WINDOWS, _CONTENT_LEVELS),
    ):
        # Both kinds of window are about two steps of the bank long. No step follows the last.
        starts = [number * newest // num_windows for number in range(num_windows)]
        for start, row in itertools.product(starts, sums):
            taps = range(kernel_size - newest + start, min(kernel_size - newest + start + 2, kernel_size))
            found = torch.cat([(row @ one[0, : len(row)]) for one in measured])
            # Every step will do, for those of speech are alike.
            for level in torch.quantile(found[::5].float(), torch.tensor(levels)).clamp(min=_MIN_LEVEL):
                for tap in taps:
                    weight[channel, : len(row), tap] = -row / level / len(taps)
                channel += 1
    bands.weight.copy_(weight)
    _bias(bands).zero_()


def _sums_of_sub_bands(fft_size: int, num_bands: int) -> Tensor:
    """Weights (bands, channels of the bank) of mel bands with lines of an FFT of this size."""
    lines = mel_filterbank(SAMPLE_RATE_HZ, fft_size, num_bands).double().numpy()
    hz = np.arange(lines.shape[1]) * SAMPLE_RATE_HZ / fft_size
    # Each line is divided between its neighbours.
    shares: NDArray[np.float64] = np.stack([np.interp(hz, _CENTRES_HZ, unit) for unit in np.eye(len(_CENTRES_HZ))])
    sums = lines @ shares.T
    sums /= sums.sum(axis=1, keepdims=True)
    return torch.from_numpy(sums.repeat(_NUM_PHASES, axis=1)).float()


def _until(layer: nn.Conv1d, encoder: Encoder, waveform: Tensor) -> Tensor:
    """What a convolution of the encoder is given for a waveform (samples,)."""
    hidden = waveform[None, None]
    for one in _layers(encoder):
        if isinstance(one, CausalConvolution) and one.conv is layer:
            break
        hidden = one(hidden)
    return hidden


def _before(layer: nn.Conv1d, signal: Tensor) -> Tensor:
    """The signal, padded as a causal convolution pads it."""
    return functional.pad(signal, (layer.kernel_size[0] - layer.stride[0], 0))


def _targets(measure: FrameFeatures, waveform: Tensor) -> Tensor:
    """Bands, pitch and content at each step of the encoder (steps, values)."""
    found = measure(waveform)
    num_steps = _STEPS_PER_FRAME * len(found.sound)
    bands = found.sound[:, : _STEPS_PER_FRAME * _NUM_SOUND].reshape(num_steps, _NUM_SOUND)
    pitch = found.sound[:, _STEPS_PER_FRAME * _NUM_SOUND :].reshape(num_steps, _NUM_PITCH)
    content = found.content.unflatten(1, (CONTENT_BANDS, _STEPS_PER_FRAME, _CONTENT_WINDOWS)).permute(0, 2, 3, 1)
    return torch.cat((bands, pitch, content.reshape(num_steps, _NUM_CONTENT)), dim=1)


def _regress(read_out: nn.Conv1d, inputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
    """Make the last convolution predict the targets less their means, which are returned; one channel is always 1."""
    rows = torch.cat([_before(read_out, one[None])[0].unfold(1, read_out.kernel_size[0], 1) for one in inputs], dim=1)
    rows = rows.transpose(0, 1).flatten(1).double()
    wanted = torch.cat(list(targets)).double()
    centre, means = rows.mean(dim=0), wanted.mean(dim=0)
    rows, wanted = rows - centre, wanted - means
    gram = rows.t() @ rows
    gram.diagonal().add_(_RIDGE * gram.diagonal().mean())
    found = torch.linalg.solve(gram, rows.t() @ wanted)
    read_out.weight.zero_()
    read_out.weight[:_NUM_READ] = found.t().unflatten(1, read_out.weight.shape[1:]).float()
    _bias(read_out).zero_()
    _bias(read_out)[:_NUM_READ] = -(centre @ found).float()
    _bias(read_out)[_NUM_READ] = 1.0
    return means.float()


def _project(encoder: Encoder, space: CodeSpace, means: Tensor) -> None:
    """Make the latents the components of the analysis, sound before content, and give each quantizer its own."""
    sound, pitch, content = means.split((_NUM_SOUND, _NUM_PITCH, _NUM_CONTENT))
    by_window = content.unflatten(0, (_CONTENT_WINDOWS, CONTENT_BANDS)).t()
    quantizer = encoder.quantizer
    halves = (
        (space.sound, torch.cat((sound, sound, pitch, pitch)), quantizer.acoustic_residual_vector_quantizer),
        (space.content, by_window.repeat(1, _STEPS_PER_FRAME).flatten(), quantizer.semantic_residual_vector_quantizer),
    )
    weight = encoder.downsample.conv.weight
    weight.zero_()
    for number, (components, own_means, half) in enumerate(halves):
        width = components.basis.shape[1]
        rows = slice(number * width, (number + 1) * width)
        basis = components.basis * components.get_buffer("scale")
        for step in range(_STEPS_PER_FRAME):
            tap = step - _STEPS_PER_FRAME
            if components is space.sound:
                weight[rows, : _NUM_SOUND + _NUM_PITCH, tap] = _sound_of(basis, step).t()
            else:
                weight[rows, _NUM_SOUND + _NUM_PITCH : _NUM_READ, tap] = _content_of(basis, step).t()
        weight[rows, _NUM_READ, -1] = (own_means - components.mean) @ basis
        assert half.input_proj is not None
        half.input_proj.weight.zero_()
        half.input_proj.weight[:, rows, 0] = torch.eye(width)


def _sound_of(basis: Tensor, step: int) -> Tensor:
    """Rows of a basis (features, width) for the bands and the pitch of one step."""
    num_bands = _STEPS_PER_FRAME * _NUM_SOUND
    bands = basis[:num_bands].unflatten(0, (_STEPS_PER_FRAME, _NUM_SOUND))
    pitch = basis[num_bands:].unflatten(0, (_STEPS_PER_FRAME, _NUM_PITCH))
    return torch.cat((bands[step], pitch[step]))


def _content_of(basis: Tensor, step: int) -> Tensor:
    """Rows of a basis (features, width) for the content of one step, window by window."""
    by_band = basis.unflatten(0, (CONTENT_BANDS, _STEPS_PER_FRAME, _CONTENT_WINDOWS))
    own: Tensor = by_band[:, step].transpose(0, 1).flatten(0, 1)
    return own


def _bias(convolution: nn.Conv1d) -> Tensor:
    assert convolution.bias is not None
    return convolution.bias
