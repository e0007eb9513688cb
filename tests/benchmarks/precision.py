# Shape letters: V vocabulary.
"""What a precision costs on a network that was trained: logits and speech beside float32.

    python -m tests.benchmarks.precision --model mini --output tests/benchmarks/results/DATE-precision-mini.md

Float32 speaks sentences in cloned voices. Each other precision is then made to say the same codes, so that its logits
can be compared one by one; and it speaks the sentences by itself, with the same seeds, for judges that had no part in
making the network.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backend.voices.cloning import clone_voice
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.report import line
from tests.benchmarks.voice import SENTENCES, at_rate
from tests.benchmarks.voice_judges import JUDGE_SAMPLE_RATE_HZ, Recogniser, character_error
from tests.benchmarks.voice_sources import Source, seen_sources
from tests.single_take import Synthesizer
from training.model.generation import frame_loop
from training.model.generation.take_request import TakeRequest, VoicePrompt
from training.model.hub.hub import resolve_model
from training.model.speaker_verifier import SpeakerVerifier, load_verifier
from training.model.voice_model import VoiceModel

BASELINE = "fp32"
NUM_RESAMPLES = 10_000

HOW_TO_READ = """\
Divergence: Kullback-Leibler, in thousandths of a nat, of each precision's distribution from float32's for the same next
code after the same codes, at temperature 1; and how often both find the same code likeliest. Judges: character errors
of pocketsphinx over all sentences, and similarity to the speaker's profile by GE2E; in brackets the difference from
float32 in the same sentences with the same seeds, and the 95 % interval of that difference, sentences resampled."""


@dataclass
class Forced:
    """Logits and codes of one take, in the order they were drawn; codes that are given are drawn again."""

    codes: list[Tensor] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    given: Sequence[Tensor] = ()

    def draw(self, logits_BV: Tensor, uniform_B: Tensor, settings: Any) -> Tensor:
        """Stand in for `sampling.draw`."""
        self.logits.append(logits_BV[0].double())
        number = len(self.codes)
        code_B = self.given[number] if number < len(self.given) else _draw(logits_BV, uniform_B, settings)
        self.codes.append(code_B)
        return code_B


_draw = frame_loop.draw


@dataclass(frozen=True)
class Spoken:
    """What judges found in one sentence, and what was drawn on the way."""

    text: str
    heard: str
    similarity: float
    drawn: Forced


@contextmanager
def drawn_by(forced: Forced) -> Iterator[None]:
    """Have the frame loop draw by it."""
    frame_loop.draw = forced.draw
    try:
        yield
    finally:
        frame_loop.draw = _draw


class Speaker:
    """One precision of a checkpoint, and the judges."""

    def __init__(self, folder: Path, precision: Any, verifier: SpeakerVerifier) -> None:
        self.model = VoiceModel.load(folder, precision=precision, device="cpu")
        self.synthesizer = Synthesizer(self.model)
        self._recogniser, self._verifier = Recogniser(), verifier

    def speak(self, text: str, voice: VoicePrompt, source: Source, seed: int) -> Spoken:
        """Say a sentence freely and have it judged."""
        drawn = Forced()
        with drawn_by(drawn):
            take = self.synthesizer.speak(TakeRequest(text=text, voice=voice, seed=seed))
        sound = at_rate(take.waveform, take.sample_rate, JUDGE_SAMPLE_RATE_HZ)
        similarity = float(self._verifier.embed(sound) @ source.profile)
        print(f"\r{self.model.precision}: {seed + 1}", end="", file=sys.stderr, flush=True)
        return Spoken(text, self._recogniser.transcribe(sound), similarity, drawn)

    def repeat(self, text: str, voice: VoicePrompt, seed: int, codes: Sequence[Tensor]) -> Forced:
        """Say the given codes."""
        drawn = Forced(given=codes)
        with drawn_by(drawn):
            self.synthesizer.speak(TakeRequest(text=text, voice=voice, seed=seed))
        return drawn


def main() -> None:
    """Measure, print the report and write it to a file if asked to."""
    options = parse_options()
    torch.set_num_threads(1)
    sentences = [text for text in SENTENCES.read_text(encoding="utf-8").split("\n") if text.strip()]
    sentences = sentences[: options.sentences] * options.takes
    verifier, folder = load_verifier(), resolve_model(options.model)
    sources = seen_sources(verifier)
    baseline = Speaker(folder, BASELINE, verifier)
    voices = [clone_voice(baseline.model, source.recording) for source in sources]
    said = [
        (text, voices[number % len(sources)], sources[number % len(sources)], number)
        for number, text in enumerate(sentences)
    ]
    spoken = {BASELINE: [baseline.speak(*entry) for entry in said]}
    agreement: dict[str, list[tuple[float, float]]] = {}
    for precision in options.precision:
        speaker = Speaker(folder, precision, verifier)
        repeated = [
            speaker.repeat(text, voice, seed, one.drawn.codes)
            for (text, voice, _, seed), one in zip(said, spoken[BASELINE], strict=True)
        ]
        num_codebooks = speaker.model.config.talker.num_code_groups
        agreement[precision] = compare([one.drawn for one in spoken[BASELINE]], repeated, num_codebooks)
        spoken[precision] = [speaker.speak(*entry) for entry in said]
    report = write_report(options, folder.name, spoken, agreement)
    print(report)
    if options.output is not None:
        options.output.write_text(report + "\n", encoding="utf-8")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.precision", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--model", default="mini", help="mini, a checkpoint folder or a hub name")
    parser.add_argument("--precision", action="append", choices=["bf16", "int8"], help="repeatable; default int8")
    parser.add_argument("--sentences", type=int, default=50, help="how many of them")
    parser.add_argument("--takes", type=int, default=1, help="of each sentence, with seeds of their own")
    parser.add_argument("--output", type=Path, help="write the report here as well")
    options = parser.parse_args()
    options.precision = options.precision or ["int8"]
    return options


def compare(exact: Sequence[Forced], found: Sequence[Forced], num_codebooks: int) -> list[tuple[float, float]]:
    """Mean divergence in nats and share of equal likeliest codes, by codebook."""
    divergence: dict[int, list[float]] = defaultdict(list)
    equal: dict[int, list[bool]] = defaultdict(list)
    for one, other in zip(exact, found, strict=True):
        for number, (before_V, after_V) in enumerate(zip(one.logits, other.logits, strict=True)):
            codebook = number % num_codebooks
            log_p, log_q = before_V.log_softmax(-1), after_V.log_softmax(-1)
            possible = log_p > -torch.inf
            terms = log_p[possible].exp() * (log_p[possible] - log_q[possible])
            divergence[codebook].append(float(terms.sum()))
            equal[codebook].append(bool(before_V.argmax() == after_V.argmax()))
    return [(float(np.mean(divergence[book])), float(np.mean(equal[book]))) for book in range(num_codebooks)]


def paired_interval(before: Sequence[Spoken], after: Sequence[Spoken], measure: Any) -> tuple[float, float, float]:
    """The difference of a measure over all sentences, and its 95 % interval over resampled sentences."""
    draws = np.random.default_rng(0).integers(len(before), size=(NUM_RESAMPLES, len(before)))
    low, high = np.quantile(measure(after, draws) - measure(before, draws), [0.025, 0.975])
    every = np.arange(len(before))[None]
    return float((measure(after, every) - measure(before, every))[0]), float(low), float(high)


def errors(spoken: Sequence[Spoken], draws: Any) -> Any:
    """Characters wrong per character, for each row of sentences drawn."""
    lengths = np.array([float(len(one.text)) for one in spoken])
    wrong = lengths * np.array([character_error([one.text], [one.heard]) for one in spoken])
    return wrong[draws].sum(axis=1) / lengths[draws].sum(axis=1)


def likeness(spoken: Sequence[Spoken], draws: Any) -> Any:
    """Mean similarity, for each row of sentences drawn."""
    return np.array([one.similarity for one in spoken])[draws].mean(axis=1)


def write_report(
    options: argparse.Namespace,
    name: str,
    spoken: dict[str, list[Spoken]],
    agreement: dict[str, list[tuple[float, float]]],
) -> str:
    """The result as Markdown, with everything needed to judge and repeat it."""
    baseline = spoken[BASELINE]
    every = np.arange(len(baseline))[None]
    rows = [line("", ["character error", "similarity"]), line("---", ["---"] * 2)]
    rows.append(line(BASELINE, [f"{errors(baseline, every)[0]:.1%}", f"{likeness(baseline, every)[0]:.3f}"]))
    for precision in agreement:
        after = spoken[precision]
        wrong, alike = (paired_interval(baseline, after, measure) for measure in (errors, likeness))
        rows.append(
            line(
                precision,
                [
                    f"{errors(after, every)[0]:.1%} ({wrong[0]:+.1%}, {wrong[1]:+.1%} to {wrong[2]:+.1%})",
                    f"{likeness(after, every)[0]:.3f} ({alike[0]:+.3f}, {alike[1]:+.3f} to {alike[2]:+.3f})",
                ],
            )
        )
    head = [f"{precision}: {what}" for precision in agreement for what in ("divergence", "same likeliest code")]
    books = [line("codebook", head), line("---", ["---"] * len(head))]
    for book in range(len(next(iter(agreement.values())))):
        cells = [cell for found in agreement.values() for cell in _agreement_cells(found[book])]
        books.append(line(str(book), cells))
    chosen = " ".join(f"--precision {precision}" for precision in options.precision)
    command = f"--model {name} {chosen} --sentences {len(baseline) // options.takes} --takes {options.takes}"
    return "\n".join(
        [
            f"# Precision, {name}",
            "",
            f"{datetime.datetime.now(tz=datetime.UTC).date()}, `python -m tests.benchmarks.precision {command}`",
            "",
            *(f"- {fact}" for fact in describe_machine("cpu")),
            "",
            HOW_TO_READ,
            "",
            *rows,
            "",
            *books,
        ]
    )


def _agreement_cells(found: tuple[float, float]) -> list[str]:
    return [f"{1000 * found[0]:.2f}", f"{found[1]:.1%}"]


if __name__ == "__main__":
    main()
