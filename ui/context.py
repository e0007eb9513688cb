"""What every tab is built with."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import gradio as gr
from gradio.blocks import Block

from backend.background_tasks import BackgroundTask, BackgroundTasks, TaskState
from backend.settings import Settings
from backend.studio import Studio
from ui.events import Update
from ui.live.follow import StopFlags, follow
from ui.web.served_files import ServedFiles

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class PageContext:
    """The verbs, the settings, and the place for files that the page shows.

    Attributes:
        page: the whole page, for what happens when it is opened.
        studio: the verbs.
        settings: what the person who started the program chose.
        folder: the page's own temporary folder, the only one it serves files from.
        files: brings files from elsewhere into that folder.
        flags: the Stop buttons of all sessions.
        background_tasks: what `follow` runs; results of any type, which it returns with their own.
        when_opened: what components are filled with anew when the page is opened, because Python says it in the
            language of the visitor, who is not there yet when the page is built.
    """

    page: gr.Blocks
    studio: Studio
    settings: Settings
    folder: Path
    files: ServedFiles
    flags: StopFlags = field(default_factory=StopFlags)
    background_tasks: BackgroundTasks[Any] = field(default_factory=BackgroundTasks)
    when_opened: dict[Block, Callable[[], Any]] = field(default_factory=dict)

    def follow(
        self,
        key: str,
        what: str,
        work: Callable[[BackgroundTask[Any]], Result],
        show: Callable[[TaskState[Any]], Update],
    ) -> Generator[Update, None, Result]:
        """Do work in the background while showing its state; see `ui.live.follow.follow`."""
        return follow(self.background_tasks, key, what, work, show)
