"""A voice's prompt as a safetensors file: `speaker`, and `codes` where the voice is cloned in context.

`timbre_matrix` and `timbre_offset` move takes to the timbre of the recording, for models that need it.

Where the codes are those of the first sentences alone, what these say is in the file's metadata.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file

from backend.voices.errors import VoiceFileInvalid
from training.model.checkpoint.stored_tensors import open_safetensors
from training.model.generation.take_request import VoicePrompt
from training.model.generation.timbre_match import TimbreMatch

# Far beyond what any model makes: the public ones have width 2048, 16 codebooks and 12.5 frames a second.
_WIDEST = 65_536
_MAX_CODEBOOKS = 64
_MAX_FRAMES = 10_000
# Of the points that codes stand for: 256 in the public models.
_WIDEST_POINT = 4096
_TIMBRE = ("timbre_matrix", "timbre_offset")
_EXPECTED = {"speaker": "F32", "codes": "I16", "timbre_matrix": "F32", "timbre_offset": "F32"}
_TEXT = "reference_text"


def check_prompt_file(path: Path) -> None:
    """Refuse a file that holds anything but a prompt, from its header and then its values.

    Raises:
        VoiceFileInvalid: unknown tensors, wrong types or shapes, or values that no model produces.
        CheckpointError: it is not a safetensors file.
    """
    with open_safetensors(path) as file:
        names = set(file.keys())
        if "speaker" not in names or names - _EXPECTED.keys():
            raise VoiceFileInvalid(f"{path.name} holds {', '.join(sorted(names))[:100]} instead of a voice's prompt.")
        for name in names:
            header = file.get_slice(name)
            shape = header.get_shape()
            if header.get_dtype() != _EXPECTED[name] or not _is_plausible(name, shape):
                raise VoiceFileInvalid(f"{path.name}: {name} is {header.get_dtype()} {shape}, which no model produces.")
        if len(names.intersection(_TIMBRE)) == 1:
            raise VoiceFileInvalid(f"{path.name} holds one of {' and '.join(_TIMBRE)} without the other.")
        for name in names - {"codes"}:
            if not bool(file.get_tensor(name).isfinite().all()):
                raise VoiceFileInvalid(f"{path.name}: {name} contains values that are not numbers.")
        if "codes" in names and int(file.get_tensor("codes").min()) < 0:
            raise VoiceFileInvalid(f"{path.name}: codes contains negative numbers.")


def read_prompt_file(path: Path, transcript: str | None) -> VoicePrompt:
    """Read a checked prompt; without a transcript only its speaker embedding is used.

    Raises:
        VoiceFileInvalid: its codes say something that the transcript does not begin with.
        CheckpointError: it is not a safetensors file.
    """
    with open_safetensors(path) as file:
        names = set(file.keys())
        timbre = None
        if names.issuperset(_TIMBRE):
            matrix, offset = map(file.get_tensor, _TIMBRE)
            timbre = TimbreMatch(matrix_EE=matrix, offset_E=offset)
        speaker = file.get_tensor("speaker")
        if transcript is None or "codes" not in names:
            return VoicePrompt(speaker=speaker, timbre=timbre)
        text = (file.metadata() or {}).get(_TEXT, transcript)
        if not transcript.strip().startswith(text.strip()):
            raise VoiceFileInvalid(f"{path.name} is the prompt of another transcript.")
        codes = file.get_tensor("codes").to(torch.long)
        return VoicePrompt(speaker=speaker, reference_codes=codes, reference_text=text, timbre=timbre)


def write_prompt_file(path: Path, prompt: VoicePrompt) -> None:
    """Write a prompt, not atomically. Raises OSError."""
    assert prompt.speaker is not None
    tensors = {"speaker": prompt.speaker.detach().float().cpu().contiguous()}
    metadata = {}
    if prompt.timbre is not None:
        values = (prompt.timbre.matrix_EE, prompt.timbre.offset_E)
        tensors |= {name: value.cpu().contiguous() for name, value in zip(_TIMBRE, values, strict=True)}
    if prompt.reference_codes is not None:
        assert prompt.reference_text is not None
        tensors["codes"] = prompt.reference_codes.to("cpu", torch.int16).contiguous()
        metadata[_TEXT] = prompt.reference_text
    save_file(tensors, path, metadata=metadata)


def _is_plausible(name: str, shape: list[int]) -> bool:
    if name == "speaker":
        return len(shape) == 1 and 0 < shape[0] <= _WIDEST
    if name in _TIMBRE:
        has_axes = len(shape) == (2 if name == "timbre_matrix" else 1)
        return has_axes and all(0 < size <= _WIDEST_POINT for size in shape)
    return len(shape) == 2 and 0 < shape[0] <= _MAX_FRAMES and 0 < shape[1] <= _MAX_CODEBOOKS
