"""The parts of the GPU benchmark in the order of their priority, and what each of them needs. Loads nothing heavy."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

_MACHINE = ("torch", "numpy")
_NETWORK = (*_MACHINE, "psutil")
_CHECKPOINTS = (*_NETWORK, "safetensors", "pydantic", "transformers")
_TRAINING = (*_CHECKPOINTS, "pyarrow")

# Modules whose package has another name.
PACKAGES = {"qwen_tts": "qwen-tts", "faster_qwen3_tts": "faster-qwen3-tts"}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of the benchmark, which runs in a process of its own.

    Attributes:
        name: of the part and its result.
        title: over its table.
        module: in `tests.benchmarks.gpu.parts`; its `measure(setup)` yields what it has found so far.
        needs: modules without which it is left out.
        min_seconds: with less time left it is not begun.
        max_seconds: it is ended after this time, and what it has found so far is kept.
        setup: what tells it from other parts of the same module.
        is_for_many_gpus: whether it is left out on a single one.
    """

    name: str
    title: str
    module: str
    needs: tuple[str, ...]
    min_seconds: float = 30
    max_seconds: float
    setup: dict[str, Any] = field(default_factory=dict)
    is_for_many_gpus: bool = False

    def missing(self) -> list[str]:
        """Packages that this Python lacks for it."""
        return missing_of(self.needs)


PARTS: Sequence[Part] = (
    Part(name="machine", title="The machine", module="machine", needs=_MACHINE, max_seconds=60),
    Part(
        name="tests",
        title="Tests that need a GPU",
        module="unit_tests",
        needs=(*_TRAINING, "pytest", "hypothesis"),
        max_seconds=240,
    ),
    Part(
        name="decode-1.7b",
        title="One stream, 1.7B shapes",
        module="decoding",
        needs=_NETWORK,
        max_seconds=240,
        setup={"shapes": "1.7b"},
    ),
    Part(
        name="streams-1.7b",
        title="Many streams, 1.7B shapes",
        module="streams",
        needs=_CHECKPOINTS,
        max_seconds=240,
        setup={"shapes": "1.7b"},
    ),
    Part(
        name="finetune",
        title="Fine-tuning all weights on one GPU",
        module="finetuning",
        needs=_TRAINING,
        max_seconds=180,
        setup={"shapes": "1.7b", "strategy": "ddp"},
    ),
    Part(
        name="finetune-fsdp2",
        title="Fine-tuning all weights on all GPUs, FSDP2",
        module="finetuning",
        needs=_TRAINING,
        max_seconds=180,
        setup={"shapes": "1.7b", "strategy": "fsdp2"},
        is_for_many_gpus=True,
    ),
    Part(
        name="decode-0.6b",
        title="One stream, 0.6B shapes",
        module="decoding",
        needs=_NETWORK,
        max_seconds=180,
        setup={"shapes": "0.6b"},
    ),
    Part(
        name="streams-0.6b",
        title="Many streams, 0.6B shapes",
        module="streams",
        needs=_CHECKPOINTS,
        max_seconds=180,
        setup={"shapes": "0.6b"},
    ),
    Part(
        name="pretrain",
        title="Pretraining the embedded model",
        module="pretraining",
        needs=(*_TRAINING, "soundfile", "soxr"),
        max_seconds=180,
    ),
)


# Measured beside our decoding where this Python has them, or another one that is named with the option.
COMPARISONS = {"qwen_tts": "--reference-python", "faster_qwen3_tts": "--faster-python"}


def missing_of(modules: Iterable[str]) -> list[str]:
    """Those that this Python does not have, by the names of their packages."""
    return [PACKAGES.get(name, name) for name in modules if importlib.util.find_spec(name) is None]


def say_what_is_missing() -> list[str]:
    """A line for each part that is left out, and for each comparison, with what would bring it back."""
    lines = []
    for part in PARTS:
        if missing := part.missing():
            lines.append(f"{part.name} is left out: pip install {' '.join(missing)}")
    for module, option in COMPARISONS.items():
        for package in missing_of([module]):
            lines.append(f"{package} is not installed here: it is compared with if {option} names a Python that has it")
    return lines
