"""The range of every number in a checkpoint's configuration: wide around all published models, far from any harm.

Tensors are compared with the sizes, but nothing in the weights contradicts an epsilon of 100,000 or an attention
window that fills the memory.
"""

from __future__ import annotations

from collections.abc import Mapping

_WIDTH = (1, 32_768)
_WIDER = (1, 262_144)
_LAYERS = (1, 200)
_HEADS = (1, 512)
_CODEBOOKS = (1, 64)
_VOCABULARY = (1, 1_048_576)
_KERNEL = (1, 64)
_SAMPLE_RATE_HZ = (8_000, 192_000)
_SAMPLES_PER_FRAME = (1, 65_536)
_EPSILON = (1e-12, 1e-3)
_SCALE = (0.0, 1.0)

RANGES: Mapping[str, tuple[float, float]] = {
    "hidden_size": _WIDTH,
    "text_hidden_size": _WIDTH,
    "codebook_dim": _WIDTH,
    "vector_quantization_hidden_dimension": _WIDTH,
    "latent_dim": _WIDTH,
    "decoder_dim": _WIDTH,
    "num_filters": (1, 4_096),
    "intermediate_size": _WIDER,
    "enc_dim": _WIDTH,
    "enc_channels": _WIDTH,
    "enc_attention_channels": _WIDTH,
    "enc_se_channels": _WIDTH,
    "enc_kernel_sizes": _KERNEL,
    "enc_dilations": _KERNEL,
    "enc_res2net_scale": (2, 64),
    # 400 bands are as many as the spectrogram has frequencies for at the published sizes.
    "mel_dim": (1, 400),
    "num_hidden_layers": _LAYERS,
    "num_residual_layers": (1, 8),
    "num_attention_heads": _HEADS,
    "num_key_value_heads": _HEADS,
    "head_dim": (2, 1_024),
    "num_code_groups": _CODEBOOKS,
    "num_quantizers": _CODEBOOKS,
    "num_semantic_quantizers": _CODEBOOKS,
    "encoder_valid_num_quantizers": _CODEBOOKS,
    "vocab_size": _VOCABULARY,
    "text_vocab_size": _VOCABULARY,
    "codebook_size": _VOCABULARY,
    "audio_channels": (1, 8),
    "kernel_size": _KERNEL,
    "residual_kernel_size": _KERNEL,
    "last_kernel_size": _KERNEL,
    "dilation_growth_rate": (1, 8),
    "compress": (1, 64),
    "upsampling_ratios": (1, 64),
    "upsample_rates": (1, 64),
    "sample_rate": _SAMPLE_RATE_HZ,
    "input_sample_rate": _SAMPLE_RATE_HZ,
    "output_sample_rate": _SAMPLE_RATE_HZ,
    "encode_downsample_rate": _SAMPLES_PER_FRAME,
    "decode_upsample_rate": _SAMPLES_PER_FRAME,
    # Each slot of the engine holds as many steps for each of the decoder's layers; published are 72 and 250.
    "sliding_window": (1, 512),
    "max_position_embeddings": (1, 1_048_576),
    "rms_norm_eps": _EPSILON,
    "norm_eps": _EPSILON,
    "rope_theta": (100.0, 1e9),
    "layer_scale_initial_scale": _SCALE,
    "initializer_range": _SCALE,
    "max_new_tokens": (1, 65_536),
    "max_reference_seconds": (3.0, 3600.0),
    "speech_guidance_scale": (1.0, 10.0),
}
"""Lowest and highest value by the field's name. A list's entries are in the range; ids are held to their tables."""

MAX_LIST_LENGTH = 16
"""Of stages and blocks; the published models have five."""
