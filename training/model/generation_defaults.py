"""How a checkpoint wants its takes to be drawn, from its `generation_config.json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from training.model.checkpoint.reading import read_json_object
from training.model.checkpoint.writing import GENERATION_CONFIG_FILE
from training.model.errors import CheckpointError, ConfigError, PromptError
from training.model.json_fields import as_declared
from training.model.sampling_settings import Sampling

MAX_TAKE_FRAMES = 2048
"""163.84 s; the public checkpoints' own limit, and the default for checkpoints without one."""

GUIDANCE_SCALE = "speech_guidance_scale"
"""Not a name of the public format, whose takes are not guided. `guidance_scale` would change what transformers does."""

TIMBRE_MATCHING = "speech_timbre_matching"
"""Not a name of the public format either, whose talkers know many voices; see `generation/timbre_match.py`."""

FADES_LAST_FRAME = "speech_fades_last_frame"
"""Not a name of the public format either: of a talker whose codec had not learnt how recordings end."""

ROWS_OF_GUIDED = 2
"""Rows of the decode loop that a guided take is: one that follows its prompt, then one without text and speaker."""


@dataclass(frozen=True, kw_only=True)
class GenerationDefaults:
    """Of a checkpoint; without a file, those of the public ones.

    Attributes:
        sampling: how codes are drawn.
        max_take_frames: the longest take.
        max_reference_seconds: see `VoiceModel`, as the next.
        guidance_scale: of classifier-free guidance.
        matches_timbre: whether takes of a cloned voice are moved to the timbre of its recording.
        fades_last_frame: whether the last frame of a take that ends by itself is silenced.
    """

    sampling: Sampling = field(default_factory=Sampling)
    max_take_frames: int = MAX_TAKE_FRAMES
    max_reference_seconds: float | None = None
    guidance_scale: float = 1.0
    matches_timbre: bool = False
    fades_last_frame: bool = False


def is_guidance(scale: float) -> bool:
    """Whether a scale changes anything."""
    return scale != 1


def read_generation_defaults(folder: Path) -> GenerationDefaults:
    """Read them, if the folder has any. Raises CheckpointError."""
    path = folder / GENERATION_CONFIG_FILE
    if not path.is_file():
        return GenerationDefaults()
    try:
        raw = read_json_object(path)
        longest = as_declared(raw.get("max_new_tokens") or MAX_TAKE_FRAMES, "int", "max_new_tokens")
        own = {
            target: float(as_declared(raw[name], "float", name))
            for target, name in (("max_reference_seconds", "max_reference_seconds"), ("guidance_scale", GUIDANCE_SCALE))
            if raw.get(name) is not None
        }
        return GenerationDefaults(
            sampling=Sampling.from_generation_config(raw),
            max_take_frames=int(longest),
            matches_timbre=as_declared(raw.get(TIMBRE_MATCHING) or False, "bool", TIMBRE_MATCHING),
            fades_last_frame=as_declared(raw.get(FADES_LAST_FRAME) or False, "bool", FADES_LAST_FRAME),
            **own,
        )
    except (ValueError, PromptError, ConfigError) as error:
        raise CheckpointError(f"{path} cannot be used: {error}") from error
