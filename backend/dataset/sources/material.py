"""What a dataset is to be made of: recordings with their texts, or a sample voice, kept where a build finds them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.voices.samples import get_sample


@dataclass(frozen=True, kw_only=True)
class Material:
    """Recordings and the texts that came with them.

    Attributes:
        transcripts: files with texts.
        transcript: what the first recording says.
        sample: name of a sample voice instead of recordings; the place of each of its sentences is known.
    """

    recordings: tuple[Path, ...] = ()
    transcripts: tuple[Path, ...] = ()
    transcript: str = ""
    sample: str = ""

    @property
    def is_given(self) -> bool:
        """Whether there is anything to make a dataset of."""
        return bool(self.recordings or self.sample)

    def keep(self, folder: Path) -> tuple[list[Path], list[Path]]:
        """Put everything into a folder that outlasts the program; returns the recordings and the texts there."""
        recordings = [_place(path, folder / f"{index:03}") for index, path in enumerate(self.recordings)]
        if self.sample:
            recordings += get_sample(self.sample).write_sentences(folder / "sample")
        texts = [_place(path, folder / f"texts-{index:03}") for index, path in enumerate(self.transcripts)]
        if self.transcript:
            text = recordings[0].with_suffix(".txt")
            text.write_text(self.transcript + "\n", encoding="utf-8")
            texts.append(text)
        return recordings, texts


def proposed_name(voice: str, taken: Sequence[str]) -> str:
    """A free name for a dataset, after a voice or the file of a recording."""
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", voice.rsplit(".", 1)[0]).strip("-_")[:40] or "voice"
    names = [stem, *(f"{stem}-{number}" for number in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)


def _place(path: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / path.name
    place.unlink(missing_ok=True)
    try:
        os.link(path, place)
    except OSError:
        # Another file system, or one without links.
        shutil.copyfile(path, place)
    return place
