"""What the mark costs in quality: the same takes with and without it, before judges that know neither."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from backend.audio.resample import resample
from tests.benchmarks.report import line
from tests.benchmarks.voice_judges import JUDGE_SAMPLE_RATE_HZ, Recogniser, character_error
from tests.benchmarks.watermark_takes import RATE, PlannedTake, Sound, made, mark
from training.model.speaker_verifier import VERIFIER_SAMPLE_RATE, SpeakerVerifier, load_verifier

_WIDEBAND_HZ = 16_000
_NUM_DRAWS = 10_000


class Judged(BaseModel):
    """One sentence, without and with the mark.

    Attributes:
        characters_wrong: as heard by the recogniser; None where it was not asked, because it takes longest.
        likeness: to another take of the voice, without a mark.
        pesq: of the marked take against the other; None without the package.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    take: int
    voice: str
    characters_wrong: tuple[float, float] | None
    likeness: tuple[float, float] | None
    pesq: float | None


def judge(planned: Sequence[PlannedTake], num_recognised: int, takes: Path, results: Path) -> None:
    """Have each take judged alone, the first ones also by the recogniser.

    One line each is added to `results`, and none is judged again.
    """
    known = {one.take for one in read_judged(results)}
    recogniser, verifier = Recogniser(), load_verifier()
    last: dict[str, Sound] = {}
    with results.open("a", encoding="utf-8") as file:
        for number, (take, samples) in enumerate(made(planned, takes)):
            other, last[take.voice] = last.get(take.voice), samples
            if take.number not in known and other is not None:
                asked = recogniser if number < num_recognised else None
                file.write(_judge(take, samples, other, asked, verifier).model_dump_json() + "\n")
                file.flush()
            print(f"\rjudged: {number + 1} of {len(planned)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def _judge(
    take: PlannedTake, samples: Sound, other: Sound, recogniser: Recogniser | None, verifier: SpeakerVerifier | None
) -> Judged:
    pair = (samples, mark(samples, take.number))
    wrong = None
    if recogniser is not None:
        heard = [recogniser.transcribe(resample(one, RATE, JUDGE_SAMPLE_RATE_HZ)) for one in pair]
        wrong = (character_error([take.text], [heard[0]]), character_error([take.text], [heard[1]]))
    likeness = None
    if verifier is not None:
        voices = [verifier.embed(resample(one, RATE, VERIFIER_SAMPLE_RATE)) for one in (*pair, other)]
        likeness = (float(voices[0] @ voices[2]), float(voices[1] @ voices[2]))
    return Judged(
        take=take.number,
        voice=take.voice,
        characters_wrong=wrong,
        likeness=likeness,
        pesq=_pesq(*pair),
    )


def _pesq(clean: Sound, changed: Sound) -> float | None:
    """PESQ's opinion in wideband, at most 4.64; None where `pip install pesq` was not done or it hears no speech."""
    if importlib.util.find_spec("pesq") is None:
        return None
    pesq = importlib.import_module("pesq")
    narrow = [resample(one, RATE, _WIDEBAND_HZ) for one in (clean, changed)]
    try:
        return float(pesq.pesq(_WIDEBAND_HZ, *narrow, "wb"))
    except pesq.NoUtterancesError:
        return None


def read_judged(results: Path) -> list[Judged]:
    """What was judged so far."""
    if not results.exists():
        return []
    lines = results.read_text(encoding="utf-8").splitlines()
    return [Judged.model_validate_json(one) for one in lines if one.endswith("}")]


def quality_rows(judged: Sequence[Judged]) -> Iterator[str]:
    """One row per judge: the means, and the difference within the pairs with its bootstrap interval."""
    draw = np.random.default_rng(0)
    measured = {
        "characters wrong (pocketsphinx)": [one.characters_wrong for one in judged if one.characters_wrong is not None],
        "likeness to another take of the voice (GE2E)": [one.likeness for one in judged if one.likeness is not None],
    }
    for name, pairs in measured.items():
        if pairs:
            without, marked = np.array(pairs).T
            difference = marked - without
            means = draw.choice(difference, (_NUM_DRAWS, len(difference))).mean(axis=1)
            low, high = np.quantile(means, (0.025, 0.975))
            shown = f"{difference.mean():+.4f} ({low:+.4f} to {high:+.4f})"
            yield line(name, [f"{without.mean():.4f}", f"{marked.mean():.4f}", shown, str(len(difference))])


def pesq_line(judged: Sequence[Judged]) -> str:
    """PESQ of the marked takes."""
    scores = [one.pesq for one in judged if one.pesq is not None]
    if not scores:
        return "- PESQ: not measured (`pip install pesq`)"
    low, middle, high = np.quantile(scores, (0.05, 0.5, 0.95))
    return (
        f"- PESQ (wideband, at most 4.64) of {len(scores)} marked takes: {np.mean(scores):.2f} on average, median "
        f"{middle:.2f}, nine in ten between {low:.2f} and {high:.2f}, {min(scores):.2f} at worst"
    )
