# Shape letters: F mel frame, M mel band, V verifier's direction.
"""Speech that sounds like more people than the corpus has, with what the verifier takes it for; made once per run.

run/heard-SEED-NUMBER/shard-00000.safetensors   spectra of utterances one behind the other, lengths, directions
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from training.model.config import SpeakerEncoderConfig
from training.model.network.mel import log_mel
from training.model.speaker_verifier import SpeakerVerifier
from training.pretrain.corpus.channels import through_channel
from training.pretrain.corpus.corpus import FULL_SCALE, OTHER_LANGUAGES, RECORDINGS, Corpus, has_part, open_corpus
from training.pretrain.corpus.timbre import Timbre
from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ
from training.pretrain.speaker.job import SpeakerJob

_SECONDS = (2.5, 6.0)
# Of the same voice: what the verifier takes it for depends on what is said, the less the more there is.
_KNOWN_BY_SECONDS = 9.0
# Wider than the corpus's own: what is beyond its speakers has to be learnt here.
_SLOWEST, _FASTEST = 0.82, 1.25
_LEVEL = 0.1
_PER_SHARD = 500


class Heard(NamedTuple):
    """One utterance."""

    mel_FM: Tensor
    """float16, as the speaker encoder hears it."""
    direction_V: Tensor
    """float32, by the verifier, of more speech than is heard, and without the line."""


class HeardVoices:
    """The altered utterances of a run."""

    def __init__(self, shards: list[dict[str, Tensor]]) -> None:
        self._heard = [
            Heard(mel_FM, direction_V)
            for shard in shards
            for mel_FM, direction_V in zip(
                shard["mels"].split(shard["lengths"].tolist()), shard["directions"], strict=True
            )
        ]

    def __len__(self) -> int:
        return len(self._heard)

    def __getitem__(self, number: int) -> Heard:
        return self._heard[number]

    def excerpts(self, numbers: list[int], num_frames: int, random: np.random.Generator) -> Tensor:
        """A random excerpt of each utterance, (B, `num_frames`, M) float32; short ones are repeated."""
        pieces = []
        for number in numbers:
            mel_FM = self._heard[number].mel_FM
            mel_FM = mel_FM.repeat(-(-num_frames // len(mel_FM)), 1)
            first = int(random.integers(len(mel_FM) - num_frames + 1))
            pieces.append(mel_FM[first : first + num_frames])
        return torch.stack(pieces).float()


class Alteration:
    """Draws speech from a corpus and alters it; an utterance depends on the seed and its number alone."""

    def __init__(self, folder: Path, job: SpeakerJob) -> None:
        self._job = job
        self._corpus = open_corpus(folder)
        self._recordings = open_corpus(folder, RECORDINGS) if has_part(folder, RECORDINGS) else None
        self._by_speaker = list(self._corpus.by_speaker().values())
        self._foreign = open_corpus(folder, OTHER_LANGUAGES) if has_part(folder, OTHER_LANGUAGES) else None
        self._by_foreign_speaker = list(self._foreign.by_speaker().values()) if self._foreign is not None else []

    def speech(self, number: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Utterance `number` at SAMPLE_RATE_HZ: what the encoder hears on whatever line, and all of that voice."""
        job, random = self._job, np.random.default_rng((self._job.seed, 0x5EA, number))
        voice = self._plain(random)
        if random.random() < job.timbre_share:
            timbre = Timbre.drawn(f"heard {job.seed} {number}").applied(voice)
            voice = timbre * np.float32(_LEVEL / max(float(np.sqrt(np.square(timbre).mean())), 1e-6))
        if random.random() < job.resampled_share:
            # Pace, pitch and resonances change together, as between a large and a small speaker.
            pace = np.exp(random.uniform(np.log(_SLOWEST), np.log(_FASTEST)))
            voice = soxr.resample(voice, SAMPLE_RATE_HZ * pace, SAMPLE_RATE_HZ, quality="MQ")
        voice = np.clip(voice, -1, 1).astype(np.float32)
        heard = voice[: int(random.uniform(*_SECONDS) * SAMPLE_RATE_HZ)]
        if random.random() < job.channel_share:
            heard = np.clip(through_channel(heard, random), -1, 1).astype(np.float32)
        return heard, voice

    def _plain(self, random: np.random.Generator) -> NDArray[np.float32]:
        """Some seconds of one speaker's utterances."""
        corpus, numbers = self._source(random)
        wanted = int(_KNOWN_BY_SECONDS * SAMPLE_RATE_HZ)
        pieces: list[NDArray[np.int16]] = []
        while sum(map(len, pieces)) < wanted:
            pieces.append(corpus.utterance(int(random.choice(numbers))).audio)
        joined = np.concatenate(pieces)
        first = int(random.integers(len(joined) - wanted + 1))
        return joined[first : first + wanted].astype(np.float32) / np.float32(FULL_SCALE)

    def _source(self, random: np.random.Generator) -> tuple[Corpus, list[int]]:
        if self._recordings is not None and random.random() < self._job.recorded_share:
            return self._recordings, list(range(len(self._recordings)))
        if self._foreign is not None and random.random() < self._job.foreign_share:
            return self._foreign, self._by_foreign_speaker[int(random.integers(len(self._by_foreign_speaker)))]
        return self._corpus, self._by_speaker[int(random.integers(len(self._by_speaker)))]


def open_heard_voices(
    corpus: Path,
    run: Path,
    job: SpeakerJob,
    config: SpeakerEncoderConfig,
    verifier: SpeakerVerifier,
    report: Callable[[str], None],
) -> HeardVoices:
    """The run's altered speech; what is missing of it is made now, which takes 20 minutes of one core."""
    alteration = Alteration(corpus, job)
    for path, numbers in _shards(run, job):
        if not path.is_file():
            _make_shard(path, numbers, alteration, config, verifier)
            report(f"{numbers.stop:,} of {job.num_utterances:,} altered utterances")
    return HeardVoices([load_file(path) for path, _ in _shards(run, job)])


def hear(samples: NDArray[np.float32], config: SpeakerEncoderConfig) -> Tensor:
    """The spectrum (F, M) of speech at SAMPLE_RATE_HZ, as the speaker encoder is given it."""
    resampled = soxr.resample(samples, SAMPLE_RATE_HZ, config.sample_rate, quality="MQ")
    return log_mel(torch.from_numpy(resampled.astype(np.float32))[None], config.sample_rate, config.mel_dim)[0]


def _shards(run: Path, job: SpeakerJob) -> Iterator[tuple[Path, range]]:
    # A run that was given up before its first step may have had others.
    folder = run / f"heard-{job.seed}-{job.num_utterances}"
    for shard, first in enumerate(range(0, job.num_utterances, _PER_SHARD)):
        path = folder / f"shard-{shard:05d}.safetensors"
        yield path, range(first, min(first + _PER_SHARD, job.num_utterances))


def _make_shard(
    path: Path, numbers: range, alteration: Alteration, config: SpeakerEncoderConfig, verifier: SpeakerVerifier
) -> None:
    def make(number: int) -> Heard:
        heard, voice = alteration.speech(number)
        return Heard(hear(heard, config).half(), torch.from_numpy(verifier.embed(voice)))

    num_threads = torch.get_num_threads()
    # One utterance is too little work for several threads.
    with ThreadPoolExecutor(num_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        heard = list(pool.map(make, numbers))
    torch.set_num_threads(num_threads)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    save_file(
        {
            "mels": torch.cat([one.mel_FM for one in heard]),
            "lengths": torch.tensor([len(one.mel_FM) for one in heard]),
            "directions": torch.stack([one.direction_V for one in heard]),
        },
        unfinished,
    )
    unfinished.replace(path)
