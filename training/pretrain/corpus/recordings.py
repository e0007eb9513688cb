"""Recordings of a person that Debian packages, as a part of the corpus: for the codec, which knows no language."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.pretrain.corpus.own_sentences import read_g722, recordings_in
from training.pretrain.corpus.tts_engines import tidy

SPEAKER = "asterisk-ru"


@dataclass(frozen=True, kw_only=True)
class RecordedPart:
    """A part of the corpus from recordings: one utterance per file of a folder."""

    name: str
    files: tuple[Path, ...]
    hours: None = None

    @property
    def num_utterances(self) -> int:
        """One per file."""
        return len(self.files)

    def utterance(self, index: int) -> tuple[str, str, NDArray[np.int16] | None]:
        """Speaker, no text, and the audio; None for a file with nothing but silence."""
        return SPEAKER, "", tidy(read_g722(self.files[index]))


def recorded_part(name: str, folder: Path) -> RecordedPart | None:
    """The recordings in this folder, or None without any."""
    files = recordings_in(folder)
    return RecordedPart(name=name, files=files) if files else None
