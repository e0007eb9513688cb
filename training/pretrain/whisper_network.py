"""The transcriber as it is trained: openai-whisper's own modules, with losses on what they do in between."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from whisper.audio import HOP_LENGTH, N_FFT, mel_filters
from whisper.model import AudioEncoder, MultiHeadAttention, ResidualAttentionBlock, TextDecoder

from training.pretrain.whisper_job import NUM_MELS, WhisperSize
from training.pretrain.whisper_spelling import NUM_LETTERS

# The state that is always 1 when tokens are chosen, so that a token's weight for it is its bias. Tokens that are never
# written have no other weight, and this one makes them impossible.
BIAS_STATE = 0
IMPOSSIBLE_BIAS = -30.0
_EMBEDDING_SCALE = 0.05
_FLOOR, _RANGE = 1e-10, 8.0


class Decoded(NamedTuple):
    """What the decoder makes of tokens, and where its guided heads look."""

    logits: Tensor
    attention: Tensor
    """Log probabilities (layers, rows, heads, tokens, positions), float32."""


class WhisperNetwork(nn.Module):
    """A Whisper whose table of tokens holds the used ones only, and a head that reads letters off the encoder."""

    def __init__(self, size: WhisperSize, num_rows: int) -> None:
        super().__init__()
        dims = size.dimensions(num_rows)
        width, heads = size.width, size.num_heads
        self.encoder = AudioEncoder(dims.n_mels, dims.n_audio_ctx, width, heads, dims.n_audio_layer)
        self.decoder = TextDecoder(num_rows, dims.n_text_ctx, width, heads, dims.n_text_layer)
        self.letters = nn.Linear(width, NUM_LETTERS)
        self.first_guided_layer = dims.n_text_layer // 2
        nn.init.normal_(self.decoder.token_embedding.weight, std=_EMBEDDING_SCALE)
        nn.init.normal_(self.decoder.positional_embedding, std=_EMBEDDING_SCALE / 2)
        last = self.decoder.ln
        with torch.no_grad():
            last.weight[BIAS_STATE] = 0.0
            last.bias[BIAS_STATE] = 1.0
            self.decoder.token_embedding.weight[:, BIAS_STATE] = 0.0
        for parameter in (last.weight, last.bias):
            parameter.register_hook(_without_bias_state)

    def encode(self, mel: Tensor) -> Tensor:
        """Encoder states (rows, positions, width) of a spectrogram (rows, bands, frames), however short."""
        encoder = self.encoder
        hidden = functional.gelu(encoder.conv1(mel))
        hidden = functional.gelu(encoder.conv2(hidden)).permute(0, 2, 1)
        hidden = hidden + encoder.get_buffer("positional_embedding")[: hidden.shape[1]]
        for block in encoder.blocks:
            hidden = block(hidden)
        states: Tensor = encoder.ln_post(hidden)
        return states

    def read_letters(self, states: Tensor) -> Tensor:
        """Log probabilities of letters at every position, float32."""
        log_probabilities: Tensor = self.letters(states).float().log_softmax(dim=-1)
        return log_probabilities

    def decode(self, rows: Tensor, states: Tensor) -> Decoded:
        """Logits of the next token after each of `rows` (rows, tokens)."""
        decoder = self.decoder
        hidden = decoder.token_embedding(rows) + decoder.positional_embedding[: rows.shape[1]]
        attention = []
        for number, block in enumerate(decoder.blocks):
            hidden = hidden + block.attn(block.attn_ln(hidden), mask=decoder.get_buffer("mask"))[0]
            if number < self.first_guided_layer:
                hidden = hidden + block.cross_attn(block.cross_attn_ln(hidden), states)[0]
            else:
                heard, looked = _attend(block, hidden, states)
                hidden = hidden + heard
                attention.append(looked)
            hidden = hidden + block.mlp(block.mlp_ln(hidden))
        logits = decoder.ln(hidden) @ decoder.token_embedding.weight.t()
        return Decoded(logits.float(), torch.stack(attention))


def _attend(block: ResidualAttentionBlock, hidden: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-attention that tells where it looks; Whisper's own does so without a gradient."""
    attention: MultiHeadAttention = block.cross_attn
    num_heads = attention.n_head
    query, key, value = (
        part.unflatten(-1, (num_heads, -1)).transpose(1, 2)
        for part in (attention.query(block.cross_attn_ln(hidden)), attention.key(states), attention.value(states))
    )
    scores = (query @ key.mT).float() * query.shape[-1] ** -0.5
    looked = scores.log_softmax(dim=-1)
    heard = (looked.exp().to(value.dtype) @ value).transpose(1, 2).flatten(2)
    return attention.out(heard), looked


def _without_bias_state(gradient: Tensor) -> Tensor:
    kept = gradient.clone()
    kept[BIAS_STATE] = 0.0
    return kept


class LogMel(nn.Module):
    """Whisper's spectrogram, for rows that are each normalised by their own loudest point."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bank", mel_filters("cpu", NUM_MELS), persistent=False)
        self.register_buffer("window", torch.hann_window(N_FFT), persistent=False)

    @torch.no_grad()
    def forward(self, samples: Tensor, tilt: Tensor | None = None) -> Tensor:
        """From (rows, samples) to (rows, bands, frames); `tilt` (rows, bands) is added, as another microphone would."""
        spectrum = torch.stft(samples, N_FFT, HOP_LENGTH, window=self.get_buffer("window"), return_complex=True)
        power = spectrum[..., :-1].abs().square()
        log_mel: Tensor = (self.get_buffer("bank") @ power).clamp(min=_FLOOR).log10()
        if tilt is not None:
            log_mel = log_mel + tilt.unsqueeze(-1)
        loudest = log_mel.amax(dim=(1, 2), keepdim=True)
        return (torch.maximum(log_mel, loudest - _RANGE) + 4.0) / 4.0
