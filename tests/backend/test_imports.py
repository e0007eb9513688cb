"""What starts often loads little: seconds at every start of the program, of a command and of a run's supervisor."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Together some three seconds.
NEEDED_WHERE_MODELS_ARE_SPREAD = {"torch.distributed.tensor", "torch.distributed.fsdp", "sympy"}
NEEDED_WITH_A_MODEL = {"transformers"}


@pytest.mark.parametrize(
    "module", ["backend.studio", "backend.commands.clone", "backend.runs.process.supervisor", "ui.layout"]
)
def test_starting_loads_neither_what_trains_nor_what_reads_texts(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & (NEEDED_WHERE_MODELS_ARE_SPREAD | NEEDED_WITH_A_MODEL)


NETWORKS = {"torch", "transformers", "whisper", "ray", "fastapi", "gradio", "huggingface_hub"}


@pytest.mark.parametrize(
    "module",
    [
        "backend.commands.finetune",
        "backend.commands.say",
        "backend.dataset.datasets",
        "backend.runs.runs",
        "backend.serving.deploy.configure",
        "backend.takes.takes",
        "backend.voices.reference",
        "training.model.checkpoint.reading",
    ],
)
def test_looking_at_what_is_kept_loads_no_networks(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & NETWORKS
