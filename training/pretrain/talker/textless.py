"""Batches of voices of which no text is known, so that the talker hears more people than can be given it in English.

Its text channel says nothing; the speaker embedding says who speaks. Some examples go on with another utterance of the
same voice, which can be told from what was heard.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.example import TrainingExample, build_example, collate
from training.model.config import ModelConfig
from training.model.prompt.prompt import PromptHead, textless_prompt
from training.pretrain.codec.frame_codes import CodedCorpus
from training.pretrain.talker.batches import (
    PROMPT_TOKENS,
    BatchSource,
    SpeakerExcerpts,
    TalkerBatch,
    batch_of,
    is_overfull,
    partition,
    role_ids,
)
from training.pretrain.talker.job import TalkerJob

_CONTINUED_SHARE = 0.5
# Of the orders that passes visit batches in; 0 and 1 are those of the English ones.
_STREAM = 2


class TextlessSource:
    """An endless stream of batches with random access by step."""

    def __init__(self, coded: CodedCorpus, job: TalkerJob, config: ModelConfig) -> None:
        self._coded, self._job, self._config = coded, job, config
        self._speakers = SpeakerExcerpts(coded, config.speaker_encoder)
        self._prompt = textless_prompt(config, PromptHead(role_ids=role_ids()))
        self._batches = partition(coded.num_frames + PROMPT_TOKENS, job)

    def batch(self, step: int) -> TalkerBatch:
        """The batch of step `step`."""
        random = np.random.default_rng((self._job.seed, 0x7E87, step))
        chosen: list[TrainingExample] = []
        heard: list[NDArray[np.float32]] = []
        seconds, longest = self._speakers.seconds(random), 0
        for number in batch_of(self._batches, step, self._job.seed, _STREAM):
            example = self._example(number, random)
            longest = max(longest, len(example.labels_T))
            if chosen and is_overfull(longest, len(chosen) + 1, self._job):
                break
            chosen.append(example)
            heard.append(self._speakers.of(number, seconds, random))
        return TalkerBatch(collate(chosen), self._speakers.mel(heard), [[] for _ in chosen], is_paired=False)

    def _example(self, number: int, random: np.random.Generator) -> TrainingExample:
        codes = self._coded.codes(number)
        if random.random() < _CONTINUED_SHARE:
            codes = torch.cat([codes, self._coded.codes(self._speakers.another(number, random))])
        placeholder: Tensor = torch.zeros(self._config.talker.hidden_size)
        return build_example(self._config, self._prompt, codes, placeholder)


class MixedSource:
    """Batches of text read by voices, and a share of textless ones."""

    def __init__(self, read: BatchSource, textless: TextlessSource, job: TalkerJob) -> None:
        self._read, self._textless, self._job = read, textless, job

    def batch(self, step: int) -> TalkerBatch:
        """The batch of step `step`."""
        is_textless = np.random.default_rng((self._job.seed, 0x5A4E, step)).random() < self._job.textless_share
        return self._textless.batch(step) if is_textless else self._read.batch(step)
