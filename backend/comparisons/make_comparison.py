"""Makes a comparison: each side speaks; the takes are brought to one loudness, measured, and given letters."""

from __future__ import annotations

import math
import secrets
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from backend.audio.loudness import normalise_loudness
from backend.audio.writing import write_wav
from backend.comparisons.comparison import LETTERS, ComparedTake, Comparison, Letter
from backend.comparisons.contender_voices import ContenderVoice
from backend.comparisons.contenders import Contender
from backend.comparisons.errors import ComparisonError
from backend.evaluation.take_scores import TakeMeasuring
from backend.provenance.signing import FileSigner
from backend.provenance.statement import SpeechStatement
from backend.serving.loaded_model import LoadedModel
from backend.serving.requests import SynthesisRequest
from backend.serving.speech.text_check import check_text
from training.model.generation.finish_reason import FinishReason
from training.model.seed import draw_seed

MAX_TEXT_LENGTH = 1_000
"""Characters: more than a minute of speech from each side, which is too long to compare by ear."""


@dataclass(frozen=True, kw_only=True)
class ComparisonOrder:
    """What is to be compared.

    Attributes:
        sides: two or three different ones.
        text: what all of them say.
        language: of the text.
        seed: of every take; None draws one.
        is_blind: assign the letters at random.
        is_measured: measure the takes before they are handed out; otherwise `Comparisons.measure` does it later.
    """

    sides: tuple[Contender, ...]
    text: str
    language: str = "auto"
    seed: int | None = None
    is_blind: bool = True
    is_measured: bool = True

    def check(self) -> None:
        """Refuse what cannot be compared. Raises EncoreError."""
        check_text(self.text)
        if len(self.text) > MAX_TEXT_LENGTH:
            raise ComparisonError(
                f"The text has {len(self.text)} characters; the limit is {MAX_TEXT_LENGTH}. Shorten it."
            )
        if not 2 <= len(self.sides) <= len(LETTERS) or len({side.key for side in self.sides}) < len(self.sides):
            raise ComparisonError("A comparison needs two or three different voices. Choose others.")


@dataclass(frozen=True, kw_only=True)
class ComparisonProgress:
    """Progress of a comparison; sides are counted from 1, in an order that reveals nothing about their letters."""

    number: int
    num_sides: int
    doing: Literal["loading", "speaking", "measuring"]
    seconds_spoken: float = 0.0


@dataclass(frozen=True, kw_only=True)
class FinishedComparison:
    """The comparison, and where each letter's sound is."""

    comparison: Comparison
    paths: dict[Letter, Path]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Spoken:
    side: Contender
    reference: Path | None
    samples: NDArray[np.float32]
    sample_rate: int
    finish_reason: FinishReason
    statement: SpeechStatement | None


def make_comparison(
    order: ComparisonOrder,
    *,
    find_voice: Callable[[Contender], ContenderVoice],
    synthesizer: LoadedModel,
    measuring: TakeMeasuring,
    place: Callable[[str], Path],
    signer: FileSigner | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Generator[ComparisonProgress | FinishedComparison]:
    """Yield progress, and the comparison last; there is none if it was cancelled.

    Args:
        order: what to compare.
        find_voice: finds the voice of a contender.
        synthesizer: speaks; its base model's speaker encoder measures.
        measuring: measures the takes.
        place: where a file of that name may be put.
        signer: signs the files; None leaves them with their comment tag.
        cancelled: asked before every frame.

    Raises:
        EncoreError: a side cannot speak, or the disk is full.
    """
    order.check()
    seed = draw_seed() if order.seed is None else order.seed
    shuffled = list(order.sides)
    if order.is_blind:
        secrets.SystemRandom().shuffle(shuffled)
    num_sides = len(shuffled)
    spoken: list[_Spoken] = []
    for number, side in enumerate(shuffled, 1):
        yield ComparisonProgress(number=number, num_sides=num_sides, doing="loading")
        found = find_voice(side)
        request = SynthesisRequest(
            voice=found.voice, mode=found.mode, text=order.text.strip(), language=order.language, seed=seed
        )
        chunks = []
        with closing(synthesizer.speak(request, cancelled=cancelled)) as stream:
            for chunk in stream:
                chunks.append(chunk)
                yield ComparisonProgress(
                    number=number, num_sides=num_sides, doing="speaking", seconds_spoken=stream.seconds
                )
        if stream.finish_reason is FinishReason.CANCELLED:
            return
        spoken.append(
            _Spoken(
                side=side,
                reference=found.reference,
                samples=np.concatenate(chunks) if chunks else np.zeros(0, np.float32),
                sample_rate=stream.sample_rate,
                finish_reason=stream.finish_reason,
                statement=stream.statement,
            )
        )
    if order.is_measured:
        yield ComparisonProgress(number=num_sides, num_sides=num_sides, doing="measuring")
    yield _finish(order, seed, spoken, synthesizer, measuring, place, signer)


def match_loudness(takes: Sequence[tuple[NDArray[np.float32], int]]) -> list[tuple[NDArray[np.float32], float]]:
    """The takes (samples,) at the same loudness, the highest at which none clips, with the gain of each in dB."""
    levelled = [normalise_loudness(samples, rate) for samples, rate in takes]
    reached = [one.loudness_lufs + one.gain_db for one in levelled if not math.isinf(one.loudness_lufs)]
    common = min(reached, default=0.0)
    matched = []
    for one in levelled:
        if math.isinf(one.loudness_lufs):
            matched.append((one.samples, 0.0))
            continue
        lowered_db = common - (one.loudness_lufs + one.gain_db)
        samples = (one.samples * 10.0 ** (lowered_db / 20.0)).astype(np.float32)
        matched.append((samples, one.gain_db + lowered_db))
    return matched


def _finish(
    order: ComparisonOrder,
    seed: int,
    spoken: Sequence[_Spoken],
    synthesizer: LoadedModel,
    measuring: TakeMeasuring,
    place: Callable[[str], Path],
    signer: FileSigner | None,
) -> FinishedComparison:
    matched = match_loudness([(one.samples, one.sample_rate) for one in spoken])
    takes, paths = [], {}
    for letter, one, (samples, gain_db) in zip(LETTERS, spoken, matched, strict=False):
        paths[letter] = place(f"comparison-{letter}.wav")
        statement = one.statement
        if statement is not None and order.is_blind:
            statement = statement.without_origin()
        write_wav(paths[letter], samples, one.sample_rate, "" if statement is None else statement.as_comment())
        if signer is not None:
            signer.sign_file(paths[letter], "wav", statement)
        scores = None
        if order.is_measured:
            scores = measuring.measure(
                one.samples,
                one.sample_rate,
                reference=one.reference,
                own=synthesizer.encoder,
                text=order.text,
                language=order.language,
            )
        takes.append(
            ComparedTake(
                letter=letter,
                side=one.side,
                seconds=len(samples) / one.sample_rate,
                finish_reason=one.finish_reason,
                gain_db=gain_db,
                scores=scores,
            )
        )
    comparison = Comparison(
        id=uuid.uuid4().hex,
        made_at=datetime.now(UTC),
        text=order.text.strip(),
        language=order.language,
        seed=seed,
        is_blind=order.is_blind,
        takes=tuple(takes),
    )
    return FinishedComparison(comparison=comparison, paths=paths)
