"""How well a transcriber in openai-whisper's format hears held-out speech, by Whisper's own decoding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jiwer
import numpy as np
import torch
import whisper
from numpy.typing import NDArray
from whisper.model import Whisper

from training.pretrain.corpus import FULL_SCALE, open_corpus
from training.pretrain.normalise import key
from training.pretrain.whisper_validation import PARTS

_BATCH_SIZE = 8


class Score(NamedTuple):
    """Errors over all utterances of one part."""

    character_error: float
    word_error: float


def transcribe(model: Whisper, sounds: Sequence[NDArray[np.float32]]) -> list[str]:
    """What Whisper's own decoding hears in sounds of at most 30 s, float32 at 16 kHz."""
    mels = [whisper.log_mel_spectrogram(whisper.pad_or_trim(sound), model.dims.n_mels) for sound in sounds]
    options = whisper.DecodingOptions(language="en", fp16=False)
    texts: list[str] = []
    for start in range(0, len(mels), _BATCH_SIZE):
        results = whisper.decode(model, torch.stack(mels[start : start + _BATCH_SIZE]), options)
        texts += [result.text for result in results]
    return texts


def evaluate(file: Path, corpus: Path, num_utterances: int) -> dict[str, Score]:
    """Errors on the first utterances of each held-out part; letters and words count, case and punctuation do not."""
    model = whisper.load_model(str(file), device="cpu")
    scores = {}
    for part in PARTS:
        opened = open_corpus(corpus, part)
        utterances = [opened.utterance(number) for number in range(min(num_utterances, len(opened)))]
        heard = transcribe(model, [one.audio.astype(np.float32) / np.float32(FULL_SCALE) for one in utterances])
        said = [key(one.text) for one in utterances]
        read = [key(text) for text in heard]
        scores[part] = Score(float(jiwer.cer(said, read)), float(jiwer.wer(said, read)))
    return scores


def describe(scores: dict[str, Score]) -> str:
    """The scores as a table for people."""
    lines = ["held out               character error   word error"]
    lines += [
        f"  {part:<22}{100 * score.character_error:12.1f} %{100 * score.word_error:11.1f} %"
        for part, score in scores.items()
    ]
    return "\n".join(lines)
