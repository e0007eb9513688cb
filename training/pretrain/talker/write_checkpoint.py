"""Exports a talker's run and a tokenizer's as a checkpoint folder in the public format."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from training.model.checkpoint.writing import save_checkpoint
from training.pretrain.codec.job import TokenizerJob
from training.pretrain.codec.network import TokenizerNetwork
from training.pretrain.codec.write_tokenizer import share_codebooks
from training.pretrain.errors import PretrainError
from training.pretrain.run.training_state import has_state, read_job, read_networks
from training.pretrain.talker.job import TalkerJob
from training.pretrain.talker.network import TalkerNetwork
from training.pretrain.talker.text_tokenizer import write_text_tokenizer

# A small network's distributions are flatter than a large one's: at temperature 1 every tenth frame is an error.
GENERATION_DEFAULTS = {
    "do_sample": True,
    "temperature": 0.4,
    "top_k": 50,
    "top_p": 1.0,
    "repetition_penalty": 1.05,
    "subtalker_dosample": True,
    "subtalker_temperature": 0.4,
    "subtalker_top_k": 50,
    "subtalker_top_p": 1.0,
    "max_new_tokens": 512,
}


def export_checkpoint(talker_run: Path, tokenizer_run: Path, folder: Path) -> tuple[int, int]:
    """Export the saved states of both runs to `folder`, replacing an older export; returns the steps of both.

    Raises:
        PretrainError: one of the runs does not exist.
        CheckpointError: a weight is NaN or infinite, or the folder cannot be written.
    """
    for run in (talker_run, tokenizer_run):
        if not has_state(run):
            raise PretrainError(f"{run} holds no run to export.")
    talker_job = TalkerJob.model_validate(read_job(talker_run))
    network = TalkerNetwork(talker_job)
    talker_steps = read_networks(talker_run, talker_job, {"network": network})
    tokenizer_job = TokenizerJob.model_validate(read_job(tokenizer_run))
    codec = TokenizerNetwork(tokenizer_job)
    tokenizer_steps = read_networks(tokenizer_run, tokenizer_job, {"network": codec})
    share_codebooks(codec.tokenizer)
    with tempfile.TemporaryDirectory() as temporary:
        write_text_tokenizer(Path(temporary))
        save_checkpoint(
            folder,
            config=network.config,
            state=network.checkpoint_state(),
            speech_tokenizer=(codec.tokenizer.config, codec.tokenizer.state_dict()),
            text_tokenizer=Path(temporary),
            generation_config=GENERATION_DEFAULTS,
            dtype=torch.bfloat16,
            replace=True,
        )
    return talker_steps, tokenizer_steps
