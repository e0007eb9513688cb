"""Writes a trained speech tokenizer in the public format."""

from __future__ import annotations

from pathlib import Path

import torch

from training.model.checkpoint.atomic_folder import create_folder
from training.model.checkpoint.writing import write_speech_tokenizer
from training.model.codec.quantizer import DecoderCodebook
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.pretrain.codec import vector_quantizer_training as vq


@torch.no_grad()
def share_codebooks(tokenizer: SpeechTokenizer) -> None:
    """Copy the encoder's codebooks, which are the trained ones, to the decoder."""
    encoder, decoder = tokenizer.encoder.quantizer, tokenizer.decoder.quantizer
    halves = (
        (encoder.semantic_residual_vector_quantizer, decoder.rvq_first),
        (encoder.acoustic_residual_vector_quantizer, decoder.rvq_rest),
    )
    for trained, copied in halves:
        targets = [module for module in copied.modules() if isinstance(module, DecoderCodebook)]
        for source, target in zip(vq.codebooks_of(trained), targets, strict=True):
            target.cluster_usage.copy_(source.cluster_usage)
            target.embedding_sum.copy_(source.embed_sum)


def export_tokenizer(folder: Path, tokenizer: SpeechTokenizer) -> None:
    """Write config.json, model.safetensors and preprocessor_config.json to `folder`, replacing what was there.

    Raises:
        CheckpointError: a weight is NaN or infinite, or the folder cannot be written.
    """
    share_codebooks(tokenizer)
    with create_folder(folder, replace=True) as new:
        write_speech_tokenizer(new, (tokenizer.config, tokenizer.state_dict()))
