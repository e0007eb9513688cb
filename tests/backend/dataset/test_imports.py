"""Each worker of a build starts anew: what it loads is paid for by every build."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import backend.dataset.build.ray_tasks
assert not {"torch", "scipy.signal", "transformers"} & set(sys.modules), "who reads and cuts loads no networks"
import backend.dataset.build.ray_actors
import backend.dataset.build.passes
import backend.transcription.whisper_transcriber
import training.model.device
import backend.dataset.stages.clip_encoder
assert not {"scipy.signal", "transformers"} & set(sys.modules), "who listens loads nothing that speaks"
"""


def test_workers_load_only_what_they_need() -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
