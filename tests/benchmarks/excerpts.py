"""How often the first sentences of a long recording are found, and how often something else is taken for them.

    python -m tests.benchmarks.excerpts --output tests/benchmarks/results/DATE-excerpts.md

Sentences of a voice one after the other, with pauses of 0.1 to 0.6 s and a little noise, and five transcripts: as
given; without case and punctuation, as some recognisers write; with the second sentence missing; with the first two
exchanged; of other sentences.
"""

from __future__ import annotations

import argparse
import datetime
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backend.voices.excerpt_search import search_excerpt
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.report import line
from tests.benchmarks.voice_chain import sayings_of
from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ

_NUM_SENTENCES = 12
_PAUSE_SECONDS = (0.1, 0.6)
_NOISE = 1e-3
_MAX_SECONDS = 10.0

_TRANSCRIPTS: dict[str, Callable[[Sequence[str], Sequence[str]], str]] = {
    "as given": lambda said, others: " ".join(said),
    "bare words": lambda said, others: " ".join(re.sub(r"[^a-z' ]", " ", " ".join(said).lower()).split()),
    "second sentence missing": lambda said, others: " ".join([said[0], *said[2:]]),
    "first two exchanged": lambda said, others: " ".join([said[1], said[0], *said[2:]]),
    "of other sentences": lambda said, others: " ".join(others),
}


def main() -> None:
    """Measure, print the report and write it to a file if asked to."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.excerpts", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--voices", nargs="+", default=["slt", "rms", "ked", "person"])
    parser.add_argument("--recordings", type=int, default=10, help="how many of each voice")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="write the report here as well")
    options = parser.parse_args()
    rows = [
        line("voice", ["transcript", "right", "none", "wrong", "seconds kept", "seconds it took"]),
        line("---", ["---"] * 6),
    ]
    for voice in options.voices:
        rows += _judge(voice, options.recordings, np.random.default_rng(options.seed))
        print("\n".join(rows[-len(_TRANSCRIPTS) :]), flush=True)
    report = "\n".join(
        [
            "# Excerpts of long recordings",
            "",
            f"{datetime.datetime.now(tz=datetime.UTC).date()}, {options.recordings} recordings of each voice, "
            f"excerpts of up to {_MAX_SECONDS:g} s, seed {options.seed}",
            "",
            *(f"- {fact}" for fact in describe_machine("cpu")),
            "",
            *rows,
        ]
    )
    print(report)
    if options.output is not None:
        options.output.write_text(report + "\n", encoding="utf-8")


def _judge(voice: str, num_recordings: int, random: np.random.Generator) -> list[str]:
    say, sayings = sayings_of(voice)
    outcomes = {name: Counter[str]() for name in _TRANSCRIPTS}
    kept: dict[str, list[float]] = {name: [] for name in _TRANSCRIPTS}
    took: dict[str, list[float]] = {name: [] for name in _TRANSCRIPTS}
    for _ in range(num_recordings):
        said = [sayings[number] for number in random.choice(len(sayings), _NUM_SENTENCES, replace=False)]
        others = [sayings[number] for number in random.choice(len(sayings), _NUM_SENTENCES, replace=False)]
        sound, ends = _recording(say, said, random)
        for name, transcript in _TRANSCRIPTS.items():
            began = time.monotonic()
            excerpt = search_excerpt(sound, transcript(said, others), max_seconds=_MAX_SECONDS)
            took[name].append(time.monotonic() - began)
            if excerpt is None:
                outcomes[name]["none"] += 1
                continue
            kept[name].append(excerpt.seconds)
            outcomes[name]["right" if _is_right(excerpt.transcript, excerpt.seconds, said, ends) else "wrong"] += 1
    return [
        line(
            voice,
            [
                name,
                *(str(outcomes[name][outcome]) for outcome in ("right", "none", "wrong")),
                f"{np.mean(kept[name]):.1f}" if kept[name] else "",
                f"{np.median(took[name]):.1f}",
            ],
        )
        for name in _TRANSCRIPTS
    ]


def _recording(
    say: Callable[[str], NDArray[np.float32]], said: Sequence[str], random: np.random.Generator
) -> tuple[NDArray[np.float32], list[float]]:
    """The sentences one after the other, and where each ends, in seconds."""
    parts: list[NDArray[np.float32]] = []
    ends = []
    for text in said:
        parts.append(say(text))
        ends.append(sum(map(len, parts)) / SAMPLE_RATE_HZ)
        parts.append(np.zeros(int(random.uniform(*_PAUSE_SECONDS) * SAMPLE_RATE_HZ), np.float32))
    sound = np.concatenate(parts)
    return sound + random.normal(0.0, _NOISE, len(sound)).astype(np.float32), ends


def _is_right(transcript: str, seconds: float, said: Sequence[str], ends: Sequence[float]) -> bool:
    """Whether a transcript is the words until a moment: whole sentences, or part of the one that is said then."""
    whole = sum(end <= seconds + _PAUSE_SECONDS[0] for end in ends)
    letters, before, after = (
        re.sub(r"[^a-z]", "", text.lower())
        for text in (transcript, " ".join(said[:whole]), " ".join(said[: whole + 1]))
    )
    return letters == before or (
        letters.startswith(before) and after.startswith(letters) and ends[whole] > seconds and letters != after
    )


if __name__ == "__main__":
    main()
