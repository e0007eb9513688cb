"""Checks that an imported checkpoint is what its configuration says, from the headers of its files alone."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import nn

from backend.voices.errors import VoiceFileInvalid
from backend.voices.variants import check_variant
from backend.voices.voice import Variant
from training.model.checkpoint.names import COMPONENTS, SPEECH_TOKENIZER_FOLDER
from training.model.checkpoint.reading import find_weights, read_config, read_speech_tokenizer_config
from training.model.checkpoint.stored_tensors import compare_tensors, locate_tensors, open_safetensors
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.model.config import ModelConfig, SpeechTokenizerConfig
from training.model.network.speaker_encoder import SpeakerEncoder
from training.model.network.talker import Talker
from training.model.prompt.text_tokenizer import TextTokenizer

# Networks are laid out without memory, but each layer of one takes time; the public ones have up to 28.
_MAX_LAYERS = 200
_MAX_CODEBOOKS = 64
_MAX_STAGES = 16
# Would have the tokenizer read other files than the voice's, or run code that comes with it.
_REFUSED_TOKENIZER_FIELDS = frozenset({"auto_map", "tokenizer_file", "vocab_file", "merges_file"})


def check_checkpoint(folder: Path, variant: Variant) -> None:
    """Refuse a checkpoint whose parts do not belong together; no weight is read.

    Raises:
        VoiceFileInvalid: sizes that no model has, or a tokenizer that would read other files.
        VoiceError: it is not the kind of checkpoint that was expected there.
        ModelError: tensors are missing, unknown, or of other shapes or types than the configuration says.
    """
    config, tokenizer_config = read_config(folder), read_speech_tokenizer_config(folder)
    check_variant(variant, config)
    _check_sizes(config, tokenizer_config)
    _check_text_tokenizer(folder, config)
    with torch.device("meta"):
        talker = Talker(config.talker, config.code_predictor)
        speaker_encoder = SpeakerEncoder(config.speaker_encoder) if config.has_speaker_encoder else None
        speech_tokenizer = SpeechTokenizer(tokenizer_config)
    own_files = find_weights(folder)
    _check_tensors(talker, own_files, "talker")
    if speaker_encoder is not None:
        _check_tensors(speaker_encoder, own_files, "speaker_encoder")
    _check_tensors(speech_tokenizer, find_weights(folder / SPEECH_TOKENIZER_FOLDER), "speech_tokenizer")


def _check_tensors(network: nn.Module, files: list[Path], name: str) -> None:
    component = COMPONENTS[name]
    neighbours = [other for other in COMPONENTS.values() if other.folder == component.folder]
    with ExitStack() as stack:
        open_files = [(path, stack.enter_context(open_safetensors(path))) for path in files]
        stored, strays = locate_tensors(open_files, component, neighbours)
        mismatch = compare_tensors(stored, network.state_dict(keep_vars=True), component.prefix)
        mismatch.unknown += strays
        mismatch.raise_if_any(files[0])


def _check_sizes(config: ModelConfig, tokenizer: SpeechTokenizerConfig) -> None:
    encoder, decoder, speaker = tokenizer.encoder, tokenizer.decoder, config.speaker_encoder
    sizes = (
        ("layers", _MAX_LAYERS, config.talker.num_hidden_layers),
        ("layers", _MAX_LAYERS, config.code_predictor.num_hidden_layers),
        ("layers", _MAX_LAYERS, encoder.num_hidden_layers),
        ("layers", _MAX_LAYERS, decoder.num_hidden_layers),
        ("layers", _MAX_LAYERS, encoder.num_residual_layers),
        ("codebooks", _MAX_CODEBOOKS, config.talker.num_code_groups),
        ("codebooks", _MAX_CODEBOOKS, encoder.num_quantizers),
        ("codebooks", _MAX_CODEBOOKS, decoder.num_quantizers),
        ("stages", _MAX_STAGES, len(encoder.upsampling_ratios)),
        ("stages", _MAX_STAGES, len(decoder.upsample_rates) + len(decoder.upsampling_ratios)),
        ("stages", _MAX_STAGES, len(speaker.enc_channels)),
        ("parts", _MAX_LAYERS, speaker.enc_res2net_scale),
    )
    for what, most, number in sizes:
        if not 0 <= number <= most:
            raise VoiceFileInvalid(
                f"The voice's checkpoint has {number} {what}, more than any model has. It was not imported."
            )


def _check_text_tokenizer(folder: Path, config: ModelConfig) -> None:
    path = folder / "tokenizer_config.json"
    try:
        fields = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise VoiceFileInvalid("The voice's tokenizer_config.json is not JSON. It was not imported.") from error
    if not isinstance(fields, dict) or _REFUSED_TOKENIZER_FIELDS & fields.keys():
        raise VoiceFileInvalid("The voice's text tokenizer refers to files outside the voice. It was not imported.")
    if len(TextTokenizer.from_folder(folder)) > config.talker.text_vocab_size:
        raise VoiceFileInvalid("The voice's text tokenizer belongs to another model. It was not imported.")
