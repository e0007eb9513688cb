"""Quick, Standard and Thorough: recipes that depend on the amount of data and the size of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from training.data.training_set import ClipUse, TrainingSet
from training.job import FineTuneJob, Preset
from training.memory_plan import network_tensors

# Published sweeps for the public checkpoints with aligned losses end between 2e-6 and 1e-5. A small network's weights
# are larger and must move further: at 6e-4 the embedded model comes far nearer to a voice than at 1e-4, and is
# understood at least as well.
LARGE_MODEL_PARAMETERS = 200_000_000
_LARGE_LEARNING_RATE, _SMALL_LEARNING_RATE = 1e-5, 6e-4
# An adapter learns best at about ten times the rate that was usual for all weights, whatever its rank (Schulman 2025,
# LoRA Without Regret).
_LARGE_LORA_RATE, _SMALL_LORA_RATE = 1e-4, 1e-3
# Measured on the embedded model with an unseen voice, on twenty-eight seconds and on five minutes of speech: half-way
# interpolation keeps a larger part of the gain in similarity than of the loss in intelligibility.
_LARGE_KEPT_CHANGE, _SMALL_KEPT_CHANGE = 1.0, 0.5
# A small talker goes astray after a mistake of its own, unless it has learnt to come back: the embedded one has, and
# a fine-tune without may undo it. Of the public ones that is not known.
_LARGE_MISHEARD_SHARE, _SMALL_MISHEARD_SHARE = 0.0, 0.2
# A style is learned by continuing other clips of it, also where a recipe has no such examples.
_MIN_IN_CONTEXT_WITH_STYLES = 0.25
_MICRO_BATCHES = 4
_MIN_ROWS, _MAX_ROWS = 256, 2048


@dataclass(frozen=True, kw_only=True)
class _Recipe:
    """A preset, before it is adapted to the data.

    Attributes:
        num_epochs: for plenty of data.
        min_steps: for little data. A handful of clips is memorised after some thirty steps, after which the loss on
            other sentences rises; see `preset_fields`.
        max_steps: for any amount of data.
        steps_per_epoch: target that the size of the batches is chosen for.
        code_predictor_fraction: share of frames.
        in_context_ratio: share of examples.
        num_checkpoints: to choose among; the first one is early enough for little data.
    """

    num_epochs: int
    min_steps: int
    max_steps: int
    steps_per_epoch: int
    code_predictor_fraction: float
    in_context_ratio: float
    num_checkpoints: int


_RECIPE_BY_PRESET: Mapping[Preset, _Recipe] = MappingProxyType(
    {
        "quick": _Recipe(
            num_epochs=4,
            min_steps=24,
            max_steps=120,
            steps_per_epoch=12,
            code_predictor_fraction=0.25,
            in_context_ratio=0.0,
            num_checkpoints=3,
        ),
        "standard": _Recipe(
            num_epochs=8,
            min_steps=48,
            max_steps=2000,
            steps_per_epoch=16,
            code_predictor_fraction=0.5,
            in_context_ratio=0.25,
            num_checkpoints=4,
        ),
        "thorough": _Recipe(
            num_epochs=16,
            min_steps=96,
            max_steps=10_000,
            steps_per_epoch=24,
            code_predictor_fraction=1.0,
            in_context_ratio=0.25,
            num_checkpoints=8,
        ),
    }
)
PRESETS: tuple[Preset, ...] = tuple(_RECIPE_BY_PRESET)


def preset_fields(preset: Preset, training_set: TrainingSet, draft: FineTuneJob | None = None) -> dict[str, Any]:
    """The fields of a `FineTuneJob` that a preset sets; any of them may be overridden.

    Args:
        preset: the recipe.
        training_set: the data.
        draft: a job whose fields that were set explicitly win; the rest is made to fit them.
    """
    recipe = _RECIPE_BY_PRESET[preset]
    wished = draft.model_dump(include=draft.model_fields_set) if draft is not None else {}
    tensors = network_tensors(training_set.config)
    is_large = tensors.num_trained >= LARGE_MODEL_PARAMETERS
    lengths = [training_set.num_tokens(ClipUse(clip=clip)) for clip in range(len(training_set.clips))]
    micro_batches = wished.get("micro_batches", _MICRO_BATCHES)
    per_micro_batch = sum(lengths) // (recipe.steps_per_epoch * micro_batches)
    rows = wished.get("micro_batch_tokens", min(_MAX_ROWS, max(_MIN_ROWS, max(lengths), per_micro_batch)))
    steps_per_epoch = max(1, round(sum(lengths) / (rows * micro_batches)))
    usual = min(recipe.max_steps, max(recipe.min_steps, recipe.num_epochs * steps_per_epoch))
    num_steps = wished.get("num_steps", None if "num_epochs" in wished else usual)
    expected = num_steps or wished.get("num_epochs", recipe.num_epochs) * steps_per_epoch
    all_weights = _LARGE_LEARNING_RATE if is_large else _SMALL_LEARNING_RATE
    adapter = _LARGE_LORA_RATE if is_large else _SMALL_LORA_RATE
    learns_in_context = training_set.has_styles and not training_set.config.follows_instructions
    return {
        "num_steps": num_steps,
        "learning_rate": adapter if wished.get("method") == "lora" else all_weights,
        "micro_batches": micro_batches,
        "micro_batch_tokens": rows,
        "code_predictor_fraction": recipe.code_predictor_fraction,
        "in_context_ratio": max(recipe.in_context_ratio, _MIN_IN_CONTEXT_WITH_STYLES if learns_in_context else 0.0),
        "misheard_share": _LARGE_MISHEARD_SHARE if is_large else _SMALL_MISHEARD_SHARE,
        "checkpoint_every": -(-expected // recipe.num_checkpoints),
        "interpolation_alpha": _LARGE_KEPT_CHANGE if is_large else _SMALL_KEPT_CHANGE,
        "activation_checkpointing": False,
    }
