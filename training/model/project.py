"""Where this copy of the project lies: its assets, and the code that other processes are started from."""

from __future__ import annotations

from pathlib import Path

PROJECT_FOLDER = Path(__file__).resolve().parents[2]
