"""A disk that fills up during a build, for real: one clear error, nothing finished is lost, the next build goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.backend.audio.small_disk import run_on_small_disk
from tests.backend.dataset.spoken import SENTENCES, speak_folder
from tests.golden import GOLDEN_CHECKPOINT

# Too small for all recordings, for all clips, and large enough.
SIZES = ("900k", "2000k", "16m")

BUILD = """
import json, subprocess, sys
from pathlib import Path
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.datasets import Datasets
from backend.errors import EncoreError
from backend.store.home import Home

disk = Path(sys.argv[1])
job = BuildJob.parse("ann", [Path(RECORDINGS)], model=MODEL, whisper="none", num_actors=0)
for size in SIZES:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)
    datasets, error = Datasets(Home(disk)), ""
    try:
        datasets.build(job)
    except EncoreError as caught:
        error = f"{type(caught).__name__}: {caught}"
    left = [str(path) for path in disk.rglob("*") if path.name.endswith(".partial") or "incoming/" in str(path)]
    sounds = len(list(disk.glob("artifacts/??/*.wav")))
    print(json.dumps({"error": error, "left": left, "sounds": sounds}), file=sys.stderr)
view, progress = datasets.show("ann"), datasets.progress("ann")
done = {stage.stage: [stage.num_done, stage.num_reused, stage.num_failed] for stage in progress.stages}
print(json.dumps({"state": view.state, "texts": [clip.text for clip in view.clips], "done": done}), file=sys.stderr)
"""


@pytest.mark.needs_program("flite")
def test_a_build_on_a_full_disk_says_so_and_goes_on_later(tmp_path: Path):
    recordings = speak_folder(tmp_path / "recordings")
    names = f"RECORDINGS, MODEL, SIZES = {str(recordings)!r}, {str(GOLDEN_CHECKPOINT)!r}, {SIZES!r}\n"
    said = run_on_small_disk(tmp_path / "disk", names + BUILD, size="800k")
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert len(lines) == len(SIZES) + 1, said
    first, second, third, end = lines
    for refused in (first, second):
        assert refused["error"].startswith("DiskFull: The disk is full. Free some space and build again"), said
    assert [line["left"] for line in (first, second, third)] == [[], [], []]
    assert 0 < first["sounds"] < second["sounds"] < third["sounds"] == 2 * len(SENTENCES)
    assert (third["error"], end["state"]) == ("", "done")
    assert sorted(end["texts"]) == sorted(SENTENCES)
    num_done, num_reused, num_failed = end["done"]["decode"]
    assert (num_done, num_failed) == (len(SENTENCES), 0)
    assert num_reused > 0
    assert "Traceback" not in said
