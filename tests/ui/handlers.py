"""The handlers of a page that nobody serves, called as Gradio would call them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr

from backend.settings import Settings
from backend.studio import Studio
from ui.layout import build_page


class UnservedPage:
    """A page without a server and without a model; components are named by their ids."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(home=folder / "home")
        self.studio = Studio(self.settings)
        self.blocks: gr.Blocks = build_page(self.studio, self.settings, folder)

    def handler(self, api: str) -> Any:
        """What answers an event, as it is known to programs."""
        return next(event.fn for event in self.blocks.fns.values() if event.api_name == api)

    def call(self, api: str, *, session: str = "session", **inputs: Any) -> dict[str, Any]:
        """What a handler changes."""
        handler = self.handler(api)
        if "request" in handler.__wrapped__.__code__.co_varnames:
            inputs["request"] = SimpleNamespace(session_hash=session, headers={})
        update = handler(**inputs)
        if "__type__" in update:  # nothing changes
            return {}
        return {block.elem_id or type(block).__name__.lower(): value for block, value in update.items()}
