"""Draws the talker's batches from the coded corpus: a step's batch depends on the seed and the step alone.

Utterances are divided once into batches of similar length, so that little of a batch is padding; every pass visits the
batches in another order. In a batch, either all utterances continue a reference or none does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.example import TrainingBatch, TrainingExample, build_example, collate
from training.model.config import ModelConfig, SpeakerEncoderConfig
from training.model.network.mel import log_mel
from training.model.prompt.language import AUTO_LANGUAGE
from training.model.prompt.prompt import Prompt, PromptHead, in_context_prompt, unconditional_prompt, x_vector_prompt
from training.pretrain.codec.frame_codes import CodedCorpus
from training.pretrain.corpus.channels import sometimes_through_channel
from training.pretrain.corpus.corpus import FULL_SCALE
from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ
from training.pretrain.talker.guidance import Span, spans_of
from training.pretrain.talker.job import LANGUAGE, TalkerJob
from training.pretrain.talker.references import Reference, ReferenceShelf
from training.pretrain.talker.text_tokenizer import special_token_ids

_ROLE_NEWLINE = ord("\n")
# Maximum of a prompt's tokens besides text and frames: role, language tag, speaker, begin and end.
PROMPT_TOKENS = 12
# Length of the other utterance's excerpt that the speaker encoder is given.
_REFERENCE_SECONDS = (1.5, 3.5)
_GAIN_DB = (-12.0, 6.0)
# From 1 to 32 s. References of a batch are about equally long, so that little of it is padding.
_WANTED_REFERENCE_FRAMES = (12, 400)
# Batches are divided by the mean length of references; so far may a batch exceed its positions.
_OVERFULL = 1.25


class TalkerBatch(NamedTuple):
    """Examples, and the speaker encoder's input: log-mel (rows, frames, bands)."""

    examples: TrainingBatch
    reference_mel: Tensor
    spans: list[list[Span]]
    """Per example: which frames speak which text."""
    is_paired: bool
    """Whether they continue a reference."""


class SpeakerExcerpts:
    """What the speaker encoder is given of each speaker: an excerpt of another utterance, over whatever line."""

    def __init__(self, coded: CodedCorpus, config: SpeakerEncoderConfig) -> None:
        self._corpus, self._config = coded.corpus, config
        self._utterances: dict[str, NDArray[np.int64]] = {
            speaker: np.array([number for number in numbers if number < len(coded)])
            for speaker, numbers in coded.corpus.by_speaker().items()
        }

    def seconds(self, random: np.random.Generator) -> float:
        """How long the excerpts of a batch are."""
        return float(random.uniform(*_REFERENCE_SECONDS))

    def another(self, number: int, random: np.random.Generator) -> int:
        """Another utterance of the same speaker, or the same one if there is no other."""
        choices = self._utterances[self._corpus.entries[number].speaker]
        others = choices[choices != number]
        return int(random.choice(others)) if len(others) else number

    def of(self, number: int, seconds: float, random: np.random.Generator) -> NDArray[np.float32]:
        """For an utterance: an excerpt at the speaker encoder's rate, repeated if too short, with a random gain."""
        audio = self._corpus.utterance(self.another(number, random)).audio
        wanted = int(seconds * SAMPLE_RATE_HZ)
        repeated = np.resize(audio, max(wanted, len(audio)))
        first = int(random.integers(len(repeated) - wanted + 1))
        piece = repeated[first : first + wanted].astype(np.float32) / np.float32(FULL_SCALE)
        piece = sometimes_through_channel(piece, random)
        piece *= np.float32(10 ** (random.uniform(*_GAIN_DB) / 20))
        resampled: NDArray[np.float32] = soxr.resample(piece, SAMPLE_RATE_HZ, self._config.sample_rate, quality="MQ")
        return resampled

    def mel(self, excerpts: Sequence[NDArray[np.float32]]) -> Tensor:
        """The speaker encoder's input (rows, frames, bands)."""
        return log_mel(torch.from_numpy(np.stack(excerpts)), self._config.sample_rate, self._config.mel_dim)


class BatchSource:
    """An endless stream of batches with random access by step."""

    def __init__(self, coded: CodedCorpus, shelf: ReferenceShelf, job: TalkerJob, config: ModelConfig) -> None:
        self._coded, self._shelf, self._job, self._config = coded, shelf, job, config
        self._role_ids = role_ids()
        self._num_frames = coded.num_frames
        self._text_ids = [list(entry.text.strip().encode()) for entry in coded.corpus.entries[: len(coded)]]
        self._speakers = SpeakerExcerpts(coded, config.speaker_encoder)
        self._single = partition(self._lengths(), job)
        self._paired = partition(self._lengths() + shelf.mean_tokens, job)

    @property
    def num_utterances(self) -> int:
        """Number of utterances to draw from."""
        return len(self._text_ids)

    def _lengths(self) -> NDArray[np.int64]:
        text = np.array([len(ids) for ids in self._text_ids])
        lengths: NDArray[np.int64] = self._num_frames + text + PROMPT_TOKENS
        return lengths

    def batch(self, step: int) -> TalkerBatch:
        """The batch of step `step`."""
        random = np.random.default_rng((self._job.seed, step))
        is_paired = random.random() < self._job.in_context_ratio
        batches = self._paired if is_paired else self._single
        return self.examples(batch_of(batches, step, self._job.seed, int(is_paired)), random, is_paired=is_paired)

    def examples(self, numbers: Sequence[int], random: np.random.Generator, *, is_paired: bool) -> TalkerBatch:
        """A batch of these utterances, each with another one by its speaker; `is_paired`: continuing a reference.

        Behind long references fewer of them have room.
        """
        chosen: list[TrainingExample] = []
        heard: list[NDArray[np.float32]] = []
        spans: list[list[Span]] = []
        longest = 0
        seconds = self._speakers.seconds(random)
        wanted_frames = int(random.integers(*_WANTED_REFERENCE_FRAMES))
        for number in numbers:
            speaker = self._coded.corpus.entries[number].speaker
            reference = self._shelf.draw(speaker, number, wanted_frames) if is_paired else None
            example, of_example = self._example(number, reference, random)
            longest = max(longest, len(example.labels_T))
            if chosen and is_overfull(longest, len(chosen) + 1, self._job):
                break
            chosen.append(example)
            spans.append(of_example)
            heard.append(self._speakers.of(number, seconds, random))
        return TalkerBatch(collate(chosen), self._speakers.mel(heard), spans, is_paired)

    def _example(
        self, number: int, reference: Reference | None, random: np.random.Generator
    ) -> tuple[TrainingExample, list[Span]]:
        explicit = random.random() < self._job.explicit_language_ratio
        head = PromptHead(role_ids=self._role_ids, language=LANGUAGE if explicit else AUTO_LANGUAGE)
        before = (0, 0)
        unconditional = self._job.unconditional_share
        if unconditional and random.random() < unconditional:
            return self._built(number, unconditional_prompt(self._config, self._role_ids)), []
        if reference is not None:
            reference_text_ids = list(reference.text.encode())
            before = (len(reference.codes), len(reference_text_ids))
            prompt = in_context_prompt(
                self._config,
                head,
                self._text_ids[number],
                reference_text_ids=reference_text_ids,
                reference_codes_FQ=reference.codes,
            )
        else:
            prompt = x_vector_prompt(self._config, head, self._text_ids[number])
        spans = spans_of(len(prompt.inputs), int(self._num_frames[number]), len(self._text_ids[number]), before)
        return self._built(number, prompt), spans

    def _built(self, number: int, prompt: Prompt) -> TrainingExample:
        # Replaced by the output of the speaker encoder, which is being trained.
        placeholder = torch.zeros(self._config.talker.hidden_size)
        return build_example(self._config, prompt, self._coded.codes(number), placeholder)


def role_ids() -> tuple[int, int, int]:
    """The tokens that open every prompt."""
    special = special_token_ids()
    return special["<|im_start|>"], special["assistant"], _ROLE_NEWLINE


def partition(lengths: NDArray[np.int64], job: TalkerJob) -> list[NDArray[np.int64]]:
    """All utterances once, in batches of similar length within the budget, drawn once per run."""
    random = np.random.default_rng((job.seed, 0xBA7C4))
    jittered = lengths * random.uniform(0.9, 1.1, len(lengths))
    batches: list[NDArray[np.int64]] = []
    current: list[int] = []
    longest = 0
    for number in np.argsort(jittered):
        longest = max(longest, int(lengths[number]))
        if current and longest * (len(current) + 1) > job.max_positions:
            batches.append(np.array(current))
            current, longest = [], int(lengths[number])
        current.append(int(number))
    return [*batches, np.array(current)]


def batch_of(batches: Sequence[NDArray[np.int64]], step: int, seed: int, stream: int) -> list[int]:
    """The utterances of a step: each pass visits every batch once, in an order of its own."""
    epoch, place = divmod(step, len(batches))
    order = np.random.default_rng((seed, epoch, stream)).permutation(len(batches))
    numbers: list[int] = batches[order[place]].tolist()
    return numbers


def is_overfull(longest: int, num_examples: int, job: TalkerJob) -> bool:
    """Whether so many examples padded to this length are too much for a step."""
    return longest * num_examples > _OVERFULL * job.max_positions
