"""Speech on a full disk, for real: it is heard all the same, and is told that it was not kept."""

from __future__ import annotations

import json
from pathlib import Path

from tests.backend.audio.small_disk import run_on_small_disk

SPEAK = """
import json, sys
from pathlib import Path
from backend.serving.api.dependencies import ApiContext
from backend.serving.api.factory import create_api
from backend.serving.deploy.local_server import LocalSpeech
from backend.serving.pool.engine_pool import EnginePool
from backend.serving.synthesizer import Synthesizer
from backend.store.home import Home
from backend.takes.keeper import TakeKeeper
from backend.takes.takes import Takes
from backend.voices.registry import Voices
from tests.backend.serving.api.served import CONSENT, MODEL, ask, client_of, load
from tests.backend.takes.facts import FACTS
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import write_voice
import numpy as np

disk = Path(sys.argv[1])
home = Home(disk / "home")
voices, takes = Voices(home), Takes(home)
voices.create_zero_shot("Anna", write_voice(disk / "anna.wav", seconds=1.2), consent=CONSENT, model=MODEL)
synthesizer = Synthesizer(MODEL, GOLDEN_CHECKPOINT, EnginePool(load, max_engines=2))
client = client_of(create_api(ApiContext(
    service=LocalSpeech(synthesizer, max_requests=8), voices=voices, model_name=MODEL, takes=takes)))

def speak():
    whole = client.post("/v1/audio/speech", json=ask(stream=False, response_format="wav"))
    streamed = client.post("/v1/audio/speech", json=ask())
    events = client.post("/v1/audio/speech", json=ask(stream_format="sse")).text.strip().splitlines()
    done = json.loads([line for line in events if line.startswith("data:")][-1][5:])
    with TakeKeeper(takes, 24000) as keeper:
        for _ in range(50):
            keeper.write(np.zeros(24000, np.float32))
        kept = keeper.keep(FACTS, "me")
    print(json.dumps({
        "statuses": [whole.status_code, streamed.status_code], "sizes": [len(whole.content), len(streamed.content)],
        "problems": [whole.headers.get("x-encore-take-problem"), done.get("take_problem"), keeper.problem],
        "done": done["type"], "kept": kept is not None, "takes": len(takes.list()),
        "left": [str(path) for path in disk.rglob("*") if path.suffix == ".partial" or "incoming/" in str(path)],
    }), file=sys.stderr)

speak()
filler = (disk / "filler").open("wb", buffering=0)
for size in (1 << 16, 1 << 12, 1):
    try:
        while True:
            filler.write(b"x" * size)
    except OSError:
        pass
speak()
filler.close()
(disk / "filler").unlink()
speak()
synthesizer.close()
"""


KEEP = """
import subprocess, sys
from pathlib import Path
import numpy as np
from backend.store.home import Home
from backend.takes.keeper import TakeKeeper
from backend.takes.takes import Takes
from tests.backend.takes.facts import FACTS

takes = Takes(Home(Path(sys.argv[1]) / "home"))
(takes.folder / "incoming").mkdir(parents=True)
subprocess.run(["mount", "-o", "remount,ro", sys.argv[1]], check=True)
with TakeKeeper(takes, 24000) as keeper:
    keeper.write(np.zeros(24000, np.float32))
    kept = keeper.keep(FACTS, "me")
print("kept", kept, keeper.problem, file=sys.stderr)
"""


def test_a_take_on_a_disk_that_cannot_be_written_is_not_kept_and_says_so(tmp_path: Path):
    """Where nothing can be written, nothing can be removed either, not even what is not there."""
    said = run_on_small_disk(tmp_path / "disk", KEEP, size="16m")
    assert "Traceback" not in said, said
    assert "kept None" in said
    assert "write-protected" in said


def test_speech_needs_no_disk_and_says_that_it_was_not_kept(tmp_path: Path):
    said = run_on_small_disk(tmp_path / "disk", SPEAK, size="16m")
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert len(lines) == 3, said
    before, full, after = lines
    for line in lines:
        assert line["statuses"] == [200, 200]
        assert line["sizes"] == before["sizes"]
        assert line["done"] == "speech.audio.done"
        assert line["left"] == []
    assert before["problems"] == after["problems"] == [None, None, ""]
    assert (before["kept"], full["kept"], after["kept"]) == (True, False, True)
    assert full["problems"][:2] == ["the server's disk is full"] * 2
    assert "disk is full" in full["problems"][2] or "No space left" in full["problems"][2]
    assert (before["takes"], full["takes"], after["takes"]) == (4, 4, 8)
    assert "Traceback" not in said
