"""Recordings given to the page: one card each, what is left is told, and the rest can be left out."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from backend.background_tasks import BackgroundTasks
from backend.studio import Studio
from tests.ui.recordings import write_broken, write_voice
from ui.source import Reference
from ui.tabs.voice.examine import Examining


@dataclass(frozen=True)
class Bench:
    """What examining needs of a page."""

    folder: Path
    studio: Studio = field(default_factory=Studio)
    background_tasks: BackgroundTasks = field(default_factory=BackgroundTasks)


@pytest.fixture
def context(tmp_path):
    (tmp_path / "page").mkdir()
    return Bench(tmp_path / "page")


def test_each_has_its_card_and_only_the_good_ones_are_kept(context, tmp_path):
    paths = [write_broken(tmp_path / "broken.wav"), write_voice(tmp_path / "good.wav", 1.5)]
    examining = Examining(context, "key", {})
    said = [words for words, _ in examining.run(paths)]
    assert "Listening to broken.wav (1 of 2)" in said[0]
    assert any("Listening to good.wav (2 of 2), about" in words for words in said)
    assert ["cannot be used" in card for card in examining.cards] == [True, False]
    (fit,) = examining.fit
    assert (fit.path, fit.preview.is_file()) == (paths[1], True)


def test_known_files_are_not_searched_again_and_deleted_ones_are_removed(context, tmp_path):
    examining = Examining(context, "key", {})
    paths = [write_voice(tmp_path / name, 1.5) for name in ("a.wav", "b.wav")]
    list(examining.run(paths))
    known: dict[Path, Reference] = {one.path: one for one in examining.fit}
    paths[0].write_bytes(b"changed")
    again = Examining(context, "key", dict(known))
    list(again.run(paths[:1]))
    assert again.fit == [known[paths[0]]]
    assert not known[paths[1]].preview.exists()


def test_the_rest_can_be_left_out(context, tmp_path, monkeypatch):
    paths = [write_voice(tmp_path / f"{number}.wav", 1.5) for number in range(3)]
    examine, is_cancelled = context.studio.examine, threading.Event()

    def wait_for_cancel(path: Path, preview: Path | None = None):
        """The second one takes until it is cancelled."""
        if path == paths[1]:
            assert is_cancelled.wait(60)
        return examine(path, preview)

    monkeypatch.setattr(context.studio, "examine", wait_for_cancel)
    examining = Examining(context, "key", {})
    told = 0
    for words, may_stop in examining.run(paths):
        told += "2 of 3" in words
        # The first time it is told it has not begun.
        if told == 2 and not is_cancelled.is_set():
            assert may_stop
            context.background_tasks.cancel("key")
            is_cancelled.set()
    assert [one.path for one in examining.fit] == paths[:1]
    assert "2 of the recordings were skipped" in examining.cards[-1]
