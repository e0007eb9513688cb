"""Who listens to takes: whoever knows the voices of the model that is loaded now."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backend.evaluation.take_scores import TakeMeasuring
from backend.transcription.transcriber import EMBEDDED_TRANSCRIBER
from tests.golden import GOLDEN_CHECKPOINT
from training.model.hub.hub import EMBEDDED_FOLDER


@dataclass
class Base:
    """A loaded model, as far as listening goes."""

    folder: Path


def test_the_embedded_transcriber_is_used_for_the_embedded_model_only(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measuring = TakeMeasuring()
    listener = measuring.transcriber(Base(EMBEDDED_FOLDER))
    assert listener.name == EMBEDDED_TRANSCRIBER
    assert measuring.transcriber(Base(EMBEDDED_FOLDER)) is listener
    assert measuring.transcriber(Base(GOLDEN_CHECKPOINT)) is None
    assert measuring.transcriber(Base(EMBEDDED_FOLDER)).name == EMBEDDED_TRANSCRIBER
