"""Spoken consent: is the right sentence heard and another one refused, and are the speakers told apart?

    python -m tests.benchmarks.consent [--voices 60] [--sentences 40] [--output FILE]

Prints a table. Synthetic voices say phrases as they are drawn on the page. The person never said one, so sentences of
hers are two prompts in a row, in which six words could be seven others. Her recordings are for judging only.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein
from typing_extensions import override

from backend.transcription.pocketsphinx_transcriber import PlacedText, PocketsphinxTranscriber, words_to_place
from backend.transcription.sentence_check import hears_sentence_of
from backend.voices.consent_phrase import COLUMNS, STATEMENT
from backend.voices.strangers import STRANGER_SIMILARITY
from tests.real_voices import INSTALL, Prompt, all_prompts, is_installed, read_g722, short_recordings
from training.model.speaker_verifier import GE2EVerifier
from training.pretrain.corpus import tts_engines
from training.pretrain.corpus.sample_voices import SAMPLES
from training.pretrain.corpus.speakers import FLITE, Speaker, training_speakers

_REFUSED_DRAWS = 4
_EXCHANGED = 6
_ALTERNATIVES = 7
_SHORTEST_WORD, _LARGEST_LIKENESS = 5, 0.4
_REFERENCE_SECONDS = 10.0
_HZ = 16_000
_OTHER_SENTENCES = "Read the phrase once more when the lamps are lit. By nine the workshop is full of people."

Columns = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Said:
    """A sentence of a pattern, as somebody said it, and other recordings of the same voice.

    Attributes:
        columns: what could have been said, part by part.
        drawn: which of each column was said.
    """

    voice: str
    samples: NDArray[np.float32]
    columns: Columns
    drawn: tuple[int, ...]
    reference: NDArray[np.float32]


@dataclass
class Counts:
    """How often each thing was as it should be, of how many."""

    right: int = 0
    number: int = 0

    def add(self, is_right: bool) -> None:
        self.right += is_right
        self.number += 1

    def __str__(self) -> str:
        return f"{self.right} of {self.number} ({self.right / max(self.number, 1):.1%})"


class Remembering(PocketsphinxTranscriber):
    """Does the same work for the same sound once: many sentences are tried on each."""

    def __init__(self) -> None:
        super().__init__()
        self._found: dict[Any, Any] = {}

    def forget(self) -> None:
        """Before the next sound."""
        self._found.clear()

    @override
    def choose(self, samples: Any, columns: Columns, **rate: Any) -> str | None:
        key = str(columns)
        if key not in self._found:
            self._found[key] = super().choose(samples, columns, **rate)
        return self._found[key]

    @override
    def place(self, samples: Any, words: Sequence[str], **rate: Any) -> PlacedText | None:
        key = tuple(words)
        if key not in self._found:
            self._found[key] = super().place(samples, words, **rate)
        return self._found[key]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--voices", type=int, default=60, help="synthetic voices beside the sample voices")
    parser.add_argument("--sentences", type=int, default=40, help="of the person, and of the sample voices together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="also write the table here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(options.seed)
    known = [sample.speaker for sample in SAMPLES]
    flite = [speaker for speaker in training_speakers() if speaker.engine == FLITE and "wide" not in speaker.name]
    others = [flite[int(place)] for place in rng.choice(len(flite), options.voices, replace=False)]
    lines = [
        "| who | own sentence passes | another of the pattern is refused | two words exchanged | one word exchanged "
        "| own voice passes | another's is refused |",
        "|---|---|---|---|---|---|---|",
    ]
    print(*lines, sep="\n", flush=True)
    sampled = [known[place % len(known)] for place in range(options.sentences)]
    lines.append(sentences_row("the sample voices", spoken_phrases(sampled, rng), rng))
    lines.append(sentences_row(f"{options.voices} synthetic voices", spoken_phrases(others, rng), rng))
    if is_installed():
        lines.append(sentences_row("the person", joined_prompts(all_prompts(), options.sentences, rng), rng))
    lines += ["", f"Who speaks, short prompts: {speakers_row()}"]
    if not is_installed():
        lines.append(f"The row of the person needs: {INSTALL}")
    print(*lines[-2:], sep="\n")
    if options.output is not None:
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


def sentences_row(name: str, sentences: Iterator[Said], rng: np.random.Generator) -> str:
    """One line of the table."""
    listener, verifier = Remembering(), GE2EVerifier()
    passed, refused, two, one, own, stranger = (Counts() for _ in range(6))
    heard: list[tuple[str, NDArray[np.float32], NDArray[np.float32]]] = []
    for said in sentences:
        listener.forget()
        voice = verifier.embed(said.samples), verifier.embed(said.reference)
        heard.append((said.voice, *voice))
        own.add(float(voice[0] @ voice[1]) >= STRANGER_SIMILARITY)
        passed.add(is_heard(listener, said, said.drawn))
        for _ in range(_REFUSED_DRAWS):
            refused.add(not is_heard(listener, said, another(said, rng)))
        for counts, number in ((two, 2), (one, 1)):
            counts.add(not is_heard(listener, said, exchanged(said, number, rng)))
        print(f"{said.voice}: {passed}, {refused}, {two}, {one}, {own}", file=sys.stderr, flush=True)
    for (who, phrase, _), (whose, _, reference) in itertools.permutations(heard, 2):
        # Variants of an engine's voice are no strangers to each other.
        if who.partition("-")[0] != whose.partition("-")[0]:
            stranger.add(float(phrase @ reference) < STRANGER_SIMILARITY)
    row = f"| {name} | {passed} | {refused} | {two} | {one} | {own} | {stranger if stranger.number else '-'} |"
    print(row, flush=True)
    return row


def is_heard(listener: PocketsphinxTranscriber, said: Said, drawn: Sequence[int]) -> bool:
    sentence = " ".join(column[place] for column, place in zip(said.columns, drawn, strict=True))
    return hears_sentence_of(listener, said.samples, sentence, said.columns).is_said


def another(said: Said, rng: np.random.Generator) -> tuple[int, ...]:
    """Drawn anew, but not the same."""
    while True:
        drawn = tuple(int(rng.integers(len(column))) for column in said.columns)
        if drawn != said.drawn:
            return drawn


def exchanged(said: Said, number: int, rng: np.random.Generator) -> tuple[int, ...]:
    """What was said with other words in some columns."""
    free = [place for place, column in enumerate(said.columns) if len(column) > 1]
    chosen = {int(place) for place in rng.permutation(free)[:number]}
    return tuple(
        (drawn + 1 + int(rng.integers(len(column) - 1))) % len(column) if place in chosen else drawn
        for place, (column, drawn) in enumerate(zip(said.columns, said.drawn, strict=True))
    )


def spoken_phrases(speakers: Sequence[Speaker], rng: np.random.Generator) -> Iterator[Said]:
    """A phrase of each, as the page would draw it."""
    columns = [[STATEMENT], *COLUMNS]
    for speaker in speakers:
        drawn = tuple(int(rng.integers(len(column))) for column in columns)
        phrase = " ".join(column[place] for column, place in zip(columns, drawn, strict=True))
        samples, reference = (_synthesize(speaker, text) for text in (phrase, _OTHER_SENTENCES))
        yield Said(speaker.voice, samples, columns, drawn, reference)


def joined_prompts(prompts: Sequence[Prompt], count: int, rng: np.random.Generator) -> Iterator[Said]:
    """Two prompts in a row, of which some words could be others that she says elsewhere."""
    texts = [words_to_place(prompt.text) for prompt in prompts]
    pool = sorted({word for words in texts for word in words if len(word) >= _SHORTEST_WORD})
    for _ in range(count):
        order = [int(place) for place in rng.permutation(len(prompts))]
        first, second, *rest = order
        words = [*texts[first], *texts[second]]
        long_enough = [place for place, word in enumerate(words) if len(word) >= _SHORTEST_WORD]
        free = {int(place) for place in rng.permutation(long_enough)[:_EXCHANGED]}
        columns = [
            [word, *_alternatives(word, pool, rng)] if place in free else [word] for place, word in enumerate(words)
        ]
        samples = np.concatenate([prompts[place].samples() for place in (first, second)])
        reference = np.concatenate([prompts[place].samples() for place in rest[:4]])
        yield Said("person", samples, columns, (0,) * len(columns), reference[: round(_REFERENCE_SECONDS * _HZ)])


def _alternatives(word: str, pool: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Words that differ in most of their letters, as those on the page do."""
    alike = [other for other in pool if Levenshtein.normalized_similarity(word, other) < _LARGEST_LIKENESS]
    return [alike[int(place)] for place in rng.permutation(len(alike))[:_ALTERNATIVES]]


def _synthesize(speaker: Speaker, text: str) -> NDArray[np.float32]:
    return tts_engines.synthesize(speaker, text).astype(np.float32) / 32768


def speakers_row() -> str:
    """Equal error rate of the verifier over pairs of short prompts by real speakers."""
    recordings, verifier = short_recordings(), GE2EVerifier()
    if len(recordings) < 2:
        return "needs two speakers or more: apt install asterisk-core-sounds-ru-g722"
    known = [(who, verifier.embed(read_g722(path))) for who, paths in recordings.items() for path in paths]
    same, different = [], []
    for (who, one), (whose, other) in itertools.combinations(known, 2):
        (same if who == whose else different).append(float(one @ other))
    limits = np.linspace(-1, 1, 2001)
    missed = np.array([np.mean(np.array(same) < limit) for limit in limits])
    taken = np.array([np.mean(np.array(different) >= limit) for limit in limits])
    best = int(np.argmin(np.abs(missed - taken)))
    people = ", ".join(sorted(recordings))
    return f"equal error rate {(missed[best] + taken[best]) / 2:.1%} at {limits[best]:.2f} ({people}; 25 prompts each)"


if __name__ == "__main__":
    main()
