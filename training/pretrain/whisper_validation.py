"""What a transcriber in training makes of held-out speech; quick, and hence not yet Whisper's own decoding."""

from __future__ import annotations

from pathlib import Path

import jiwer
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from training.pretrain.corpus import FULL_SCALE, HELD_OUT_PARAMETERS, HELD_OUT_TEXTS, HELD_OUT_VOICE, open_corpus
from training.pretrain.normalise import key
from training.pretrain.whisper_batches import SpeechBatch, fill_up, join
from training.pretrain.whisper_job import SAMPLES_PER_POSITION
from training.pretrain.whisper_network import LogMel, WhisperNetwork
from training.pretrain.whisper_spelling import BLANK, Spelling, read_letters

PARTS = (HELD_OUT_TEXTS, HELD_OUT_PARAMETERS, HELD_OUT_VOICE)

_NUM_VALIDATED = 40
_BATCH_SIZE = 10
_TAIL_SECONDS = 0.5


@torch.no_grad()
def validate(network: WhisperNetwork, spelling: Spelling, corpus: Path, log_mel: LogMel) -> dict[str, float]:
    """By part: text loss given the right words so far, and the share of wrong characters in the encoder's letters."""
    measured = {}
    for part in PARTS:
        texts, read, losses = [], [], []
        for batch in held_out_batches(corpus, part, _NUM_VALIDATED):
            device = next(network.parameters()).device
            states = network.encode(log_mel(batch.samples.to(device)))
            best = network.read_letters(states).argmax(dim=-1).cpu()
            read += [key(read_letters(_without_repeats(row))) for row in best]
            texts += [key(said[0].text) for said in batch.said]
            losses += [_text_loss(network, spelling, batch, row, states) for row in range(len(batch.said))]
        measured[f"text/{part}"] = float(torch.stack(losses).mean())
        measured[f"letters/{part}"] = float(jiwer.cer(texts, read))
    return measured


def held_out_batches(corpus: Path, part: str, num_utterances: int) -> list[SpeechBatch]:
    """The first utterances of a held-out part, one to a row."""
    opened = open_corpus(corpus, part)
    utterances = [opened.utterance(number) for number in range(min(num_utterances, len(opened)))]
    utterances.sort(key=lambda one: len(one.audio))
    pieces = [
        join([(one.audio.astype(np.float32) / np.float32(FULL_SCALE), one.text)], [0.0], _TAIL_SECONDS)
        for one in utterances
    ]
    chunks = [pieces[start : start + _BATCH_SIZE] for start in range(0, len(pieces), _BATCH_SIZE)]
    return [fill_up(chunk, -(-max(len(piece.samples) for piece in chunk) // SAMPLES_PER_POSITION)) for chunk in chunks]


def _text_loss(network: WhisperNetwork, spelling: Spelling, batch: SpeechBatch, row: int, states: Tensor) -> Tensor:
    whisper = spelling.whisper
    spelled = spelling.spell(batch.said[row], timed=False)
    rows = spelling.rows([whisper.sot, whisper.no_timestamps, *spelled.tokens]).to(states.device)
    logits = network.decode(rows[None, :-1], states[row : row + 1]).logits[0, 1:]
    return functional.cross_entropy(logits, rows[2:])


def _without_repeats(letters: Tensor) -> list[int]:
    return [letter for letter in torch.unique_consecutive(letters).tolist() if letter != BLANK]
