"""Writes a trained speech tokenizer in the public format."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from training.model.checkpoint.atomic_folder import create_folder
from training.model.checkpoint.config_file import speech_tokenizer_config_to_json
from training.model.checkpoint.writing import MAX_SHARD_BYTES, write_weights
from training.model.speech_tokenizer.quantizer import DecoderCodebook
from training.model.speech_tokenizer.tokenizer import SpeechTokenizer
from training.pretrain.codec import vector_quantizer_training as vq


@torch.no_grad()
def share_codebooks(tokenizer: SpeechTokenizer) -> None:
    """Give the decoder the encoder's codebooks, which are the ones that are trained."""
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
    preprocessor = {
        "feature_extractor_type": "EncodecFeatureExtractor",
        "feature_size": 1,
        "sampling_rate": tokenizer.config.input_sample_rate,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": True,
    }
    with create_folder(folder, replace=True) as new:
        files = {
            "config.json": speech_tokenizer_config_to_json(tokenizer.config),
            "preprocessor_config.json": preprocessor,
        }
        for name, content in files.items():
            (new / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        write_weights(new, tokenizer.state_dict(), dtype=torch.float32, max_shard_bytes=MAX_SHARD_BYTES)
