"""Programs and data that some tests need and the app does not, and how to come by them.

A test says what it needs by `@pytest.mark.needs_program("flite")`; a fixture or a helper by `require_program`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

# Any of these commands, or of these files, will do. The first name is Debian's package.
PROGRAMS: Mapping[str, tuple[str | Path, ...]] = {
    "flite": ("flite",),
    "espeak-ng": ("espeak-ng",),
    # In Debian's non-free.
    "libttspico-utils": ("pico2wave",),
    # In non-free too, and not in Debian 12.
    "rhvoice": ("RHVoice-test",),
    # The others are what the same browser is called elsewhere.
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "g++": ("c++", "g++", "clang++"),
    "hadolint": ("hadolint", Path(sys.executable).with_name("hadolint")),
    "fortunes": (Path("/usr/share/games/fortunes"),),
    "wamerican": (Path("/usr/share/dict/american-english"),),
}


def find_program(name: str) -> Path | None:
    """Where it is, or None."""
    for each in PROGRAMS[name]:
        path = each if isinstance(each, Path) else shutil.which(each)
        if path and Path(path).exists():
            return Path(path)
    return None


def why_missing(*names: str) -> str | None:
    """What is missing of these programs, with the line that installs it; None where all are there."""
    missing = [name for name in names if find_program(name) is None]
    return f"not installed: {', '.join(missing)} (apt-get install {' '.join(missing)})" if missing else None


def require_program(*names: str) -> None:
    """Skip the test that runs, or that asked for the fixture that runs, where one is missing."""
    if reason := why_missing(*names):
        pytest.skip(reason)
