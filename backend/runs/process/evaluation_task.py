"""The Ray task that evaluates one checkpoint; runs during training, perhaps on another machine."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import torch

from backend.evaluation.evaluate import evaluate, load_scorers
from backend.evaluation.plan import EvaluationPlan
from backend.evaluation.speaker_verifier import load_verifier
from backend.runs.storage.run_folder import RunFolder
from backend.transcription.select import load_stored_transcriber
from training.checkpoint import read_checkpoint
from training.export import export_checkpoint
from training.model.voice_model import VoiceModel


def evaluate_checkpoint(
    raw_plan: dict[str, Any], run_folder: str, name: str, checkpoint: str | None
) -> list[dict[str, Any]]:
    """Speak and measure; returns the takes.

    Args:
        raw_plan: a `EvaluationPlan`.
        run_folder: of the run.
        name: of the checkpoint; names the folder of its takes.
        checkpoint: its folder; None for the base model.

    Raises:
        EncoreError: it cannot be loaded, or cannot speak.
    """
    logging.basicConfig(level=logging.INFO)
    # The processors are for the training that runs at the same time.
    torch.set_num_threads(1)
    plan, folder = EvaluationPlan.model_validate(raw_plan), RunFolder(Path(run_folder))
    scorers = load_scorers(plan, load_stored_transcriber(), load_verifier())
    if checkpoint is None:
        model = VoiceModel.load(plan.base_model)
        return [take.model_dump(mode="json") for take in evaluate(model, plan, scorers, folder.takes / name)]
    exported = folder.evaluating / name
    shutil.rmtree(exported, ignore_errors=True)
    try:
        speaker = torch.tensor(plan.speaker, dtype=torch.float32)
        export_checkpoint(read_checkpoint(Path(checkpoint)), speaker, exported, "base")
        model = VoiceModel.load(exported)
        return [take.model_dump(mode="json") for take in evaluate(model, plan, scorers, folder.takes / name)]
    finally:
        shutil.rmtree(exported, ignore_errors=True)
