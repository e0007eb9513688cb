"""The folder of this copy of the project: its assets, and the code that child processes run."""

from __future__ import annotations

from pathlib import Path

PROJECT_FOLDER = Path(__file__).resolve().parents[2]
