"""What every tab is built with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import gradio as gr

from backend.background_tasks import BackgroundTasks
from backend.settings import Settings
from backend.studio import Studio
from ui.live.stop_flags import StopFlags
from ui.web.served_files import ServedFiles


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
        background_tasks: what is being done for them beside the events.
    """

    page: gr.Blocks
    studio: Studio
    settings: Settings
    folder: Path
    files: ServedFiles
    flags: StopFlags
    background_tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
