"""The corpus on disk: shards of raw audio with an index, made by `make_corpus.py`, read by every later stage.

    corpus/manifest.json                recipe and contents
    corpus/train/shard-00000.pcm        16 kHz mono int16, little-endian, one utterance after the other
    corpus/train/shard-00000.jsonl      one line per utterance: index, start, num_samples, speaker, text
    corpus/held-out-texts/...           training speakers, texts of no training utterance
    corpus/held-out-parameters/...      training voices with unseen pitch, formants and rate
    corpus/held-out-voice/...           a voice that no training speaker is derived from

    corpus/recordings/...               of a person, if installed: for the tokenizer
    corpus/other-languages/...          voices that read English by rules of their own, or nothing that is given them

A shard is complete when its index exists, which is written last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ
from training.pretrain.errors import CorpusError

MANIFEST = "manifest.json"
TRAIN = "train"
HELD_OUT_TEXTS, HELD_OUT_PARAMETERS, HELD_OUT_VOICE = "held-out-texts", "held-out-parameters", "held-out-voice"
PARTS = (HELD_OUT_TEXTS, HELD_OUT_PARAMETERS, HELD_OUT_VOICE, TRAIN)
RECORDINGS, OTHER_LANGUAGES = "recordings", "other-languages"
"""Parts that a corpus may have besides: a person for the tokenizer, and voices to be heard without text."""
_SAMPLE_TYPE = np.dtype("<i2")
FULL_SCALE = 32768.0


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One utterance's line in a shard's index."""

    index: int
    """Its number in the stream it was drawn from; a skipped utterance leaves a gap."""
    start: int
    num_samples: int
    speaker: str
    text: str

    def to_line(self) -> str:
        """One line of JSON, newline included."""
        return json.dumps(asdict(self)) + "\n"


class Utterance(NamedTuple):
    """Audio (16 kHz mono), text and speaker."""

    audio: NDArray[np.int16]
    text: str
    speaker: str


class Corpus:
    """One part of a corpus. Audio is memory-mapped: opening 24 hours takes a second and no memory."""

    def __init__(self, folder: Path) -> None:
        self.entries: list[Entry] = []
        self._audio: list[NDArray[np.int16]] = []
        self._first_of_shard: list[int] = []
        for number, index_path in enumerate(shard_indexes(folder)):
            entries = list(read_index(index_path))
            self._first_of_shard.append(len(self.entries))
            self.entries.extend(entries)
            self._audio.append(np.memmap(shard_audio(folder, number), dtype=_SAMPLE_TYPE, mode="r"))
        if not self.entries:
            raise CorpusError(f"{folder} holds no corpus. Make one with: python -m training.pretrain corpus --out ...")

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Utterance]:
        return map(self.utterance, range(len(self)))

    def utterance(self, number: int) -> Utterance:
        """The utterance at `number` in [0, len); its audio is a read-only view of the file."""
        entry = self.entries[number]
        shard = int(np.searchsorted(self._first_of_shard, number % len(self), side="right")) - 1
        audio = self._audio[shard][entry.start : entry.start + entry.num_samples]
        return Utterance(audio, entry.text, entry.speaker)

    @property
    def num_samples(self) -> NDArray[np.int64]:
        """Length of every utterance, to batch by length without touching audio."""
        return np.array([entry.num_samples for entry in self.entries], dtype=np.int64)

    @property
    def hours(self) -> float:
        """Total duration."""
        return float(self.num_samples.sum()) / SAMPLE_RATE_HZ / 3600

    def shards(self) -> list[range]:
        """Utterance numbers of each shard."""
        ends = [*self._first_of_shard[1:], len(self)]
        return [range(first, end) for first, end in zip(self._first_of_shard, ends, strict=True)]

    def by_speaker(self) -> dict[str, list[int]]:
        """Utterance numbers of each speaker, to draw pairs from."""
        found: dict[str, list[int]] = {}
        for number, entry in enumerate(self.entries):
            found.setdefault(entry.speaker, []).append(number)
        return found


def open_corpus(folder: Path | str, part: str = TRAIN) -> Corpus:
    """Open one of `PARTS` of the corpus in `folder`; shards finished later are not seen.

    Raises:
        CorpusError: the folder holds no finished shard of that part.
    """
    if part not in (*PARTS, RECORDINGS, OTHER_LANGUAGES):
        raise CorpusError(f"A corpus has no part {part!r}; its parts are {', '.join(PARTS)}.")
    return Corpus(Path(folder) / part)


def has_part(folder: Path, part: str) -> bool:
    """Whether a corpus has anything of this part."""
    index = shard_index(folder / part, 0)
    return index.is_file() and index.stat().st_size > 0


def shard_audio(folder: Path, number: int) -> Path:
    """The file of a shard's samples."""
    return folder / f"shard-{number:05d}.pcm"


def shard_index(folder: Path, number: int) -> Path:
    """The file of a shard's index, which exists once the shard is complete."""
    return folder / f"shard-{number:05d}.jsonl"


def shard_indexes(folder: Path) -> Iterator[Path]:
    """The indexes of the finished shards, up to the first gap."""
    number = 0
    while (path := shard_index(folder, number)).is_file():
        yield path
        number += 1


def read_index(path: Path) -> Iterator[Entry]:
    """The utterances of a finished shard."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield Entry(**json.loads(line))
