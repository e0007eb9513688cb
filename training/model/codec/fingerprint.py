# Shape letters: V codebook entry, D width.
"""A speech tokenizer's fingerprint: tokenizers with the same one can decode each other's codes."""

from __future__ import annotations

import hashlib

import torch

from training.model.codec.speech_tokenizer import SpeechTokenizer

_CODEBOOK_TENSORS = ("cluster_usage", "embed_sum")


def tokenizer_fingerprint(tokenizer: SpeechTokenizer) -> str:
    """SHA-256 over the encoder's codebooks, so that existing codes remain valid for a better decoder."""
    hashed = hashlib.sha256()
    for name, tensor in sorted(tokenizer.encoder.quantizer.state_dict().items()):
        if name.rpartition(".")[2] in _CODEBOOK_TENSORS:
            hashed.update(f"{name} {tuple(tensor.shape)}\n".encode())
            hashed.update(tensor.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
    return hashed.hexdigest()
