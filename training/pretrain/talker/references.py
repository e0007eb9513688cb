"""References for in-context training: utterances of each speaker, encoded by the speech tokenizer.

In use a reference is several sentences with pauses, and its codes come from the encoder, at the recording's pace. A
talker that was trained only to continue single utterances hurries and mumbles after a real reference. So several are
joined, and never the one that is to be spoken, which would teach the talker to copy.

run/references.npz    codes (frames of all, codebooks), num_frames (references,), members (references, 1 or more): the
                      utterances' numbers, -1 for none
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.pretrain.corpus.channels import sometimes_through_channel
from training.pretrain.corpus.corpus import FULL_SCALE, Corpus
from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ

_FILE = "references.npz"
# After each utterance.
_PAUSE_SECONDS = (0.1, 0.6)
_REPORT_EVERY = 500


class Reference(NamedTuple):
    """Some utterances of a speaker."""

    members: tuple[int, ...]
    """Their numbers in the corpus."""
    text: str
    codes: Tensor
    """int64 (frames, codebooks)."""


class ReferenceShelf:
    """References by speaker."""

    def __init__(self, corpus: Corpus, references: Iterable[Reference]) -> None:
        self._by_speaker: dict[str, list[Reference]] = {}
        for reference in references:
            speaker = corpus.entries[reference.members[0]].speaker
            self._by_speaker.setdefault(speaker, []).append(reference)

    def has_other(self, speaker: str, number: int) -> bool:
        """Whether the speaker has a reference without utterance `number`."""
        return any(number not in reference.members for reference in self._by_speaker.get(speaker, ()))

    def draw(self, speaker: str, number: int, wanted_frames: int) -> Reference:
        """References without utterance `number`, joined to about `wanted_frames`: where none is as long, several.

        A speaker who said nothing else is given that utterance: validation has such, training leaves them out.
        """
        shelf = self._by_speaker[speaker]
        others = [reference for reference in shelf if number not in reference.members] or shelf
        nearest = min(others, key=lambda reference: abs(len(reference.codes) - wanted_frames))
        joined, rest = [nearest], [reference for reference in others if reference is not nearest]
        missing = wanted_frames - len(nearest.codes)
        for reference in rest:
            if len(reference.codes) <= missing:
                joined.append(reference)
                missing -= len(reference.codes)
        return _join(joined)


def open_references(
    corpus: Corpus, tokenizer: SpeechTokenizer, run: Path, *, per_speaker: int, seed: int, report: Callable[[str], None]
) -> ReferenceShelf:
    """The references of a run, which are made and saved at its start, so that a resumed run draws the same."""
    path = run / _FILE
    if not path.is_file():
        report("encoding references")
        _write(path, make_references(corpus, corpus.by_speaker(), tokenizer, per_speaker, seed, report))
    return ReferenceShelf(corpus, _read(path, corpus))


def make_references(
    corpus: Corpus,
    by_speaker: dict[str, list[int]],
    tokenizer: SpeechTokenizer,
    per_speaker: int,
    seed: int,
    report: Callable[[str], None] = lambda line: None,
) -> list[Reference]:
    """Encode up to `per_speaker` of each speaker's given utterances, each with a pause behind it."""
    found: list[Reference] = []

    def make(place: int, numbers: list[int]) -> list[Reference]:
        random = np.random.default_rng((seed, 0x4EF, place))
        chosen = list(map(int, random.permutation(numbers)[:per_speaker]))
        heard = [_heard(corpus, number, random) for number in chosen]
        codes = (one.cpu() for one in tokenizer.encode(heard))
        return [Reference((number,), _text_of(corpus, number), one) for number, one in zip(chosen, codes, strict=True)]

    num_wanted = sum(min(per_speaker, len(numbers)) for numbers in by_speaker.values())
    num_threads = torch.get_num_threads()
    # A speaker's references are too little work for several threads.
    with ThreadPoolExecutor(num_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for made in pool.map(make, itertools.count(), by_speaker.values()):
            before = len(found)
            found += made
            if len(found) // _REPORT_EVERY > before // _REPORT_EVERY:
                report(f"{len(found)} of {num_wanted} references")
    torch.set_num_threads(num_threads)
    return found


def _heard(corpus: Corpus, number: int, random: np.random.Generator) -> Tensor:
    """An utterance and a pause, sometimes over a channel: float32 (samples,)."""
    audio = corpus.utterance(number).audio.astype(np.float32) / np.float32(FULL_SCALE)
    pause = np.zeros(int(random.uniform(*_PAUSE_SECONDS) * SAMPLE_RATE_HZ), np.float32)
    return torch.from_numpy(sometimes_through_channel(np.concatenate([audio, pause]), random))


def _join(references: Sequence[Reference]) -> Reference:
    if len(references) == 1:
        return references[0]
    members = tuple(member for reference in references for member in reference.members)
    codes = torch.cat([reference.codes for reference in references])
    return Reference(members, " ".join(reference.text for reference in references), codes)


def _text_of(corpus: Corpus, number: int) -> str:
    return corpus.entries[number].text.strip()


def _write(path: Path, references: list[Reference]) -> None:
    temporary = path.with_suffix(".new")
    with temporary.open("wb") as file:
        np.savez_compressed(
            file,
            codes=torch.cat([reference.codes for reference in references]).numpy().astype(np.int16),
            num_frames=np.array([len(reference.codes) for reference in references]),
            members=np.array([reference.members for reference in references]),
        )
    temporary.replace(path)


def _read(path: Path, corpus: Corpus) -> list[Reference]:
    with np.load(path, allow_pickle=False) as kept:
        pieces = torch.from_numpy(kept["codes"].astype(np.int64)).split(kept["num_frames"].tolist())
        # A reference of runs from before was several utterances.
        members = [tuple(number for number in row if number >= 0) for row in kept["members"].tolist()]
    texts = (" ".join(_text_of(corpus, number) for number in one) for one in members)
    return [Reference(*found) for found in zip(members, texts, pieces, strict=True)]
