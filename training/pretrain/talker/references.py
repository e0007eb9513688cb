"""References for in-context training: recordings of each speaker, encoded by the speech tokenizer.

In use a reference is several sentences with pauses, and its codes come from the encoder, unlike the talker's targets,
which come from the analysis. A talker that was trained only to continue single, analysed utterances hurries and mumbles
after a real reference.

run/references.npz    codes (frames of all, codebooks), num_frames (references,), members (references, 4), -1 for none
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.pretrain.codec.job import TokenizerJob
from training.pretrain.codec.network import TokenizerNetwork
from training.pretrain.codec.write_tokenizer import share_codebooks
from training.pretrain.corpus.channels import sometimes_through_channel
from training.pretrain.corpus.corpus import FULL_SCALE, Corpus
from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ
from training.pretrain.errors import PretrainError
from training.pretrain.run.training_state import has_state, read_job, read_networks

_FILE = "references.npz"
_MAX_MEMBERS = 4
_PAUSE_SECONDS = (0.1, 0.6)
# Longer ones take long to encode; several are joined.
_MAX_SECONDS = 15.0
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

    @property
    def mean_tokens(self) -> int:
        """Average number of text tokens and frames of a reference."""
        every = [len(one.text.encode()) + len(one.codes) for shelf in self._by_speaker.values() for one in shelf]
        return round(sum(every) / len(every))

    def draw(self, speaker: str, number: int, wanted_frames: int) -> Reference:
        """The reference nearest in length to `wanted_frames`, if possible without utterance `number`.

        One that contains it would teach the talker to copy. Several are joined where none is as long as wanted.
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
    """Draw and encode `per_speaker` references of each speaker from the given utterances."""
    found: list[Reference] = []

    def make(place: int, numbers: list[int]) -> list[Reference]:
        random = np.random.default_rng((seed, 0x4EF, place))
        return [_make(corpus, numbers, tokenizer, random) for _ in range(per_speaker)]

    num_threads = torch.get_num_threads()
    # One reference is too little work for several threads.
    with ThreadPoolExecutor(num_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for made in pool.map(make, itertools.count(), by_speaker.values()):
            before = len(found)
            found += made
            if len(found) // _REPORT_EVERY > before // _REPORT_EVERY:
                report(f"{len(found)} of {len(by_speaker) * per_speaker} references")
    torch.set_num_threads(num_threads)
    return found


def read_tokenizer(run: Path) -> SpeechTokenizer:
    """The speech tokenizer of a run's last saved state.

    Raises:
        PretrainError: the run has not saved a state yet.
    """
    if not has_state(run):
        raise PretrainError(f"{run} has no encoder yet. Wait until the tokenizer stage has saved its state.")
    job = TokenizerJob.model_validate(read_job(run))
    network = TokenizerNetwork(job)
    read_networks(run, job, {"network": network})
    share_codebooks(network.tokenizer)
    return network.tokenizer.eval()


def _make(corpus: Corpus, numbers: list[int], tokenizer: SpeechTokenizer, random: np.random.Generator) -> Reference:
    wanted = min(int(random.integers(1, _MAX_MEMBERS + 1)), len(numbers))
    members: list[int] = []
    sounds: list[NDArray[np.float32]] = []
    num_samples = 0
    for number in map(int, random.choice(numbers, wanted, replace=False)):
        audio = corpus.utterance(number).audio.astype(np.float32) / np.float32(FULL_SCALE)
        pause = np.zeros(int(random.uniform(*_PAUSE_SECONDS) * SAMPLE_RATE_HZ), np.float32)
        num_samples += len(pause) + len(audio)
        if members and num_samples > _MAX_SECONDS * SAMPLE_RATE_HZ:
            break
        sounds += [pause, audio] if members else [audio]
        members.append(number)
    heard = sometimes_through_channel(np.concatenate(sounds), random)
    codes = tokenizer.encode([torch.from_numpy(heard)])[0].cpu()
    return Reference(tuple(members), _text_of(corpus, members), codes)


def _join(references: Sequence[Reference]) -> Reference:
    if len(references) == 1:
        return references[0]
    members = tuple(member for reference in references for member in reference.members)
    codes = torch.cat([reference.codes for reference in references])
    return Reference(members, " ".join(reference.text for reference in references), codes)


def _text_of(corpus: Corpus, members: Iterable[int]) -> str:
    return " ".join(corpus.entries[number].text.strip() for number in members)


def _write(path: Path, references: list[Reference]) -> None:
    members = np.full((len(references), _MAX_MEMBERS), -1, np.int64)
    for row, reference in zip(members, references, strict=True):
        row[: len(reference.members)] = reference.members
    temporary = path.with_suffix(".new")
    with temporary.open("wb") as file:
        np.savez_compressed(
            file,
            codes=torch.cat([reference.codes for reference in references]).numpy().astype(np.int16),
            num_frames=np.array([len(reference.codes) for reference in references]),
            members=members,
        )
    temporary.replace(path)


def _read(path: Path, corpus: Corpus) -> list[Reference]:
    with np.load(path, allow_pickle=False) as kept:
        pieces = torch.from_numpy(kept["codes"].astype(np.int64)).split(kept["num_frames"].tolist())
        members = [tuple(number for number in row if number >= 0) for row in kept["members"].tolist()]
    return [Reference(one, _text_of(corpus, one), codes) for one, codes in zip(members, pieces, strict=True)]
