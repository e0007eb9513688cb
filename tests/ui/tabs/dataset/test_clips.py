"""What was heard anew is taken over clip by clip, while what the task found stays as it was."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest

from backend.background_tasks import BackgroundTasks
from backend.dataset.clips.views import TranscriptChange
from tests.ui.tabs.dataset.test_render import clip, dataset
from ui.context import PageContext
from ui.tabs.dataset.clip_editor import ClipDeed, ClipEditor
from ui.tabs.dataset.clips import ClipsPart, Outcome


class Datasets:
    """One dataset of two clips, whose texts can be edited."""

    def __init__(self) -> None:
        self.texts = {"a": "One.", "b": "Two."}

    def show(self, name):
        return dataset(*(clip(key, text=text) for key, text in self.texts.items()))

    def edit_text(self, name, key, text):
        self.texts[key] = text

    def consents(self, name):
        return {}


@pytest.fixture
def editor(tmp_path):
    studio = SimpleNamespace(datasets=Datasets())
    files = SimpleNamespace(place=lambda path: None)
    with gr.Blocks() as page:
        context = PageContext(page=page, studio=studio, settings=None, folder=Path(tmp_path), files=files)
        editor = ClipEditor(ClipsPart(context, gr.Dropdown()))
    changes = tuple(
        TranscriptChange(key=key, before=text, after=f"{text} More.", confidence=0.9)
        for key, text in studio.datasets.texts.items()
    )
    editor.clips.tasks.start("ann", "Listening again", lambda _: Outcome(changes=changes))
    editor.clips.tasks.wait("ann", 60)
    return editor


def rows(clips: ClipsPart) -> str:
    return str(clips.update(clips.view("ann"))[clips.table])


def test_a_text_that_is_taken_over_leaves_its_row_but_not_the_result(editor):
    clips, before = editor.clips, editor.clips.tasks.state("ann")
    assert rows(clips).count("Heard:") == 2
    editor.apply("ann", ClipDeed(do="text", clip="a", text="One. More."))
    assert clips.context.studio.datasets.texts == {"a": "One. More.", "b": "Two."}
    assert rows(clips).count("Heard:") == 1
    assert [change.key for change in before.result.changes] == ["a", "b"]
    assert "Something else was heard in 2 clips." in clips.follow("ann")[clips.task]


def test_without_a_task_nothing_was_heard(editor):
    editor.clips.tasks = BackgroundTasks()
    assert editor.clips.heard_anew("ann") == {}
    assert "Heard:" not in rows(editor.clips)


def test_what_is_no_deed_is_left_alone(editor):
    assert list(editor._do("ann", "all", "order", 1, "{}", None)) == []
