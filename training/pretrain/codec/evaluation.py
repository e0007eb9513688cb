"""Evaluates a speech tokenizer on held-out speech: distance of resynthesis to source, and use of the codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
import torch
from torch import Tensor

from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.pretrain.codec import vector_quantizer_training as vq
from training.pretrain.codec.spectral_loss import SpectralLoss
from training.pretrain.corpus.corpus import FULL_SCALE, HELD_OUT_PARAMETERS, HELD_OUT_TEXTS, HELD_OUT_VOICE, open_corpus

PARTS = (HELD_OUT_TEXTS, HELD_OUT_PARAMETERS, HELD_OUT_VOICE)

# Whole utterances, but not the few very long ones: the encoder's memory grows with the longest.
_MAX_SAMPLES = 6 * 16_000


class Resynthesis(NamedTuple):
    """One recording through the tokenizer: all float32 or int64, (samples,) and (frames, codebooks)."""

    source: Tensor
    codes: Tensor
    waveform: Tensor


class Evaluation(NamedTuple):
    """Measurements on held-out speech."""

    distances: Mapping[str, float]
    """Spectral loss between source and resynthesis, by part of the corpus."""
    perplexities: Sequence[float]
    """Of each codebook, over all parts together."""


def held_out_speech(corpus: Path, num_utterances: int) -> dict[str, list[Tensor]]:
    """The first utterances of each held-out part, float32 in [-1, 1], at most 6 s long."""
    speech = {}
    for part in PARTS:
        utterances = open_corpus(corpus, part)
        chosen = [utterances.utterance(number).audio for number in range(min(num_utterances, len(utterances)))]
        speech[part] = [
            torch.from_numpy(audio[:_MAX_SAMPLES].astype(np.float32) / np.float32(FULL_SCALE)) for audio in chosen
        ]
    return speech


@torch.no_grad()
def resynthesize(tokenizer: SpeechTokenizer, source: Tensor) -> Resynthesis:
    """Encode and decode a recording; the padding of the last frame is cut off."""
    codes = tokenizer.encode([source])[0]
    return Resynthesis(source, codes, tokenizer.decode(codes.unsqueeze(0))[0, : len(source)].cpu())


def evaluate(
    tokenizer: SpeechTokenizer, speech: Mapping[str, Sequence[Tensor]], wavs: Path | None = None
) -> Evaluation:
    """Evaluate on `speech` (from `held_out_speech`); writes the first two of each part to `wavs`, to listen to."""
    spectral_loss = SpectralLoss(tokenizer.config.input_sample_rate)
    distances = {}
    all_codes = []
    for part, sources in speech.items():
        heard = [resynthesize(tokenizer, source) for source in sources]
        losses = [spectral_loss(one.waveform.unsqueeze(0), one.source.unsqueeze(0)) for one in heard]
        distances[part] = float(torch.stack(losses).mean())
        all_codes += [one.codes.cpu() for one in heard]
        if wavs is not None:
            _write_wavs(wavs, part, heard[:2], tokenizer.config.output_sample_rate)
    codes = torch.cat(all_codes)
    codebook_size = tokenizer.config.decoder.codebook_size
    perplexities = [vq.perplexity(torch.bincount(column, minlength=codebook_size)) for column in codes.unbind(dim=-1)]
    return Evaluation(distances, perplexities)


def describe(evaluation: Evaluation, codebook_size: int) -> str:
    """The evaluation as a table."""
    lines = ["spectral distance of resynthesis to source, held out:"]
    lines += [f"  {part:<22}{distance:.3f}" for part, distance in evaluation.distances.items()]
    lines += [f"perplexity of each codebook, of {codebook_size}:"]
    lines += [f"  {number:<4}{value:.1f}" for number, value in enumerate(evaluation.perplexities)]
    return "\n".join(lines)


def _write_wavs(folder: Path, part: str, heard: Sequence[Resynthesis], sample_rate_hz: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(heard):
        for kind, waveform in (("source", one.source), ("resynthesis", one.waveform)):
            soundfile.write(folder / f"{part}-{number}-{kind}.wav", waveform.numpy(), sample_rate_hz, subtype="PCM_16")
