"""Where a stage finds what earlier ones left, and leaves what it made; the same on every machine at work."""

from __future__ import annotations

from pathlib import Path

from backend.dataset.storage.stage_cache import StageCache
from backend.store.artifacts import Artifacts

WAV_SUFFIX = ".wav"


class DatasetWorkspace:
    """The folders below `ENCORE_HOME`; with workers on other machines they have to lie on storage all of them share."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.artifacts = Artifacts(home)
        self.cache = StageCache(home)

    def wav(self, audio_id: str) -> Path:
        """The sound of a canonical recording or a clip."""
        return self.artifacts.path(audio_id, WAV_SUFFIX)
