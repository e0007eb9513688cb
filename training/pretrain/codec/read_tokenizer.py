"""Reads a speech tokenizer, of a run or of a checkpoint."""

from __future__ import annotations

from pathlib import Path

import torch

from training.model.checkpoint.names import SPEECH_TOKENIZER_FOLDER
from training.model.checkpoint.reading import find_weights, load_weights, read_speech_tokenizer_config
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.pretrain.codec.job import TokenizerJob
from training.pretrain.codec.network import TokenizerNetwork
from training.pretrain.codec.write_tokenizer import share_codebooks
from training.pretrain.errors import PretrainError
from training.pretrain.run.training_state import has_state, read_job, read_networks


def read_tokenizer(source: Path) -> SpeechTokenizer:
    """The speech tokenizer of a run's last saved state, or of a checkpoint.

    Raises:
        PretrainError: the run has not saved a state yet, or there is neither.
        CheckpointError: the checkpoint's speech tokenizer cannot be read.
    """
    if has_state(source):
        job = TokenizerJob.model_validate(read_job(source))
        network = TokenizerNetwork(job)
        read_networks(source, job, {"network": network})
        share_codebooks(network.tokenizer)
        return network.tokenizer.eval()
    weights = source / SPEECH_TOKENIZER_FOLDER
    if not weights.is_dir():
        raise PretrainError(
            f"{source} holds no speech tokenizer: it is no checkpoint, nor a run that has saved its state. "
            "Run the tokenizer stage first."
        )
    tokenizer = SpeechTokenizer(read_speech_tokenizer_config(source))
    load_weights(tokenizer, find_weights(weights), "", dtype=torch.float32, device="cpu")
    return tokenizer.eval()
