# Shape letters: F codec frame, Q codebook, S speaker, D talker width.
"""The clips of a run, read once and checked, with their text as ids and each speaker's one frozen embedding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from training.data.code_rows import (
    ROWS_FILE,
    CodeRow,
    DatasetCard,
    TrainingDataError,
    codes_of,
    read_card,
    read_code_rows,
)
from training.data.example import TrainingExample, build_example
from training.model.config import ModelConfig
from training.model.errors import PromptError
from training.model.prompt.prompt import PromptHead, in_context_prompt, language_tag, x_vector_prompt
from training.model.prompt.text_tokenizer import TextTokenizer


@dataclass(frozen=True, kw_only=True)
class TrainingClip:
    """One clip, ready to be laid out.

    Attributes:
        clip_id: names it in messages.
        text_ids: of its transcript.
        language: `auto` or a language of the model.
        codes_FQ: its frames.
        style: how it is said; empty where nothing was said about it.
        instruction_ids: the style as the model's instruction; empty for a model that follows none.
        speaker: who speaks, counted from 0.
    """

    clip_id: str
    text_ids: tuple[int, ...]
    language: str
    codes_FQ: Tensor
    style: str = ""
    instruction_ids: tuple[int, ...] = ()
    speaker: int = 0

    @property
    def num_frames(self) -> int:
        """Number of frames to be predicted."""
        return int(self.codes_FQ.shape[0])


@dataclass(frozen=True, kw_only=True)
class ClipUse:
    """One clip in one epoch: after the speaker embedding alone, or as the continuation of another clip."""

    clip: int
    reference: int | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingSet:
    """The clips to train on, and how they are laid out for one model.

    Attributes:
        config: of the model.
        role_ids: its three opening tokens.
        clips: in the dataset's order, without held-out clips; those of one speaker behind those of another.
        speakers_SD: each speaker's embedding, float32; frozen, and the same in all of their examples.
        num_too_long: number of clips left out because they do not fit.
    """

    config: ModelConfig
    role_ids: tuple[int, ...]
    clips: tuple[TrainingClip, ...]
    speakers_SD: Tensor
    num_too_long: int = 0

    @property
    def speaker_D(self) -> Tensor:  # noqa: N802 - a tensor, named with its shape
        """The first speaker's embedding, and the only one where there is one speaker."""
        return self.speakers_SD[0]

    @cached_property
    def clips_by_speaker(self) -> tuple[range, ...]:
        """Which clips are whose."""
        ends = [0]
        for speaker in range(len(self.speakers_SD)):
            ends.append(ends[-1] + sum(clip.speaker == speaker for clip in self.clips))
        return tuple(map(range, ends, ends[1:]))

    @property
    def frames_by_speaker(self) -> list[int]:
        """How much speech there is of each."""
        return [sum(self.clips[clip].num_frames for clip in clips) for clips in self.clips_by_speaker]

    @cached_property
    def has_styles(self) -> bool:
        """Whether any clip says how it is spoken."""
        return any(clip.style for clip in self.clips)

    @cached_property
    def peers(self) -> tuple[tuple[int, ...], ...]:
        """By clip, all clips of its speaker and style, itself included: another one would teach to ignore them."""
        alike: dict[tuple[int, str], list[int]] = {}
        for index, clip in enumerate(self.clips):
            alike.setdefault((clip.speaker, clip.style), []).append(index)
        groups = {key: tuple(found) for key, found in alike.items()}
        return tuple(groups[clip.speaker, clip.style] for clip in self.clips)

    @cached_property
    def num_frames(self) -> int:
        """Frames of one epoch."""
        return sum(clip.num_frames for clip in self.clips)

    def num_tokens(self, use: ClipUse) -> int:
        """Length of an example, computed without building it."""
        clip = self.clips[use.clip]
        length = len(clip.instruction_ids) + _num_head_tokens(self.config, clip.language)
        length += len(clip.text_ids) + 2 + clip.num_frames
        if use.reference is not None:
            reference = self.clips[use.reference]
            length += len(reference.text_ids) + reference.num_frames
        return length

    def example(self, use: ClipUse) -> TrainingExample:
        """Lay an example out as generation would see it."""
        clip = self.clips[use.clip]
        head = PromptHead(role_ids=self.role_ids, language=clip.language, instruction_ids=clip.instruction_ids)
        if use.reference is None:
            prompt = x_vector_prompt(self.config, head, clip.text_ids)
        else:
            reference = self.clips[use.reference]
            prompt = in_context_prompt(
                self.config,
                head,
                clip.text_ids,
                reference_text_ids=reference.text_ids,
                reference_codes_FQ=reference.codes_FQ,
            )
        return build_example(self.config, prompt, clip.codes_FQ, self.speakers_SD[clip.speaker])


def read_training_set(
    folder: Path,
    config: ModelConfig,
    text_tokenizer: TextTokenizer,
    *,
    max_tokens: int,
    speaker: Literal["reference", "mean"] = "reference",
    rows: Iterable[CodeRow] | None = None,
) -> tuple[DatasetCard, TrainingSet]:
    """Read one speaker's dataset for training.

    Args:
        folder: the dataset.
        config: of the model that will be trained.
        text_tokenizer: its text tokenizer.
        max_tokens: clips that are longer with their prompt are left out.
        speaker: which embedding represents the voice.
        rows: all rows of the dataset, in any order; read from its Parquet file when None.

    Raises:
        TrainingDataError: it is missing or damaged, was made for another model, or holds nothing to train on.
    """
    card = read_card(folder)
    source = read_code_rows(folder / ROWS_FILE) if rows is None else rows
    # Rows from a pipeline may arrive in any order, and what a seed selects depends on the order.
    ordered = sorted(source, key=lambda row: row.clip_id)
    if card.num_codebooks != config.talker.num_code_groups:
        raise TrainingDataError(
            f"The dataset {card.name} has {card.num_codebooks} codebooks per frame and the model "
            f"{config.talker.num_code_groups}. Build it again with this model."
        )
    trained_on = [row for row in ordered if not row.held_out]
    if not trained_on:
        held_out = f" ({len(ordered)} are held out)" if ordered else ""
        raise TrainingDataError(
            f"The dataset {card.name} has no clips to train on{held_out}. Accept or add some clips."
        )
    everything = TrainingSet(
        config=config,
        role_ids=tuple(text_tokenizer.role_ids),
        clips=tuple(_prepare(row, config, text_tokenizer) for row in trained_on),
        speakers_SD=_speaker_embedding(ordered, trained_on, card, speaker, config.talker.hidden_size).unsqueeze(0),
    )
    limit = min(max_tokens, config.talker.max_position_embeddings)
    fitting = [clip for i, clip in enumerate(everything.clips) if everything.num_tokens(ClipUse(clip=i)) <= limit]
    if not fitting:
        raise TrainingDataError(
            f"None of the {len(trained_on)} clips of the dataset {card.name} fits into {limit} tokens with its text. "
            "Raise max_clip_tokens, or cut the recordings into shorter clips."
        )
    return card, TrainingSet(
        config=config,
        role_ids=everything.role_ids,
        clips=tuple(fitting),
        speakers_SD=everything.speakers_SD,
        num_too_long=len(trained_on) - len(fitting),
    )


def join_speakers(parts: Sequence[TrainingSet]) -> TrainingSet:
    """One training set of several speakers, given the training set of each."""
    return TrainingSet(
        config=parts[0].config,
        role_ids=parts[0].role_ids,
        clips=tuple(replace(clip, speaker=number) for number, part in enumerate(parts) for clip in part.clips),
        speakers_SD=torch.cat([part.speakers_SD for part in parts]),
        num_too_long=sum(part.num_too_long for part in parts),
    )


def _prepare(row: CodeRow, config: ModelConfig, text_tokenizer: TextTokenizer) -> TrainingClip:
    codes_FQ = codes_of(row, config.talker.num_code_groups)
    if int(codes_FQ.min()) < 0 or int(codes_FQ.max()) >= config.code_predictor.vocab_size:
        raise TrainingDataError(
            f"Clip {row.clip_id} has codes beyond the model's {config.code_predictor.vocab_size}. "
            "Build the dataset again with this model."
        )
    try:
        text_ids = tuple(text_tokenizer.encode_text(row.text))
        instruction = row.style if config.follows_instructions else ""
        instruction_ids = tuple(text_tokenizer.encode_instruction(instruction))
        language_tag(config, row.language)
    except PromptError as error:
        raise TrainingDataError(f"Clip {row.clip_id} cannot be trained on: {error}") from error
    if not text_ids:
        raise TrainingDataError(f"Clip {row.clip_id} has no transcript. Write one, or reject the clip.")
    return TrainingClip(
        clip_id=row.clip_id,
        text_ids=text_ids,
        language=row.language,
        codes_FQ=codes_FQ,
        style=row.style,
        instruction_ids=instruction_ids,
    )


def _speaker_embedding(
    rows: list[CodeRow], trained_on: list[CodeRow], card: DatasetCard, speaker: str, width: int
) -> Tensor:
    """The run's frozen speaker embedding; float32, since rounded sums drift from one run to the next."""
    if speaker == "mean":
        chosen = trained_on
    else:
        chosen = [row for row in rows if row.clip_id == card.reference_clip_id]
        if not chosen:
            raise TrainingDataError(
                f"The reference clip {card.reference_clip_id} of the dataset {card.name} is not among its rows. "
                "Choose another reference."
            )
    for row in chosen:
        if len(row.speaker_embedding) != width:
            raise TrainingDataError(
                f"Clip {row.clip_id} has a speaker embedding of width {len(row.speaker_embedding)}, the model's is "
                f"{width}. Build the dataset again with this model."
            )
    stacked = torch.tensor([list(row.speaker_embedding) for row in chosen], dtype=torch.float32)
    if not bool(stacked.isfinite().all()):
        raise TrainingDataError(
            f"A speaker embedding of the dataset {card.name} is not finite. Build the dataset again."
        )
    return stacked.mean(dim=0)


def _num_head_tokens(config: ModelConfig, language: str) -> int:
    """Positions of role, language tag, speaker and tts_bos."""
    return 3 + len(language_tag(config, language)) + 1 + 1
