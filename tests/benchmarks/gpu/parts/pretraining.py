"""Steps per second of the two stages that train the embedded model, on a corpus of tones."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tests.training.pretrain.tiny_corpus import write_corpus
from training.pretrain.codec.job import CropShape, TokenizerJob, TokenizerSize
from training.pretrain.codec.training import TokenizerTraining
from training.pretrain.run.training_run import TrainingRun
from training.pretrain.talker.job import TalkerJob, TalkerSize
from training.pretrain.talker.training import TalkerTraining

_SHARE_OF_TIME = 0.8
WARMUP_STEPS = 3
# As long as sentences, and enough of them for a batch.
_NUM_UTTERANCES, _SHORTEST_SECONDS, _TEXT = (
    600,
    4.0,
    "The harbour was quiet, and the boats lay still until the tide came.",
)

TINY_TOKENIZER = TokenizerJob(
    num_steps=100,
    size=TokenizerSize(
        num_filters=2,
        hidden_size=16,
        num_layers=1,
        head_dim=8,
        codebook_size=16,
        codebook_width=8,
        decoder_size=16,
        decoder_window_frames=4,
        discriminator_width=2,
    ),
    crops=(CropShape(share=1, num_crops=2, num_frames=4),),
    validate_every=100,
    log_every=2,
)
TINY_TALKER = TalkerJob(
    num_steps=100,
    size=TalkerSize(
        width=64, num_layers=1, predictor_width=64, num_predictor_layers=1, speaker_channels=8, codebook_size=16
    ),
    max_positions=200,
    validate_every=100,
    log_every=2,
)


def measure(setup: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Half of the time for each stage; the second one trains on the codes of the first."""
    began, share = time.monotonic(), _SHARE_OF_TIME * setup["seconds"]
    folder, device = Path(setup["folder"]), torch.device(setup["device"])
    corpus = folder / "corpus"
    if setup["is_tiny"]:
        write_corpus(corpus)
    else:
        write_corpus(corpus, _NUM_UTTERANCES, _SHORTEST_SECONDS, _TEXT)
    tokenizer, talker = (TINY_TOKENIZER, TINY_TALKER) if setup["is_tiny"] else (TokenizerJob(), TalkerJob())
    if device.type == "cuda":
        tokenizer, talker = tokenizer.for_gpu(), talker.for_gpu()
        torch.set_float32_matmul_precision("high")
    found: dict[str, Any] = {}
    codec = TokenizerTraining(
        tokenizer, corpus, folder / "codec", device=device, compiled=False, report=lambda line: None
    )
    for result in _steps(codec, began + share / 2, setup["max_steps"]):
        found["speech tokenizer"] = result
        yield found
    codec.save()
    stage = TalkerTraining(talker, corpus, folder / "codec", folder / "talker", device=device, report=lambda line: None)
    for result in _steps(stage, began + share, setup["max_steps"]):
        found["talker"] = result
        yield found


def _steps(stage: TrainingRun, ends: float, max_steps: int) -> Iterator[dict[str, Any]]:
    """Train; losses are read at every step, so that nothing of one is counted for the next."""
    seconds: list[float] = []
    for number in range(WARMUP_STEPS + max_steps):
        started = time.perf_counter()
        losses = stage.train_step()
        stage.step += 1
        if number >= WARMUP_STEPS:
            seconds.append(time.perf_counter() - started)
            yield {
                "steps": len(seconds),
                "steps_per_second": 1 / statistics.median(seconds),
                "losses": losses,
                "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if stage.device.type == "cuda" else None,
            }
        if seconds and time.monotonic() > ends:
            return
