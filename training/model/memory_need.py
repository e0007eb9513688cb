"""What a checkpoint needs to speak, computed from its configuration before anything of it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from training.model.checkpoint.reading import read_config, read_speech_tokenizer_config
from training.model.config import ModelConfig, SpeechTokenizerConfig, TransformerConfig
from training.model.device import DeviceSelection, select_device
from training.model.device_memory import free_bytes
from training.model.errors import ModelError
from training.model.generation_defaults import ROWS_OF_GUIDED, is_guidance, read_generation_defaults
from training.model.network.packed_linear import COMPUTE_DTYPE
from training.model.precision import Precision, PrecisionChoice
from training.model.voice_model import build_networks, choose_precision

_GB = 1e9
_FLOAT = 4
_WORKING_SHARE = 0.1
"""Of all the rest, for what is computed with it; an assumption."""


@dataclass(frozen=True, kw_only=True)
class MemoryNeed:
    """Bytes at their most, which is while weights are packed.

    Attributes:
        weights: of talker, code predictor and speaker encoder.
        cache: keys and values of all takes.
        codec: the speech tokenizer.
    """

    weights: int
    cache: int
    codec: int

    @property
    def total(self) -> int:
        """All of it, with room to compute in."""
        return round((self.weights + self.cache + self.codec) * (1 + _WORKING_SHARE))


@dataclass(frozen=True, kw_only=True)
class Shapes:
    """Elements of the networks: the talker's layers decide the precision, heads are held a second time packed."""

    talker: int
    talker_layers: int
    heads: int
    speaker_encoder: int
    codec: int


def memory_need(
    config: ModelConfig, shapes: Shapes, precision: Precision, *, num_rows: int, cache_length: int, keeps_talker: bool
) -> MemoryNeed:
    """What speaking takes with so many rows of so many tokens: one for each take, two for one that is guided.

    `keeps_talker` if its layers stay beside the packed ones, as where timbre is matched.
    """
    # Int8 is made of bfloat16, layer by layer.
    loaded = _FLOAT if precision == "fp32" else 2
    length = min(cache_length, config.talker.max_position_embeddings)
    per_row = length * _per_token(config.talker) + config.talker.num_code_groups * _per_token(config.code_predictor)
    return MemoryNeed(
        weights=loaded * (shapes.talker * (2 if keeps_talker else 1) + shapes.heads) + _FLOAT * shapes.speaker_encoder,
        cache=num_rows * per_row * COMPUTE_DTYPE[precision].itemsize,
        codec=_FLOAT * shapes.codec,
    )


@dataclass(frozen=True, kw_only=True)
class Room:
    """Where a checkpoint fits.

    Attributes:
        selection: the device, and why a better one is not used.
        needed: bytes that it takes there.
        free: bytes that are free there.
    """

    selection: DeviceSelection
    needed: int
    free: int

    @property
    def device(self) -> torch.device:
        """Where it is loaded."""
        return self.selection.device


def find_room(
    folder: Path, precision: PrecisionChoice, device: str, *, num_slots: int = 1, cache_length: int = 4096
) -> Room:
    """Where a checkpoint is loaded: the device that was asked for, or with `auto` the best one with room for it.

    Args:
        folder: the checkpoint.
        precision: as asked for.
        device: as asked for.
        num_slots: takes spoken at once.
        cache_length: tokens per slot.

    Raises:
        ModelError: it does not fit, with what would; or there is no such device, or checkpoint.
    """
    config, tokenizer_config = read_config(folder), read_speech_tokenizer_config(folder)
    shapes = shapes_of(config, tokenizer_config)
    talker_layers = shapes.talker_layers
    defaults = read_generation_defaults(folder)
    num_rows = num_slots * (ROWS_OF_GUIDED if is_guidance(defaults.guidance_scale) else 1)

    def need(on: torch.device, wanted: PrecisionChoice = precision) -> MemoryNeed:
        """Of this checkpoint on a device."""
        chosen = choose_precision(wanted, on, talker_layers)
        return memory_need(
            config, shapes, chosen, num_rows=num_rows, cache_length=cache_length, keeps_talker=defaults.matches_timbre
        )

    def needs(on: torch.device) -> int:
        """All of it, or nothing where the precision is refused: that is said when the model is loaded."""
        return need(on).total if _is_possible(precision, on, talker_layers) else 0

    selection = select_device(device, needs)
    chosen, free = selection.device, free_bytes(selection.device)
    if needs(chosen) <= free:
        return Room(selection=selection, needed=needs(chosen), free=free)
    needed = need(chosen)
    needed = need(chosen)
    sentences = [
        f"{folder.name} needs {needed.total / _GB:.1f} GB on {chosen}, and {free / _GB:.1f} GB are free.",
        f"Its weights take {needed.weights / _GB:.1f} GB, the cache {needed.cache / _GB:.1f} GB, and the codec "
        f"{needed.codec / _GB:.1f} GB.",
        "Close other programs, or choose a smaller model.",
        *_smaller_precision(need, chosen, talker_layers, free),
        *(f"{one.reason} {one.remedy}" for one in selection.unused),
    ]
    raise ModelError(" ".join(sentences))


def _smaller_precision(
    need: Callable[[torch.device, PrecisionChoice], MemoryNeed], device: torch.device, talker_layers: int, free: int
) -> list[str]:
    """A sentence with a precision in which the model fits; none where there is none."""
    others: tuple[PrecisionChoice, ...] = ("bf16", "int8")
    for name in others:
        if _is_possible(name, device, talker_layers) and need(device, name).total <= free:
            return [f"Or use --precision {name}, which needs {need(device, name).total / _GB:.1f} GB."]
    return []


def _is_possible(precision: PrecisionChoice, device: torch.device, num_parameters: int) -> bool:
    try:
        choose_precision(precision, device, num_parameters)
    except ModelError:
        return False
    return True


def _per_token(config: TransformerConfig) -> int:
    return config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim


def shapes_of(config: ModelConfig, tokenizer_config: SpeechTokenizerConfig) -> Shapes:
    """Count the elements of a checkpoint's networks, which takes no memory. Raises ConfigError."""
    talker, speaker_encoder, codec = build_networks(config, tokenizer_config)
    predictor = talker.code_predictor
    heads = (talker.codec_head, predictor.lm_head, predictor.small_to_mtp_projection)
    return Shapes(
        talker=_num(talker),
        talker_layers=_num(talker.model.layers),
        heads=sum(_num(head) for head in heads),
        speaker_encoder=_num(speaker_encoder) if speaker_encoder is not None else 0,
        codec=_num(codec),
    )


def _num(module: nn.Module) -> int:
    return sum(tensor.numel() for tensor in (*module.parameters(), *module.buffers()))
