"""On a full disk a run says so, waits, and goes on: its own processes do not end because a row cannot be written."""

from __future__ import annotations

import json
from pathlib import Path

from tests.backend.audio.small_disk import run_on_small_disk

GUARDED = """
import json, sys, threading, time
from pathlib import Path
from backend.runs.process.disk_guard import DiskGuard
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.store.home import Home
from tests.backend.runs.storage.test_records import record

home = Home(Path(sys.argv[1]))
folder = RunFolder.of(home.folder, "one")
folder.path.mkdir(parents=True)
rows = RunTable(home.database)
rows.add(record())
DiskGuard(home.database, "one", folder)
filler = home.folder / "filler"
with filler.open("wb", buffering=0) as file:
    try:
        while file.write(bytes(2**12)):
            pass
    except OSError:
        pass
seen = []
def look_and_free():
    time.sleep(3)
    seen.append(rows.get("one").message)
    filler.unlink()
thread = threading.Thread(target=look_and_free)
thread.start()
rows.change("one", step=7)
thread.join()
events = [event.sentence for event in rows.events("one")]
print(json.dumps({"seen": seen, "step": rows.get("one").step, "events": events}), file=sys.stderr)
"""


def test_a_row_is_written_once_there_is_room_and_says_meanwhile_why_nothing_happens(tmp_path: Path) -> None:
    said = run_on_small_disk(tmp_path / "disk", GUARDED, size="8m")
    assert "Traceback" not in said
    found = json.loads(said[said.index("{") :])
    (seen,) = found["seen"]
    assert "is full" in seen
    assert "waits for room and continues by itself" in seen
    assert found["step"] == 7
    assert found["events"] == [seen, "There is room on the disk again; the run continues."]


LINES = """
import json, sys
from pathlib import Path
from backend.runs.storage.control import LineReader, LineWriter
folder = Path(sys.argv[1])
lines = LineWriter(folder / "metrics", 1)
lines.write({"step": 1})
filler = folder / "filler"
with filler.open("wb", buffering=0) as file:
    try:
        while file.write(bytes(100)):
            pass
    except OSError:
        pass
try:
    while True:
        lines.write({"step": 2, "padding": "x" * 3000})
except OSError:
    pass
filler.unlink()
lines.write({"step": 3})
print([line["step"] for line in LineReader(folder / "metrics").new_lines() if line["step"] != 2], file=sys.stderr)
"""


def test_a_line_that_found_the_disk_full_leaves_no_half(tmp_path: Path) -> None:
    assert run_on_small_disk(tmp_path / "disk", LINES).strip() == "[1, 3]"
