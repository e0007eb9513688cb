"""Recordings of a person that Debian packages: for the codec, which knows no language, and never for the talker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ, tidy

RUSSIAN_PROMPTS = Path("/usr/share/asterisk/sounds/ru_RU_f_IvrvoiceRU")
"""Of Debian's asterisk-core-sounds-ru-g722, by Maxim Topal (ivrvoice.ru), CC-BY 3.0."""
SPEAKER = "asterisk-ru"
_PATTERN = "**/*.g722"


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
    files = tuple(sorted(folder.glob(_PATTERN)))
    return RecordedPart(name=name, files=files) if files else None


def read_g722(path: Path) -> NDArray[np.float32]:
    """A file of raw G.722, mono at 16 kHz, in [-1, 1]."""
    # Not needed on machines that only train.
    import av  # noqa: PLC0415

    with av.open(path, format="g722") as container:
        blocks = [frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)]
        assert container.streams.audio[0].rate == SAMPLE_RATE_HZ
    # Some files are empty.
    return np.concatenate([np.zeros(0, np.int16), *blocks]).astype(np.float32) / np.float32(32768)
