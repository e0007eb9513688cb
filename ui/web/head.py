"""What every part of the page finds when it is loaded: the words and our own scripts, within the page itself."""

from __future__ import annotations

import json
from pathlib import Path

from ui.words.words import tables

_FOLDER = Path(__file__).parents[1]

SCRIPTS = (
    _FOLDER / "words" / "words.js",
    _FOLDER / "bar" / "bar.js",
    _FOLDER / "player" / "player.js",
    _FOLDER / "web" / "keys.js",
    _FOLDER / "web" / "journeys.js",
    _FOLDER / "web" / "menus.js",
)
"""In the order in which they are run; each adds its part to `window.encore`."""

FIRST = "(window.encore ??= {}).tables = "


def build_head() -> str:
    """HTML for the end of the page's head."""
    words = FIRST + json.dumps({language: dict(table) for language, table in tables().items()}, ensure_ascii=False)
    scripts = [words, *(script.read_text(encoding="utf-8") for script in SCRIPTS)]
    return "".join(f"<script>{_contained(script)}</script>\n" for script in scripts)


def _contained(script: str) -> str:
    """The same script, in which no text ends its element early."""
    return script.replace("</", "<\\/")
