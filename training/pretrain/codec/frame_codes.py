"""The corpus as codes: a file per shard, made once by the analysis or by a trained encoder.

run/code-space.safetensors        components and codebooks
run/codes/PART/shard-00000.npy    (frames of all utterances of the shard, codebooks), int16
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from training.model.checkpoint.reading import find_weights, load_weights, read_speech_tokenizer_config
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.pretrain.codec import vector_quantizer_training as vq
from training.pretrain.codec.code_space import CodeSpace
from training.pretrain.codec.frame_features import Features, FrameFeatures
from training.pretrain.codec.job import NUM_CODEBOOKS, SAMPLES_PER_FRAME, TokenizerJob
from training.pretrain.corpus.corpus import FULL_SCALE, Corpus, open_corpus
from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ
from training.pretrain.errors import PretrainError
from training.tempo import at_tempo, length_at

CODE_SPACE = "code-space.safetensors"
_CODES = "codes"
_STORED = np.int16
_ENCODED_TOGETHER = 16


class CodedCorpus:
    """One part of a corpus with its codes; utterances are numbered as in the corpus."""

    def __init__(self, corpus: Corpus, folder: Path, *, pace: float = 1.0) -> None:
        """Open what was written at `pace`, see `encode`.

        Raises:
            PretrainError: no shard has codes yet, or they are of another corpus or pace.
        """
        self.corpus = corpus
        self._codes: list[NDArray[np.int16]] = []
        self._starts: list[tuple[int, int, int]] = []
        for shard, numbers in enumerate(corpus.shards()):
            path = shard_codes(folder, shard)
            if not path.is_file():
                break
            codes, start = np.load(path, mmap_mode="r"), 0
            self._codes.append(codes)
            for number in numbers:
                num_frames = frames_of(length_at(corpus.entries[number].num_samples, pace))
                self._starts.append((shard, start, num_frames))
                start += num_frames
            if start != len(codes):
                raise PretrainError(
                    f"{path} holds codes of another corpus or of speech at another pace: {len(codes)} frames instead "
                    f"of {start}. Choose another folder, or delete its codes."
                )
        if not self._starts:
            raise PretrainError(f"{folder} holds no codes. Run the tokenizer stage first.")

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def num_frames(self) -> NDArray[np.int64]:
        """Length of every utterance in codec frames."""
        return np.array([num_frames for _, _, num_frames in self._starts], dtype=np.int64)

    def codes(self, number: int) -> torch.Tensor:
        """Codes of an utterance, int64 (frames, codebooks)."""
        shard, start, num_frames = self._starts[number]
        return torch.from_numpy(self._codes[shard][start : start + num_frames].astype(np.int64))


def frames_of(num_samples: int) -> int:
    """Number of codec frames for a number of samples; the last one may be padded with silence."""
    return -(-num_samples // SAMPLES_PER_FRAME)


def open_codes(corpus: Path, run: Path, part: str, *, pace: float = 1.0) -> CodedCorpus:
    """A part of the corpus with the codes that a run made, at the pace that it was written at.

    Raises:
        PretrainError: no shard of it has codes yet, or they are of another corpus or pace.
    """
    return CodedCorpus(open_corpus(corpus, part), run / _CODES / part, pace=pace)


def read_code_space(run: Path, job: TokenizerJob) -> CodeSpace:
    """The codebooks of a tokenizer's run.

    Raises:
        PretrainError: it has none yet.
    """
    path = run / CODE_SPACE
    if not path.is_file():
        raise PretrainError(f"{run} holds no codebooks yet. Run the tokenizer stage first.")
    space = CodeSpace(NUM_CODEBOOKS, job.size.codebook_size, job.size.codebook_width)
    space.load(path)
    return space


def analyse(
    corpus: Path,
    run: Path,
    job: TokenizerJob,
    parts: tuple[str, ...],
    report: Callable[[str], None],
    *,
    start: Path | None = None,
    device: torch.device | None = None,
) -> CodeSpace:
    """Find the codebooks unless they exist, and write the codes of every shard without codes.

    A run that starts from a `speech_tokenizer` folder keeps its codebooks, so that codes keep their meaning.
    """
    run.mkdir(parents=True, exist_ok=True)
    measure = FrameFeatures(SAMPLE_RATE_HZ).to(device)
    if not (run / CODE_SPACE).is_file():
        report("finding the codebooks" if start is None else f"finding the analysis behind the codes of {start}")
        found = (
            _fit(open_corpus(corpus), measure, job)
            if start is None
            else _recover(open_corpus(corpus), measure, start, job)
        )
        found.save(run / CODE_SPACE)
    space = read_code_space(run, job).to(device)
    for part in parts:
        utterances = open_corpus(corpus, part)
        shards = utterances.shards()
        for shard, numbers in enumerate(shards):
            path = shard_codes(run / _CODES / part, shard)
            if path.is_file():
                continue
            write_codes(path, [space.encode(measure(samples_of(utterances, number).to(device))) for number in numbers])
            report(f"{part}: codes of shard {shard + 1} of {len(shards)}")
    return space.cpu()


def encode(
    corpus: Path,
    run: Path,
    tokenizer: SpeechTokenizer,
    parts: tuple[str, ...],
    report: Callable[[str], None],
    *,
    pace: float = 1.0,
) -> None:
    """Write the codes of every shard without codes, by the encoder of `tokenizer`; below a pace of 1, slower."""
    for part in parts:
        utterances = open_corpus(corpus, part)
        shards = utterances.shards()
        for shard, numbers in enumerate(shards):
            path = shard_codes(run / _CODES / part, shard)
            if path.is_file():
                continue
            write_codes(path, codes_of(utterances, numbers, tokenizer, pace=pace))
            report(f"{part}: encoded shard {shard + 1} of {len(shards)}")


def codes_of(
    corpus: Corpus, numbers: Sequence[int], tokenizer: SpeechTokenizer, *, pace: float = 1.0
) -> list[torch.Tensor]:
    """The codes of utterances, each int64 (frames, codebooks) on the CPU, by the encoder of `tokenizer`."""
    found: dict[int, torch.Tensor] = {}
    by_length = sorted(numbers, key=lambda number: corpus.entries[number].num_samples)
    for start in range(0, len(by_length), _ENCODED_TOGETHER):
        batch = by_length[start : start + _ENCODED_TOGETHER]
        speech = (samples_of(corpus, number).numpy() for number in batch)
        codes = tokenizer.encode([torch.from_numpy(at_tempo(samples, pace, SAMPLE_RATE_HZ)) for samples in speech])
        found.update(zip(batch, (one.cpu() for one in codes), strict=True))
    return [found[number] for number in numbers]


def samples_of(corpus: Corpus, number: int) -> torch.Tensor:
    """An utterance as float32 in [-1, 1]."""
    return torch.from_numpy(corpus.utterance(number).audio.astype(np.float32) / np.float32(FULL_SCALE))


def _fit(corpus: Corpus, measure: FrameFeatures, job: TokenizerJob) -> CodeSpace:
    """Fit the codebooks to utterances drawn evenly over the corpus."""
    random = np.random.default_rng(job.seed)
    numbers = random.permutation(len(corpus))[: job.num_fitted_utterances]
    device = measure.get_buffer("bank").device
    found = [measure(samples_of(corpus, int(number)).to(device)) for number in np.sort(numbers)]
    features = Features(torch.cat([one.content for one in found]), torch.cat([one.sound for one in found]))
    return CodeSpace.fit(
        features,
        num_codebooks=NUM_CODEBOOKS,
        codebook_size=job.size.codebook_size,
        width=job.size.codebook_width,
        seed=job.seed,
    )


@torch.no_grad()
def _recover(corpus: Corpus, measure: FrameFeatures, start: Path, job: TokenizerJob) -> CodeSpace:
    """The analysis that a tokenizer's encoder imitates, from its vectors for part of the corpus.

    Raises:
        PretrainError: the codebooks have other sizes than the run's.
    """
    tokenizer = SpeechTokenizer(read_speech_tokenizer_config(start.parent))
    load_weights(tokenizer, find_weights(start), "", dtype=torch.float32, device="cpu")
    num_entries = vq.codebooks_of(tokenizer.encoder.quantizer.semantic_residual_vector_quantizer)[0].embed_sum.shape[0]
    if num_entries != job.size.codebook_size:
        raise PretrainError(
            f"The codebooks of {start} have {num_entries} entries and are kept; the run is to have "
            f"{job.size.codebook_size}. Train with --codebook-size {num_entries}."
        )
    random = np.random.default_rng(job.seed)
    numbers = random.permutation(len(corpus))[: max(1, job.num_fitted_utterances // 20)]
    features, vectors = [], []
    for number in np.sort(numbers):
        samples = samples_of(corpus, int(number))
        features.append(Features(*(part.cpu() for part in measure(samples.to(measure.get_buffer("bank").device)))))
        vectors.append(vq.vectors_of(tokenizer.encoder.quantizer, tokenizer.encoder.latents(samples.unsqueeze(0))))
    content = torch.cat([one.content for one in features]), torch.cat([one[0][0] for one in vectors])
    sound = torch.cat([one.sound for one in features]), torch.cat([one[1][0] for one in vectors])
    return CodeSpace.recover(content, sound, tokenizer.encoder.quantizer)


def shard_codes(folder: Path, shard: int) -> Path:
    """The file of a shard's codes."""
    return folder / f"shard-{shard:05d}.npy"


def write_codes(path: Path, codes: list[torch.Tensor]) -> None:
    """Write the codes of a shard's utterances, each (frames, codebooks), atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    with temporary.open("wb") as file:
        np.save(file, torch.cat(codes).cpu().numpy().astype(_STORED))
    temporary.replace(path)
