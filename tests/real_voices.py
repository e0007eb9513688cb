"""Recordings of real people that Debian's packages hold. For judging only: never for training, tuning or samples."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray

REAL_VOICE_HZ = 16_000
INSTALL = "apt install asterisk-core-sounds-en asterisk-core-sounds-en-g722"

_SOUNDS = Path("/usr/share/asterisk/sounds")
_TEXTS = Path("/usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz")
_BYTES_PER_SECOND = 8000
_SHORTEST_SECONDS, _LONGEST_SECONDS, _LEAST_WORDS = 2.5, 12.0, 6
_DRAWN = 40
# Four people; the packages of the other languages hold the other three.
_SPEAKERS = ("en_US_f_Allison", "fr_CA_f_June", "it_IT_m_Carlo", "ru_RU_f_IvrvoiceRU")


@dataclass(frozen=True)
class Prompt:
    """What a professional speaker read, and the text she was given."""

    name: str
    text: str
    path: Path

    def samples(self) -> NDArray[np.float32]:
        """Mono at REAL_VOICE_HZ."""
        return read_g722(self.path)


def is_installed() -> bool:
    return _TEXTS.is_file() and (_SOUNDS / "en").is_dir()


needs_real_voice = pytest.mark.skipif(not is_installed(), reason=f"no recordings of a person: {INSTALL}")


def all_prompts() -> list[Prompt]:
    """Those with six words or more, 2.5 to 12 s and no digits, by name: 103."""
    found = []
    for line in gzip.decompress(_TEXTS.read_bytes()).decode("utf-8", "replace").splitlines():
        name, colon, text = line.partition(":")
        path = _SOUNDS / "en" / f"{name.strip()}.g722"
        if line.startswith(";") or not colon or not path.is_file():
            continue
        text = " ".join(text.split())
        seconds = path.stat().st_size / _BYTES_PER_SECOND
        is_speech = "[" not in text and not any(sign.isdigit() for sign in text)
        if is_speech and len(text.split()) >= _LEAST_WORDS and _SHORTEST_SECONDS <= seconds <= _LONGEST_SECONDS:
            found.append(Prompt(name.strip(), text, path))
    return sorted(found, key=lambda prompt: prompt.name)


def drawn_prompts(count: int = _DRAWN, seed: int = 0) -> list[Prompt]:
    """The same every time."""
    prompts = all_prompts()
    order = np.random.default_rng(seed).permutation(len(prompts))
    return [prompts[place] for place in order[:count]]


def short_recordings(count: int = 25, *, shortest: float = 1.0, longest: float = 3.0) -> dict[str, list[Path]]:
    """Short prompts of each real speaker that is installed."""
    chosen = {}
    for speaker in _SPEAKERS:
        paths = sorted(
            path
            for path in (_SOUNDS / speaker).rglob("*.g722")
            if shortest <= path.stat().st_size / _BYTES_PER_SECOND <= longest
        )
        if len(paths) >= count:
            order = np.random.default_rng(0).permutation(len(paths))
            chosen[speaker] = [paths[place] for place in order[:count]]
    return chosen


def read_g722(path: Path) -> NDArray[np.float32]:
    with av.open(str(path), format="g722") as container:
        blocks = [frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)]
    return np.concatenate(blocks).astype(np.float32) / 32768
