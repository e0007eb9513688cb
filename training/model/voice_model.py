# Shape letters: S sample, F codec frame, Q codebook, D talker width.
"""A loaded checkpoint: everything needed to analyse a reference and to speak."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from training.model.checkpoint.names import SPEECH_TOKENIZER_FOLDER
from training.model.checkpoint.reading import (
    find_weights,
    load_weights,
    read_config,
    read_speech_tokenizer_config,
)
from training.model.checkpoint.writing import save_checkpoint
from training.model.codec.quantizer import CodeVectors
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.model.config import NUM_CONTROL_CODES, ModelConfig, SpeechTokenizerConfig
from training.model.device import choose_device, supports_bf16
from training.model.errors import CheckpointError, ConfigError, ModelError, PromptError
from training.model.generation_defaults import is_guidance, read_generation_defaults
from training.model.network.mel import log_mel
from training.model.network.shapes_only import shapes_only
from training.model.network.speaker_encoder import SpeakerEncoder
from training.model.network.talker import Talker
from training.model.precision import Precision, PrecisionChoice
from training.model.prompt.text_tokenizer import TextTokenizer
from training.model.sampling_settings import Sampling

SMALL_TALKER_PARAMETERS = 50_000_000
"""Below this the weights stay in the CPU's cache, and halving their size gains nothing."""


@dataclass(frozen=True, kw_only=True)
class VoiceModel:
    """Networks and text tokenizer of one checkpoint folder.

    The precision is that of talker, code predictor and decoder. Reference audio is always analysed in float32: that is
    done once per voice, and codes should not depend on a speed setting.

    Attributes:
        max_reference_seconds: the longest recording that the talker goes on from in context without leaving words out;
            None where no length is known that is too long, as of the public checkpoints.
        guidance_scale: of classifier-free guidance, which the talker has learnt if it is not 1.
        matches_timbre: whether takes of a cloned voice are moved to the timbre of its recording.
        fades_last_frame: whether the last frame of a take that ends by itself is silenced: an encoder that never
            learnt how a recording ends makes a click of it, and a talker that learnt from its codes says it.
    """

    folder: Path
    config: ModelConfig
    talker: Talker
    speaker_encoder: SpeakerEncoder | None
    speech_tokenizer: SpeechTokenizer
    text_tokenizer: TextTokenizer
    default_sampling: Sampling
    max_take_frames: int
    max_reference_seconds: float | None = None
    guidance_scale: float = 1.0
    matches_timbre: bool = False
    fades_last_frame: bool = False
    precision: Precision
    device: torch.device

    @classmethod
    def load(cls, folder: Path, *, precision: PrecisionChoice = "auto", device: str = "auto") -> VoiceModel:
        """Load a checkpoint folder, strictly.

        Raises:
            ConfigError, CheckpointError: the folder is not a Qwen3-TTS checkpoint, or is damaged.
            ModelError: the device does not support the precision.
        """
        try:
            return cls._load(folder, precision, choose_device(device))
        except (MemoryError, RuntimeError, OSError) as error:
            if not is_out_of_memory(error):
                raise
            raise ModelError(
                f"There is not enough memory for the model in {folder.name}. Close other programs, or use a smaller "
                "model or --precision int8."
            ) from error

    @classmethod
    def _load(cls, folder: Path, precision: PrecisionChoice, chosen_device: torch.device) -> VoiceModel:
        config, tokenizer_config = read_config(folder), read_speech_tokenizer_config(folder)
        # A stranger's numbers are refused before gigabytes of weights are read.
        defaults = read_generation_defaults(folder)
        talker, speaker_encoder, speech_tokenizer = build_networks(config, tokenizer_config)
        chosen = choose_precision(precision, chosen_device, sum(p.numel() for p in talker.model.layers.parameters()))
        # Published weights are bfloat16, so int8 can start from it; float32 weights lose 0.2 % to its 1 %.
        dtype = torch.float32 if chosen == "fp32" else torch.bfloat16
        weights = find_weights(folder)
        load_weights(talker, weights, "talker.", dtype=dtype, device=chosen_device)
        if speaker_encoder is not None:
            load_weights(speaker_encoder, weights, "speaker_encoder.", dtype=torch.float32, device=chosen_device)
        tokenizer_weights = find_weights(folder / SPEECH_TOKENIZER_FOLDER)
        load_weights(speech_tokenizer, tokenizer_weights, "", dtype=torch.float32, device=chosen_device)
        if chosen != "fp32" and supports_bf16(chosen_device):
            speech_tokenizer.use_decoder_dtype(torch.bfloat16)
        text_tokenizer = TextTokenizer.from_folder(folder)
        if len(text_tokenizer) > config.talker.text_vocab_size:
            raise CheckpointError(
                f"The text tokenizer in {folder} has {len(text_tokenizer)} tokens and the model only "
                f"{config.talker.text_vocab_size}: they are from different models. Get the model again."
            )
        return cls(
            folder=folder,
            config=config,
            talker=talker.eval(),
            speaker_encoder=speaker_encoder.eval() if speaker_encoder is not None else None,
            speech_tokenizer=speech_tokenizer.eval(),
            text_tokenizer=text_tokenizer,
            default_sampling=defaults.sampling,
            max_take_frames=defaults.max_take_frames,
            max_reference_seconds=defaults.max_reference_seconds,
            guidance_scale=defaults.guidance_scale,
            matches_timbre=defaults.matches_timbre,
            fades_last_frame=defaults.fades_last_frame,
            precision=chosen,
            device=chosen_device,
        )

    @property
    def is_small(self) -> bool:
        """Whether the talker is so small that launching an operation costs more than computing it."""
        return sum(p.numel() for p in self.talker.model.layers.parameters()) < SMALL_TALKER_PARAMETERS

    @property
    def is_guided(self) -> bool:
        """Whether takes are guided, each in two rows of the decode loop."""
        return is_guidance(self.guidance_scale)

    @cached_property
    def acoustic_vectors(self) -> CodeVectors:
        """Between the codes of a frame's acoustic codebooks, all but the first, and the points that they stand for."""
        quantizer = self.speech_tokenizer.encoder.quantizer
        # The public encoder has more codebooks than are used.
        number = self.config.talker.num_code_groups - quantizer.num_semantic
        return quantizer.acoustic_residual_vector_quantizer.code_vectors(number)

    @property
    def sample_rate(self) -> int:
        """Sample rate of generated speech, in Hz."""
        return self.speech_tokenizer.config.output_sample_rate

    @property
    def tokenizer_sample_rate(self) -> int:
        """Sample rate of `encode`'s input, in Hz."""
        return self.speech_tokenizer.config.input_sample_rate

    @property
    def speaker_sample_rate(self) -> int:
        """Sample rate of `embed_speaker`'s input, in Hz."""
        return self.config.speaker_encoder.sample_rate

    def save(self, folder: Path, *, dtype: torch.dtype = torch.bfloat16, replace: bool = False) -> None:
        """Write a checkpoint folder in the public format, atomically.

        Args:
            folder: destination; must not exist unless `replace` is true.
            dtype: of talker and speaker encoder; the speech tokenizer is copied from the folder this was loaded from.
            replace: replace an older checkpoint.

        Raises:
            CheckpointError: it exists, or cannot be written.
        """
        state = {f"talker.{name}": tensor for name, tensor in self.talker.state_dict().items()}
        assert not any(tensor.is_meta for tensor in state.values()), "this talker was emptied for decoding"
        if self.speaker_encoder is not None:
            state |= {f"speaker_encoder.{name}": tensor for name, tensor in self.speaker_encoder.state_dict().items()}
        save_checkpoint(
            folder,
            config=self.config,
            state=state,
            speech_tokenizer=self.folder / SPEECH_TOKENIZER_FOLDER,
            text_tokenizer=self.folder,
            dtype=dtype,
            replace=replace,
        )

    @torch.inference_mode()
    def embed_speaker(self, waveform_S: Tensor) -> Tensor:
        """Speaker embedding (D,) of a recording at `speaker_sample_rate`.

        Raises:
            PromptError: the checkpoint has no speaker encoder.
        """
        if self.speaker_encoder is None:
            kind = self.config.tts_model_type
            raise PromptError(
                f"A {kind} checkpoint has no speaker encoder and cannot clone a recording. Load a Base checkpoint."
            )
        mel = log_mel(
            waveform_S.to(self.device).unsqueeze(0), self.speaker_sample_rate, self.config.speaker_encoder.mel_dim
        )
        embedding: Tensor = self.speaker_encoder(mel)[0]
        return embedding

    @torch.inference_mode()
    def encode(self, waveform_S: Tensor) -> Tensor:
        """Codes (F, Q) of a recording at `tokenizer_sample_rate`."""
        return self.speech_tokenizer.encode([waveform_S.to(self.device)])[0]


def build_networks(
    config: ModelConfig, tokenizer_config: SpeechTokenizerConfig
) -> tuple[Talker, SpeakerEncoder | None, SpeechTokenizer]:
    """Lay out the networks of a checkpoint on the meta device, which takes no memory.

    Raises:
        ConfigError: there is no network of these sizes, or the parts do not fit each other.
    """
    _require_same_codes(config, tokenizer_config)
    try:
        with shapes_only():
            talker = Talker(config.talker, config.code_predictor)
            speaker_encoder = SpeakerEncoder(config.speaker_encoder) if config.has_speaker_encoder else None
            return talker, speaker_encoder, SpeechTokenizer(tokenizer_config)
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigError("config.json: there is no network of these sizes. Get the model again.") from error


def _require_same_codes(config: ModelConfig, tokenizer_config: SpeechTokenizerConfig) -> None:
    """What the talker writes must be what the decoder reads: codes are not checked while they are decoded."""
    talker, encoder, decoder = config.talker, tokenizer_config.encoder, tokenizer_config.decoder
    num_first_codes = talker.vocab_size - NUM_CONTROL_CODES
    num_codes = max(num_first_codes, config.code_predictor.vocab_size, encoder.codebook_size)
    num_codebooks = {talker.num_code_groups, decoder.num_quantizers, tokenizer_config.encoder_valid_num_quantizers}
    if num_first_codes <= 0 or num_codes > decoder.codebook_size or len(num_codebooks) != 1:
        raise ConfigError(
            "config.json and speech_tokenizer/config.json: talker and speech tokenizer differ in their codes "
            f"({num_codes} and {decoder.codebook_size}) or codebooks ({', '.join(map(str, sorted(num_codebooks)))}). "
            "Get the model again."
        )


# PyTorch, on other systems and on Linux; the system, where a file cannot be mapped.
_OUT_OF_MEMORY = ("not enough memory", "can't allocate memory", "Cannot allocate memory")


def is_out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed; PyTorch raises a plain RuntimeError where the main memory ends."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(said in str(error) for said in _OUT_OF_MEMORY)


def choose_precision(choice: PrecisionChoice, device: torch.device, num_parameters: int) -> Precision:
    """Resolve `auto` for a device, or check that the device supports the choice.

    Raises:
        ModelError: int8 on anything but an x86 CPU, or bf16 on a device that would emulate it.
    """
    if choice == "auto":
        small = num_parameters < SMALL_TALKER_PARAMETERS and device.type == "cpu"
        return "bf16" if supports_bf16(device) and not small else "fp32"
    if choice == "int8" and (device.type != "cpu" or torch.backends.quantized.engine not in ("x86", "fbgemm")):
        raise ModelError("int8 runs on x86 CPUs only. Use --precision bf16 or fp32.")
    if choice == "bf16" and not (supports_bf16(device) or _accepts_bf16(device)):
        raise ModelError(f"bf16 is not supported by this {device.type}. Use --precision fp32 or int8.")
    return choice


def _accepts_bf16(device: torch.device) -> bool:
    """Apple's GPUs compute in bfloat16 from macOS 14 on; it is not known to be faster there, so it is never chosen."""
    return device.type == "mps" and bool(torch.backends.mps.is_macos_or_newer(14, 0))
