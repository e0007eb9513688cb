# Shape letters: B batch row, S sample, F codec frame, Q codebook, D width.
"""The speech tokenizer: recordings to codes, and codes to a waveform, at once or as a stream."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from training.model.codec.decoder import Decoder
from training.model.codec.encoder import Encoder
from training.model.codec.stream_state import DecoderState
from training.model.config import SpeechTokenizerConfig
from training.model.errors import ConfigError

# Up to this many frames are decoded at once; longer takes are streamed in pieces: memory stays bounded, and the
# activations of a piece stay in the CPU's cache.
_MAX_FRAMES_AT_ONCE = 64
_DECODE_PIECE_FRAMES = 16
_CODEBOOK_TENSORS = ("cluster_usage", "embed_sum")


class SpeechTokenizer(nn.Module):
    """Encoder and decoder of one `speech_tokenizer/` checkpoint.

    Parameter names are the public checkpoint's. The decoder may run in bfloat16; keep the encoder in
    float32, or its codes will not be those a float32 encoder finds.
    """

    def __init__(self, config: SpeechTokenizerConfig) -> None:
        """Build with fresh weights. Raises ConfigError if `config` describes an unsupported network."""
        super().__init__()
        _require_supported(config)
        self.config = config
        self.encoder = Encoder(config.encoder)
        self.decoder = Decoder(config.decoder)

    def use_decoder_dtype(self, dtype: torch.dtype) -> None:
        """Convert the decoder's network, in place, but not its codebooks: rounding their sums would move every entry.

        Invalidates existing stream states.
        """
        for part in self.decoder.children():
            if part is not self.decoder.quantizer:
                part.to(dtype)

    @torch.no_grad()
    def encode(self, waveforms: Sequence[Tensor]) -> list[Tensor]:
        """Codes of each waveform (S,), mono at `config.input_sample_rate`, as int64 (F, Q).

        F is ceil(S / encode_downsample_rate). The codes of a waveform do not depend on the others, except that rounding
        in differently shaped matrix products may decide between two equally near entries. Batch waveforms of similar
        length, because all are padded to the longest. An encoder that knows only whole frames hears zeros to the end of
        the last one; others hear their own padding there, as the reference does.

        Raises:
            ValueError: a waveform is empty or not mono.
        """
        for index, waveform_S in enumerate(waveforms):
            if waveform_S.ndim != 1 or waveform_S.shape[0] == 0:
                raise ValueError(f"Waveform {index} must be (samples,), not empty, but is {tuple(waveform_S.shape)}.")
        if len(waveforms) == 0:
            return []
        weight = self.encoder.downsample.conv.weight
        rate = self.config.encode_downsample_rate
        num_frames = [-(-waveform_S.shape[0] // rate) for waveform_S in waveforms]
        waveform_BS = nn.utils.rnn.pad_sequence(list(waveforms), batch_first=True).to(weight.device, weight.dtype)
        if self.config.encodes_whole_frames:
            waveform_BS = nn.functional.pad(waveform_BS, (0, -waveform_BS.shape[-1] % rate))
            lengths = [count * rate for count in num_frames]
        else:
            lengths = [waveform_S.shape[0] for waveform_S in waveforms]
        latents_BDF = self.encoder.latents(waveform_BS, lengths)
        codes_BFQ = self.encoder.quantizer.encode(latents_BDF, self.config.encoder_valid_num_quantizers)
        return [codes_FQ[:count] for codes_FQ, count in zip(codes_BFQ, num_frames, strict=True)]

    @torch.no_grad()
    def decode(self, codes_BFQ: Tensor) -> Tensor:
        """Waveform (B, F * decode_upsample_rate) in [-1, 1], float32 at `config.output_sample_rate`.

        Raises:
            ValueError: not all codebooks, or a code outside its codebook.
        """
        self._require_codes(codes_BFQ)
        codebook_size = self.config.decoder.codebook_size
        if codes_BFQ.numel() > 0 and not 0 <= int(codes_BFQ.min()) <= int(codes_BFQ.max()) < codebook_size:
            raise ValueError(f"Codes must be from 0 to {codebook_size - 1}.")
        if 0 < codes_BFQ.shape[1] <= _MAX_FRAMES_AT_ONCE:
            codes_BFQ = codes_BFQ.to(next(self.decoder.parameters()).device, torch.long)
            waveform_BS: Tensor = self.decoder(self.decoder.quantizer.decode(codes_BFQ))
            return waveform_BS.float().clamp_(-1.0, 1.0)
        state = self.start_stream(codes_BFQ.shape[0])
        pieces = codes_BFQ.split(_DECODE_PIECE_FRAMES, dim=1)
        return torch.cat([self.decode_step(piece_BFQ, state) for piece_BFQ in pieces], dim=1)

    def start_stream(self, batch_size: int) -> DecoderState:
        """State of `batch_size` streams that have decoded nothing, for `decode_step`."""
        return DecoderState(self.decoder, batch_size)

    @torch.no_grad()
    def decode_step(self, codes_BFQ: Tensor, state: DecoderState) -> Tensor:
        """Waveform (B, F * decode_upsample_rate) of each row's next F frames, float32 in [-1, 1]; advances `state`.

        For any division of a row's frames into steps, the waveform is that of `decode`. Codes are not checked against
        the codebook, because on a GPU reading them would stall the stream.

        Raises:
            ValueError: not all codebooks, or another number of rows than `state` has.
        """
        self._require_codes(codes_BFQ)
        if codes_BFQ.shape[0] != state.batch_size:
            raise ValueError(f"{codes_BFQ.shape[0]} rows of codes for a state of {state.batch_size}.")
        if codes_BFQ.shape[1] == 0:
            return codes_BFQ.new_zeros(codes_BFQ.shape[0], 0, dtype=torch.float32)
        codes_BFQ = codes_BFQ.to(state.positions_B.device, torch.long)
        waveform_BS: Tensor = self.decoder(self.decoder.quantizer.decode(codes_BFQ), state)
        return waveform_BS.float().clamp_(-1.0, 1.0)

    def _require_codes(self, codes_BFQ: Tensor) -> None:
        num_quantizers = self.config.decoder.num_quantizers
        if codes_BFQ.ndim != 3 or codes_BFQ.shape[-1] != num_quantizers:
            raise ValueError(f"Codes must be (batch, frames, {num_quantizers}), but are {tuple(codes_BFQ.shape)}.")


def _require_supported(config: SpeechTokenizerConfig) -> None:
    """Refuse options that no published tokenizer uses, instead of computing something else."""
    encoder, decoder = config.encoder, config.decoder
    expected = {
        "encoder_config.use_causal_conv": (encoder.use_causal_conv, True),
        "encoder_config.pad_mode": (encoder.pad_mode, "constant"),
        "encoder_config.use_conv_shortcut": (encoder.use_conv_shortcut, False),
        "encoder_config.audio_channels": (encoder.audio_channels, 1),
        "encoder_config.hidden_act": (encoder.hidden_act, "gelu"),
        "encoder_config.codebook_dim": (encoder.codebook_dim, encoder.vector_quantization_hidden_dimension),
        "decoder_config.hidden_act": (decoder.hidden_act, "silu"),
        "encode_downsample_rate": (config.encode_downsample_rate, 2 * math.prod(encoder.upsampling_ratios)),
        "decode_upsample_rate": (
            config.decode_upsample_rate,
            math.prod(decoder.upsampling_ratios) * math.prod(decoder.upsample_rates),
        ),
    }
    for name, (found, supported) in expected.items():
        if found != supported:
            raise ConfigError(f"speech_tokenizer/config.json: {name} is {found!r}; this network needs {supported!r}.")
    if not encoder.num_semantic_quantizers <= config.encoder_valid_num_quantizers <= encoder.num_quantizers:
        raise ConfigError(
            f"speech_tokenizer/config.json: encoder_valid_num_quantizers is {config.encoder_valid_num_quantizers}, "
            f"but the encoder has {encoder.num_quantizers} codebooks."
        )


def tokenizer_fingerprint(tokenizer: SpeechTokenizer) -> str:
    """SHA-256 over the encoder's codebooks: tokenizers with the same one can decode each other's codes."""
    hashed = hashlib.sha256()
    for name, tensor in sorted(tokenizer.encoder.quantizer.state_dict().items()):
        if name.rpartition(".")[2] in _CODEBOOK_TENSORS:
            hashed.update(f"{name} {tuple(tensor.shape)}\n".encode())
            hashed.update(tensor.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
    return hashed.hexdigest()
