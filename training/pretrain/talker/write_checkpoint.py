"""Exports a talker's run and a tokenizer's as a checkpoint folder in the public format."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from training.model.checkpoint.writing import save_checkpoint
from training.model.generation_defaults import FADES_LAST_FRAME, GUIDANCE_SCALE, TIMBRE_MATCHING
from training.pretrain.codec.read_tokenizer import read_tokenizer
from training.pretrain.errors import PretrainError
from training.pretrain.run.training_state import has_state, read_job, read_networks, read_step
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
    # Few speakers of the corpus have said more than half a minute in all. Not a name of the public format.
    "max_reference_seconds": 10.0,
    # It learns from few voices and their variations. Not a name of the public format either.
    TIMBRE_MATCHING: True,
    FADES_LAST_FRAME: True,
}

# Of a talker that has learnt speech without text and speaker.
_GUIDANCE = {GUIDANCE_SCALE: 2.0}


def export_checkpoint(talker_run: Path, tokenizer: Path, folder: Path) -> tuple[int, int]:
    """Export a talker's saved state with a speech tokenizer to `folder`, replacing an older export.

    The tokenizer is a run's, or that of a checkpoint. Returns the steps of both, 0 for a checkpoint.

    Raises:
        PretrainError: one of the runs does not exist.
        CheckpointError: a weight is NaN or infinite, or the folder cannot be written.
    """
    if not has_state(talker_run):
        raise PretrainError(f"{talker_run} holds no run to export.")
    talker_job = TalkerJob.model_validate(read_job(talker_run))
    network = TalkerNetwork(talker_job)
    talker_steps = read_networks(talker_run, talker_job, {"network": network})
    codec, tokenizer_steps = read_tokenizer(tokenizer), read_step(tokenizer) or 0
    with tempfile.TemporaryDirectory() as temporary:
        write_text_tokenizer(Path(temporary))
        save_checkpoint(
            folder,
            config=network.config,
            state=network.checkpoint_state(),
            speech_tokenizer=(codec.config, codec.state_dict()),
            text_tokenizer=Path(temporary),
            generation_config=GENERATION_DEFAULTS | (_GUIDANCE if talker_job.unconditional_share else {}),
            dtype=torch.bfloat16,
            replace=True,
        )
    return talker_steps, tokenizer_steps
