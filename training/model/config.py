"""The architecture as written in a checkpoint's `config.json`, as frozen dataclasses.

Field names are those of the public Qwen3-TTS files, and so are the defaults where the published files leave a field
out (the 0.6B and 1.7B files give only two of the speaker encoder's fields, for example). Fields without a default here
must be in the file: guessing a size would only move the error to the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from training.model.activations import is_activation
from training.model.errors import ConfigError
from training.model.json_fields import (
    FromJson,
    as_declared,
    require_mapping,
    require_object,
    require_token_id,
    with_head_dim,
)

NUM_CONTROL_CODES = 1024
"""The last ids of the codec vocabulary are tags and speakers; only the end of speech may be drawn from them."""


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(FromJson):
    """A Qwen3 decoder: grouped-query attention with RMS-normed queries and keys, rotary positions, SwiGLU."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    max_position_embeddings: int = 32768
    attention_bias: bool = False
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        if not is_activation(self.hidden_act):
            raise ConfigError(f"config.json: there is no activation {self.hidden_act!r}.")
        _require_heads(self)


@dataclass(frozen=True, kw_only=True)
class CodePredictorConfig(TransformerConfig):
    """The small decoder that predicts codebooks 1..Q-1 of a frame, one after another."""

    vocab_size: int
    num_code_groups: int = 16


@dataclass(frozen=True, kw_only=True)
class TalkerConfig(TransformerConfig):
    """The large decoder that reads text and frames and predicts codebook 0 of the next frame."""

    vocab_size: int
    text_vocab_size: int
    text_hidden_size: int
    num_code_groups: int
    codec_bos_id: int
    codec_eos_token_id: int
    codec_pad_id: int
    codec_think_id: int
    codec_nothink_id: int
    codec_think_bos_id: int
    codec_think_eos_id: int
    codec_language_id: Mapping[str, int] = field(default_factory=dict)
    spk_id: Mapping[str, int] = field(default_factory=dict)
    spk_is_dialect: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SpeakerEncoderConfig(FromJson):
    """ECAPA-TDNN over a log-mel spectrogram (Desplanques et al. 2020)."""

    enc_dim: int = 1024
    mel_dim: int = 128
    sample_rate: int = 24000
    enc_channels: tuple[int, ...] = (512, 512, 512, 512, 1536)
    enc_kernel_sizes: tuple[int, ...] = (5, 3, 3, 3, 1)
    enc_dilations: tuple[int, ...] = (1, 2, 3, 4, 1)
    enc_attention_channels: int = 128
    enc_res2net_scale: int = 8
    enc_se_channels: int = 128

    def __post_init__(self) -> None:
        # The first and the last block are not split into groups.
        if any(channels % self.enc_res2net_scale for channels in self.enc_channels[1:-1]):
            raise ConfigError(
                f"config.json: speaker_encoder_config.enc_channels {list(self.enc_channels)} cannot be split into "
                f"{self.enc_res2net_scale} groups."
            )


@dataclass(frozen=True, kw_only=True)
class CodecEncoderConfig(FromJson):
    """The Mimi encoder (SEANet, transformer, downsampling, split residual quantizer)."""

    hidden_size: int
    num_filters: int
    upsampling_ratios: tuple[int, ...]
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    codebook_size: int
    codebook_dim: int
    num_quantizers: int
    vector_quantization_hidden_dimension: int
    audio_channels: int = 1
    num_semantic_quantizers: int = 1
    kernel_size: int = 7
    residual_kernel_size: int = 3
    last_kernel_size: int = 3
    num_residual_layers: int = 1
    dilation_growth_rate: int = 2
    compress: int = 2
    use_conv_shortcut: bool = False
    pad_mode: str = "constant"
    use_causal_conv: bool = True
    hidden_act: str = "gelu"
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    sliding_window: int = 250
    layer_scale_initial_scale: float = 0.01
    max_position_embeddings: int = 8000
    attention_bias: bool = False

    def __post_init__(self) -> None:
        _require_heads(self)


@dataclass(frozen=True, kw_only=True)
class CodecDecoderConfig(FromJson):
    """Codes to waveform: quantizer, windowed transformer, ConvNeXt upsampling, snake decoder."""

    codebook_size: int
    codebook_dim: int
    latent_dim: int
    decoder_dim: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    num_quantizers: int = 16
    upsample_rates: tuple[int, ...] = (8, 5, 4, 3)
    upsampling_ratios: tuple[int, ...] = (2, 2)
    sliding_window: int = 72
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    layer_scale_initial_scale: float = 0.01
    max_position_embeddings: int = 8000
    attention_bias: bool = False

    def __post_init__(self) -> None:
        _require_heads(self)


@dataclass(frozen=True, kw_only=True)
class SpeechTokenizerConfig:
    """`speech_tokenizer/config.json`; rates in Hz, strides in samples per frame.

    Attributes:
        encodes_whole_frames: whether recordings are filled with zeros to whole frames before they are encoded, for an
            encoder that has learnt from such alone. Not a field of the public files, whose encoders have learnt
            otherwise.
    """

    encoder: CodecEncoderConfig
    decoder: CodecDecoderConfig
    input_sample_rate: int = 24000
    output_sample_rate: int = 24000
    encode_downsample_rate: int = 1920
    decode_upsample_rate: int = 1920
    encoder_valid_num_quantizers: int = 16
    encodes_whole_frames: bool = False
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read the parsed file. Raises ConfigError if it describes another codec."""
        if raw.get("model_type") != "qwen3_tts_tokenizer_12hz":
            raise ConfigError(
                f"speech_tokenizer/config.json: model_type is {raw.get('model_type')!r}; "
                "only 'qwen3_tts_tokenizer_12hz' is supported."
            )
        scalars = {
            name: as_declared(raw[name], kind, name)
            for name, kind in _TOKENIZER_SCALARS.items()
            if raw.get(name) is not None
        }
        return cls(
            encoder=CodecEncoderConfig.from_json(with_head_dim(raw.get("encoder_config", {})), where="encoder_config"),
            decoder=CodecDecoderConfig.from_json(with_head_dim(raw.get("decoder_config", {})), where="decoder_config"),
            raw=dict(raw),
            **scalars,
        )

    @property
    def frame_rate_hz(self) -> float:
        """Frames per second of the codes: 12.5 for the public tokenizer."""
        return self.output_sample_rate / self.decode_upsample_rate


_TOKENIZER_SCALARS = {
    "input_sample_rate": "int",
    "output_sample_rate": "int",
    "encode_downsample_rate": "int",
    "decode_upsample_rate": "int",
    "encoder_valid_num_quantizers": "int",
    "encodes_whole_frames": "bool",
}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A checkpoint's top-level `config.json`.

    `raw` is the file as parsed: saving updates it with the changes, so that fields that only other programs read are
    kept.
    """

    talker: TalkerConfig
    code_predictor: CodePredictorConfig
    speaker_encoder: SpeakerEncoderConfig
    tts_model_type: str
    tts_model_size: str
    tts_pad_token_id: int
    tts_bos_token_id: int
    tts_eos_token_id: int
    im_start_token_id: int
    im_end_token_id: int
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read the parsed file.

        Raises:
            ConfigError: another model family, another speech tokenizer, or a missing field.
        """
        if raw.get("model_type") != "qwen3_tts":
            raise ConfigError(f"config.json: model_type is {raw.get('model_type')!r}, not 'qwen3_tts'.")
        tokenizer_type = raw.get("tokenizer_type", "qwen3_tts_tokenizer_12hz")
        if tokenizer_type != "qwen3_tts_tokenizer_12hz":
            raise ConfigError(f"config.json: speech tokenizer {tokenizer_type!r} is not supported, only the 12 Hz one.")
        talker_raw = with_head_dim(require_object(raw, "talker_config"))
        predictor_raw = with_head_dim(require_object(talker_raw, "code_predictor_config"))
        _refuse_unknown_positions(talker_raw, "talker_config")
        _refuse_unknown_positions(predictor_raw, "talker_config.code_predictor_config")
        talker = TalkerConfig.from_json(talker_raw, where="talker_config")
        predictor = CodePredictorConfig.from_json(predictor_raw, where="talker_config.code_predictor_config")
        if predictor.num_code_groups != talker.num_code_groups:
            raise ConfigError(
                f"config.json: the talker has {talker.num_code_groups} codebooks, "
                f"the code predictor {predictor.num_code_groups}."
            )
        ids = {name: require_token_id(raw, name) for name in _TOKEN_IDS}
        _require_ids_in_table(ids, talker.text_vocab_size, "text")
        _require_ids_in_table(_codec_ids(talker), talker.vocab_size, "codec")
        _require_dialects(talker)
        return cls(
            talker=talker,
            code_predictor=predictor,
            speaker_encoder=SpeakerEncoderConfig.from_json(
                raw.get("speaker_encoder_config") or {}, where="speaker_encoder_config"
            ),
            tts_model_type=str(raw.get("tts_model_type", "base")),
            tts_model_size=str(raw.get("tts_model_size", "unknown")),
            raw=dict(raw),
            **ids,
        )

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages that can be requested by name, without dialects, which belong to named speakers."""
        return tuple(name for name in self.talker.codec_language_id if "dialect" not in name)

    @property
    def has_speaker_encoder(self) -> bool:
        """Whether the checkpoint can clone; only `base` checkpoints include the speaker encoder."""
        return self.tts_model_type == "base"

    @property
    def follows_instructions(self) -> bool:
        """Whether the checkpoint can be told how to speak: VoiceDesign, and CustomVoice but for the small one.

        Base checkpoints clone, and imitate how their reference is spoken.
        """
        return self.tts_model_type == "voice_design" or (
            self.tts_model_type == "custom_voice" and self.tts_model_size not in _SIZES_WITHOUT_INSTRUCTIONS
        )


# The reference package drops the instruction of the small CustomVoice checkpoint.
_SIZES_WITHOUT_INSTRUCTIONS = ("0b6",)
_TOKEN_IDS = ("tts_pad_token_id", "tts_bos_token_id", "tts_eos_token_id", "im_start_token_id", "im_end_token_id")


def _codec_ids(talker: TalkerConfig) -> dict[str, int]:
    own = {name: value for name, value in vars(talker).items() if name.startswith("codec_") and isinstance(value, int)}
    return own | dict(talker.codec_language_id) | dict(talker.spk_id)


def _require_ids_in_table(ids: Mapping[str, int], size: int, table: str) -> None:
    for name, value in ids.items():
        if not 0 <= value < size:
            raise ConfigError(f"config.json: {name} is {value}, beyond the {size} rows of the {table} embedding.")


def _require_heads(config: TransformerConfig | CodecEncoderConfig | CodecDecoderConfig) -> None:
    if config.num_attention_heads % config.num_key_value_heads:
        raise ConfigError(
            f"config.json: {config.num_attention_heads} attention heads cannot share "
            f"{config.num_key_value_heads} key/value heads."
        )
    if config.head_dim % 2:
        raise ConfigError(f"config.json: head_dim is {config.head_dim}; rotary positions turn pairs of numbers.")


def _require_dialects(talker: TalkerConfig) -> None:
    """A speaker's dialect is false or the name of a language id."""
    for speaker, dialect in talker.spk_is_dialect.items():
        known = isinstance(dialect, str) and dialect in talker.codec_language_id
        if dialect is not False and not known:
            raise ConfigError(
                f"config.json: talker_config.spk_is_dialect gives the speaker {ascii(speaker)[:60]} a dialect that "
                "codec_language_id does not list."
            )


def _refuse_unknown_positions(raw: Mapping[str, Any], where: str) -> None:
    """Refuse rotary scaling and sliding windows that no published checkpoint has.

    Multimodal sections (`mrope_section`) are accepted and have no effect: speech has one time axis, so the
    three position rows they mix are equal.
    """
    scaling = raw.get("rope_scaling") or {}
    require_mapping(scaling, f"{where}.rope_scaling")
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in ("default", "mrope"):
        raise ConfigError(f"config.json: {where}.rope_scaling of type {kind!r} is not supported.")
    if raw.get("use_sliding_window"):
        raise ConfigError(f"config.json: {where}.use_sliding_window is not supported.")
