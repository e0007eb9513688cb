"""A corpus of tones in the corpus stage's own format, made without any speech engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.pretrain.corpus import corpus
from training.pretrain.corpus.corpus import Entry
from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ

SHORTEST_SECONDS, WORD = 0.5, "hum"


def tone(number: int, shortest_seconds: float = SHORTEST_SECONDS) -> NDArray[np.int16]:
    """A chord of three harmonics that swells and falls, up to .3 s longer than the shortest; pitch is by number."""
    num_samples = int(SAMPLE_RATE_HZ * shortest_seconds) + 997 * (number % 8)
    seconds = np.arange(num_samples) / SAMPLE_RATE_HZ
    chord = sum(np.sin(2 * np.pi * 110 * (1 + number % 5) * harmonic * seconds) / harmonic for harmonic in (1, 2, 3))
    return np.asarray(6000 * np.sin(np.pi * seconds / seconds[-1]) * chord, dtype=np.int16)


def write_part(
    folder: Path,
    num_utterances: int,
    shortest_seconds: float = SHORTEST_SECONDS,
    text: str = WORD,
    num_speakers: int = 1,
) -> None:
    """One finished shard of tones, by speakers in turn."""
    folder.mkdir(parents=True)
    sounds = [tone(number, shortest_seconds) for number in range(num_utterances)]
    starts = np.cumsum([0, *map(len, sounds)])
    corpus.shard_audio(folder, 0).write_bytes(b"".join(sound.astype("<i2").tobytes() for sound in sounds))
    entries = [
        Entry(
            index=number,
            start=int(starts[number]),
            num_samples=len(sound),
            speaker=f"tone-{number % num_speakers}",
            text=text,
        )
        for number, sound in enumerate(sounds)
    ]
    corpus.shard_index(folder, 0).write_text("".join(entry.to_line() for entry in entries))


def write_corpus(
    folder: Path,
    num_utterances: int = 16,
    shortest_seconds: float = SHORTEST_SECONDS,
    text: str = WORD,
    num_speakers: int = 1,
) -> Path:
    """All parts of a tiny corpus."""
    for part in corpus.PARTS:
        of_part = num_utterances if part == corpus.TRAIN else 2
        write_part(folder / part, of_part, shortest_seconds, text, num_speakers)
    return folder
