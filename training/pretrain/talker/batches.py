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
from training.model.config import ModelConfig
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
_PROMPT_TOKENS = 12
# Length of the other utterance's excerpt that the speaker encoder is given.
_REFERENCE_SECONDS = (1.5, 3.5)
_GAIN_DB = (-12.0, 6.0)
# From 1 to 32 s. References of a batch are about equally long, so that little of it is padding.
_WANTED_REFERENCE_FRAMES = (12, 400)
# Batches are divided by the mean length of references, found on so many; so far may a batch exceed its positions.
_NUM_MEASURED = 500
_OVERFULL = 1.25


class TalkerBatch(NamedTuple):
    """Examples, and the speaker encoder's input: log-mel (rows, frames, bands)."""

    examples: TrainingBatch
    reference_mel: Tensor
    spans: list[list[Span]]
    """Per example: which frames speak which text."""
    is_paired: bool
    """Whether they continue a reference."""


class BatchSource:
    """An endless stream of batches with random access by step."""

    def __init__(self, coded: CodedCorpus, shelf: ReferenceShelf, job: TalkerJob, config: ModelConfig) -> None:
        self._coded, self._shelf, self._job, self._config = coded, shelf, job, config
        special = special_token_ids()
        self._role_ids = (special["<|im_start|>"], special["assistant"], _ROLE_NEWLINE)
        self._num_frames = coded.num_frames
        corpus = coded.corpus
        self._text_ids = [list(entry.text.strip().encode()) for entry in corpus.entries[: len(coded)]]
        self._others: dict[str, NDArray[np.int64]] = {
            speaker: np.array([number for number in numbers if number < len(coded)])
            for speaker, numbers in corpus.by_speaker().items()
        }
        self._single = self._partition(self._lengths(), np.arange(len(coded)))
        entries = enumerate(corpus.entries[: len(coded)])
        continuing = [number for number, entry in entries if shelf.has_other(entry.speaker, number)]
        # Of a corpus where everyone says one thing: copies, or nothing at all.
        numbers = np.array(continuing) if continuing else np.arange(len(coded))
        self._paired = self._partition(self._lengths() + self._mean_reference_tokens(numbers), numbers)

    @property
    def num_utterances(self) -> int:
        """Number of utterances to draw from."""
        return len(self._text_ids)

    def _lengths(self) -> NDArray[np.int64]:
        text = np.array([len(ids) for ids in self._text_ids])
        lengths: NDArray[np.int64] = self._num_frames + text + _PROMPT_TOKENS
        return lengths

    def _mean_reference_tokens(self, numbers: NDArray[np.int64]) -> int:
        """Average number of text tokens and frames of what these utterances continue."""
        random = np.random.default_rng((self._job.seed, 0x3EA7))
        measured = random.permutation(numbers)[:_NUM_MEASURED]
        drawn = [self._reference_of(int(number), _wanted_frames(random)) for number in measured]
        return round(sum(len(one.text.encode()) + len(one.codes) for one in drawn) / len(drawn))

    def _reference_of(self, number: int, wanted_frames: int) -> Reference:
        return self._shelf.draw(self._coded.corpus.entries[number].speaker, number, wanted_frames)

    def _partition(self, lengths: NDArray[np.int64], numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """These utterances once, in batches of similar length within the budget, drawn once per run."""
        random = np.random.default_rng((self._job.seed, 0xBA7C4))
        jittered = lengths * random.uniform(0.9, 1.1, len(lengths))
        batches: list[NDArray[np.int64]] = []
        current: list[int] = []
        longest = 0
        for number in numbers[np.argsort(jittered[numbers])]:
            longest = max(longest, int(lengths[number]))
            if current and longest * (len(current) + 1) > self._job.max_positions:
                batches.append(np.array(current))
                current, longest = [], int(lengths[number])
            current.append(int(number))
        return [*batches, np.array(current)]

    def batch(self, step: int) -> TalkerBatch:
        """The batch of step `step`."""
        random = np.random.default_rng((self._job.seed, step))
        is_paired = random.random() < self._job.in_context_ratio
        batches = self._paired if is_paired else self._single
        # Each pass visits every batch once, in an order of its own.
        epoch, place = divmod(step, len(batches))
        order = np.random.default_rng((self._job.seed, epoch, int(is_paired))).permutation(len(batches))
        return self.examples(batches[order[place]].tolist(), random, is_paired=is_paired)

    def examples(self, numbers: Sequence[int], random: np.random.Generator, *, is_paired: bool) -> TalkerBatch:
        """A batch of these utterances, each with another one by its speaker; `is_paired`: continuing a reference.

        Behind long references fewer of them have room.
        """
        chosen: list[TrainingExample] = []
        heard: list[NDArray[np.float32]] = []
        spans: list[list[Span]] = []
        longest = 0
        seconds = float(random.uniform(*_REFERENCE_SECONDS))
        wanted_frames = _wanted_frames(random)
        for number in numbers:
            reference = self._reference_of(number, wanted_frames) if is_paired else None
            example, of_example = self._example(number, reference, random)
            longest = max(longest, len(example.labels_T))
            if chosen and longest * (len(chosen) + 1) > _OVERFULL * self._job.max_positions:
                break
            chosen.append(example)
            spans.append(of_example)
            heard.append(self._heard(self._another(number, random), seconds, random))
        mel = log_mel(
            torch.from_numpy(np.stack(heard)),
            self._config.speaker_encoder.sample_rate,
            self._config.speaker_encoder.mel_dim,
        )
        return TalkerBatch(collate(chosen), mel, spans, is_paired)

    def _another(self, number: int, random: np.random.Generator) -> int:
        """Another utterance of the same speaker, or the same one if there is no other."""
        choices = self._others[self._coded.corpus.entries[number].speaker]
        others = choices[choices != number]
        return int(random.choice(others)) if len(others) else number

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

    def _heard(self, number: int, seconds: float, random: np.random.Generator) -> NDArray[np.float32]:
        """An excerpt of an utterance at the speaker encoder's rate, repeated if too short, with a random gain."""
        audio = self._coded.corpus.utterance(number).audio
        wanted = int(seconds * SAMPLE_RATE_HZ)
        repeated = np.resize(audio, max(wanted, len(audio)))
        first = int(random.integers(len(repeated) - wanted + 1))
        piece = repeated[first : first + wanted].astype(np.float32) / np.float32(FULL_SCALE)
        piece = sometimes_through_channel(piece, random)
        piece *= np.float32(10 ** (random.uniform(*_GAIN_DB) / 20))
        resampled: NDArray[np.float32] = soxr.resample(
            piece, SAMPLE_RATE_HZ, self._config.speaker_encoder.sample_rate, quality="MQ"
        )
        return resampled


def _wanted_frames(random: np.random.Generator) -> int:
    return int(random.integers(*_WANTED_REFERENCE_FRAMES))
