"""What is spoken to evaluate checkpoints: the same sentences, seeds and reference for all, the base model included."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from backend.evaluation.errors import EvaluationError
from backend.voices.styles import MAX_STYLES, StyleClip
from training.data.code_rows import AUDIO_FOLDER, CodeRow, DatasetCard
from training.model.project import PROJECT_FOLDER
from training.model.prompt.length import FIXED_FRAMES, FRAMES_PER_SECOND, expected_seconds, frame_cap

STANDARD_SENTENCES = PROJECT_FOLDER / "assets" / "evaluation" / "sentences.txt"
"""English; other languages are evaluated on what the person said."""

_MAX_REFERENCE_CLIPS = 8
# As for the reference of a dataset: shorter ones say little, and longer ones leave less room to speak.
_MIN_STYLE_SECONDS, _MAX_STYLE_SECONDS = 5.0, 10.0
# A share of foreign letters above this means that English sentences would test another language.
_MAX_FOREIGN_LETTERS = 0.1


class EvaluatedSentence(BaseModel):
    """One sentence to speak."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str
    held_out: bool
    seed: int
    expected_seconds: float = Field(gt=0)


class EvaluationPlan(BaseModel):
    """Everything an evaluation needs besides the checkpoint; travels to another machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_model: Path
    """Folder of the model the run starts from; its speaker encoder listens to all takes."""
    language: str
    sentences: tuple[EvaluatedSentence, ...] = Field(min_length=1)
    speaker: tuple[float, ...]
    """The embedding that takes are spoken with, and that the run trains with."""
    target: tuple[float, ...]
    """What takes should sound like to the model's own encoder: the middle of the person's clips."""
    clips: tuple[Path, ...]
    """Recordings that an independent verifier compares with, and that listeners hear; those that exist."""
    clip_texts: tuple[str, ...] = ()
    """What each of them says; none in plans of earlier versions."""
    reference_clip: Path
    reference_text: str
    voice: str = ""
    """Who speaks, where the run teaches several speakers."""
    more_speakers: tuple[EvaluationPlan, ...] = ()
    """What the others speak; on the first one's plan only."""
    styles: tuple[StyleClip, ...] = ()
    """How the voice can be told to speak, each with the clip that its takes will continue."""

    @property
    def speakers(self) -> tuple[EvaluationPlan, ...]:
        """A plan for each speaker of the run, this one first."""
        return (self, *self.more_speakers)

    @property
    def embeddings(self) -> tuple[tuple[float, ...], ...]:
        """Of all speakers, in the order of the job's."""
        return tuple(plan.speaker for plan in self.speakers)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a plan. Raises EvaluationError."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise EvaluationError(f"{path} cannot be read, so nothing can be evaluated. Start a new run.") from error


def plan_evaluation(
    dataset: Path,
    card: DatasetCard,
    rows: Sequence[CodeRow],
    base_model: Path,
    *,
    speaker: Sequence[float] | None = None,
    num_held_out: int,
    num_standard: int,
    seed: int,
    voice: str = "",
    follows_instructions: bool = False,
) -> EvaluationPlan:
    """Choose sentences and references from a dataset.

    Args:
        dataset: its folder.
        card: its description.
        rows: all of its clips, one or more.
        base_model: the checkpoint that the run starts from.
        speaker: the embedding that the run trains with; the reference clip's when None.
        num_held_out: sentences that the person said and that are not trained on.
        num_standard: sentences that are the same for every run.
        seed: decides the takes' seeds.
        voice: who speaks, where there are several speakers.
        follows_instructions: whether a style is the checkpoint's instruction, and continues no clip.
    """
    held_out = [row for row in rows if row.held_out]
    own = sorted(held_out or rows, key=lambda row: row.clip_id)
    frames_per_cap = _pace(rows)
    # Without a held-out clip something has to be said that the person said; scores then flatter the checkpoint alike.
    texts = [(row.text, bool(held_out), row.seconds) for row in own[:num_held_out]]
    if _is_english(card.language, rows) or not texts:
        standard = _standard_sentences(num_standard)
        texts += [(text, False, expected_seconds(text, card.language, frames_per_cap)) for text in standard]
    reference = next((row for row in rows if row.clip_id == card.reference_clip_id), rows[0])
    clips = [(dataset / AUDIO_FOLDER / f"{row.clip_id}.wav", row.text) for row in own[:_MAX_REFERENCE_CLIPS]]
    clips = [(clip, text) for clip, text in clips if clip.is_file()]
    return EvaluationPlan(
        base_model=base_model,
        language=card.language,
        sentences=tuple(
            EvaluatedSentence(text=text, held_out=own, seed=_seed_of(seed, text), expected_seconds=max(seconds, 0.1))
            for text, own, seconds in texts
        ),
        speaker=tuple(reference.speaker_embedding if speaker is None else speaker),
        target=_middle(own),
        clips=tuple(clip for clip, _ in clips),
        clip_texts=tuple(text for _, text in clips),
        reference_clip=dataset / AUDIO_FOLDER / f"{reference.clip_id}.wav",
        reference_text=reference.text,
        voice=voice,
        styles=_style_clips(dataset, rows, follows_instructions=follows_instructions),
    )


def _style_clips(dataset: Path, rows: Sequence[CodeRow], *, follows_instructions: bool) -> tuple[StyleClip, ...]:
    """For each style the clip to continue: one that is trained on, of 5 to 10 s, near the middle of its style."""
    by_style: dict[str, list[CodeRow]] = {}
    for row in rows:
        if row.style:
            by_style.setdefault(row.style, []).append(row)
    if follows_instructions:
        return tuple(StyleClip(name=style) for style in sorted(by_style)[:MAX_STYLES])
    chosen = {style: _style_reference(found) for style, found in sorted(by_style.items())[:MAX_STYLES]}
    return tuple(
        StyleClip(name=style, clip=dataset / AUDIO_FOLDER / f"{row.clip_id}.wav", text=row.text)
        for style, row in chosen.items()
    )


def _style_reference(rows: Sequence[CodeRow]) -> CodeRow:
    middle = np.array(_middle(rows))

    def demerits(row: CodeRow) -> tuple[bool, float, float, str]:
        """The disadvantages of a clip, the most important first."""
        outside = max(_MIN_STYLE_SECONDS - row.seconds, row.seconds - _MAX_STYLE_SECONDS, 0.0)
        vector = np.array(row.speaker_embedding, dtype=np.float64)
        nearness = float(vector @ middle / max(np.linalg.norm(vector), 1e-9))
        return row.held_out, outside, -nearness, row.clip_id

    return min(rows, key=demerits)


def _middle(rows: Sequence[CodeRow]) -> tuple[float, ...]:
    """Mean direction of the clips' embeddings."""
    vectors = np.array([row.speaker_embedding for row in rows], dtype=np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return tuple(float(value) for value in (vectors / np.maximum(lengths, 1e-9)).mean(axis=0))


def _pace(rows: Sequence[CodeRow]) -> float:
    """Frames this person takes for each frame that a text may take at most."""
    spoken = sum(row.seconds for row in rows) * FRAMES_PER_SECOND
    allowed = sum(frame_cap(row.text, row.language) - FIXED_FRAMES for row in rows)
    return spoken / max(allowed, 1)


def _standard_sentences(count: int) -> list[str]:
    lines = STANDARD_SENTENCES.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip()][:count]


def _is_english(language: str, rows: Sequence[CodeRow]) -> bool:
    if language.lower() not in ("auto", "english"):
        return False
    letters = [char for row in rows for char in row.text if unicodedata.category(char).startswith("L")]
    return sum(not char.isascii() for char in letters) <= _MAX_FOREIGN_LETTERS * len(letters)


def _seed_of(seed: int, text: str) -> int:
    """A seed for each sentence, the same in every run with the same seed."""
    return int.from_bytes(hashlib.sha256(f"{seed} {text}".encode()).digest()[:4], "big") >> 1
