from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.golden import GOLDEN_CHECKPOINT

LOAD = f"""
import sys
from pathlib import Path
from training.model.voice_model import VoiceModel
model = VoiceModel.load(Path({str(GOLDEN_CHECKPOINT)!r}), precision="fp32", device="cpu")
assert not any(weight.is_meta for weight in model.talker.parameters())
assert "torch._dynamo" not in sys.modules
"""


def test_loading_a_model_does_not_load_the_compiler():
    root = next(parent for parent in Path(__file__).parents if (parent / "pyproject.toml").is_file())
    done = subprocess.run([sys.executable, "-c", LOAD], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
