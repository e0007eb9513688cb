"""A listener who leaves at the very end never holds up the others, and nothing of the take stays behind."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from backend.serving.api.take_recorder import TakeRecorder
from backend.serving.requests import Reference, SpeechSummary, SynthesisRequest
from backend.store.errors import StoreError
from backend.store.home import Home
from backend.takes.take import Take, TakeFacts
from backend.takes.takes import TakeBounds, Takes
from tests.backend.takes.facts import FACTS

DEADLINE_SECONDS = 30
ORDER = SynthesisRequest(voice=Reference(name="Anna", recording=b""), text="Hello.", audio_format="flac")
SUMMARY = SpeechSummary(facts=FACTS, sample_rate=24_000, num_frames=2)


class SlowTakes(Takes):
    """A store whose disk is slow, and at last full if told so."""

    def __init__(self, home: Path, *, is_full: bool) -> None:
        super().__init__(Home(home), TakeBounds())
        self.is_full, self.is_adding, self.may_go_on = is_full, threading.Event(), threading.Event()

    def add(self, facts: TakeFacts, file: Path, owner: str = "") -> Take:
        self.is_adding.set()
        assert self.may_go_on.wait(DEADLINE_SECONDS)
        if self.is_full:
            raise StoreError("The disk is full.")
        return super().add(facts, file, owner)


@pytest.mark.parametrize("is_full", [False, True])
def test_closing_does_not_wait_for_a_slow_disk(tmp_path: Path, is_full: bool):
    takes = SlowTakes(tmp_path, is_full=is_full)
    recorder = TakeRecorder(takes, ORDER)
    recorder.add(b"sound")
    finishing = threading.Thread(target=recorder.finish, args=(SUMMARY,))
    finishing.start()
    try:
        assert takes.is_adding.wait(DEADLINE_SECONDS)
        began = time.monotonic()
        recorder.close()
        waited = time.monotonic() - began
        assert finishing.is_alive()
        assert waited < DEADLINE_SECONDS / 2
    finally:
        takes.may_go_on.set()
        finishing.join(DEADLINE_SECONDS)
    assert len(takes.list()) == (0 if is_full else 1)
    kept = {take.path for take in takes.list()}
    assert {path for path in tmp_path.rglob("*.flac") if path.is_file()} == kept
    # What comes later changes nothing.
    recorder.add(b"more")
    recorder.finish(SUMMARY)
    assert len(takes.list()) == len(kept)


def test_what_was_not_finished_is_removed(tmp_path: Path):
    takes = Takes(Home(tmp_path), TakeBounds())
    recorder = TakeRecorder(takes, ORDER)
    recorder.add(b"sound")
    assert list(tmp_path.rglob("*.flac"))
    recorder.close()
    assert not list(tmp_path.rglob("*.flac"))
    assert not takes.list()
