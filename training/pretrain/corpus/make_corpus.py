"""`python -m training.pretrain corpus`: synthesize the corpus, shard by shard, up to a number of hours."""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.pretrain.corpus import corpus, speakers
from training.pretrain.corpus import tts_engines as engines
from training.pretrain.corpus.corpus import Entry
from training.pretrain.corpus.own_sentences import RUSSIAN_PROMPTS
from training.pretrain.corpus.recordings import RecordedPart, recorded_part
from training.pretrain.corpus.speakers import Speaker
from training.pretrain.corpus.text_sources import TextSources, load_text_sources
from training.pretrain.corpus.texts import TextStream
from training.pretrain.errors import CorpusError

RECIPE_VERSION = 4
"""Incremented whenever the same seed would give other utterances."""

UTTERANCES_PER_SHARD = 500
# Voices of other languages say as many utterances as this for each in a held-out part.
_FOREIGN_PER_HELD_OUT = 24
# Shorter or longer audio is left out: engines sigh or spell texts that they cannot read.
_MIN_SECONDS, _MAX_SECONDS = 0.3, 20.0


@dataclass(frozen=True, kw_only=True)
class Part:
    """One folder of the corpus: its speakers and texts. Utterances are functions of their index."""

    name: str
    people: tuple[Speaker, ...]
    texts: TextStream
    seed: int
    hours: float | None = None
    """Make shards up to this duration ..."""
    num_utterances: int | None = None
    """... or this number of utterances."""

    def utterance(self, index: int) -> tuple[str, str, NDArray[np.int16] | None]:
        """Speaker, text if it is known, and audio at `index`; the audio is None if it is not usable."""
        speaker = random.Random(f"{self.seed} {self.name} speaker {index}").choice(self.people)
        text = self.texts.text(index)
        try:
            audio = engines.synthesize(speaker, text)
        except CorpusError:
            # Voices of other languages have no sounds for some words; it is counted as skipped.
            if self.name != corpus.OTHER_LANGUAGES:
                raise
            audio = None
        return speaker.name, "" if speaker.says_own_sentences else text, audio


def main(arguments: list[str]) -> int:
    """Make or continue a corpus, as the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m training.pretrain corpus", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the corpus; an unfinished one is continued")
    parser.add_argument("--hours", type=float, default=20.0, help="of training speech; a larger number adds to it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="number of engines to run in parallel")
    parser.add_argument("--held-out", type=int, default=200, help="utterances in each of the three held-out parts")
    parser.add_argument(
        "--recordings",
        type=Path,
        default=RUSSIAN_PROMPTS,
        help="folder of G.722 files for the codec; an empty one for none",
    )
    parser.add_argument("--shard-size", type=int, default=UTTERANCES_PER_SHARD, help="utterances in a shard")
    options = parser.parse_args(arguments)
    make_corpus(
        options.out,
        hours=options.hours,
        seed=options.seed,
        num_threads=options.threads,
        num_held_out=options.held_out,
        shard_size=options.shard_size,
        recordings=options.recordings,
        report=lambda line: print(line, flush=True),
    )
    return 0


def make_corpus(
    out: Path,
    *,
    hours: float,
    seed: int,
    num_threads: int,
    num_held_out: int,
    shard_size: int = UTTERANCES_PER_SHARD,
    report: Callable[[str], None],
    recordings: Path = RUSSIAN_PROMPTS,
    until: float = math.inf,
) -> None:
    """Make the missing parts of a corpus, or as much as can be made until this time of the monotonic clock.

    Its bytes depend on seed and sizes, not on threads or interruptions.

    Raises:
        CorpusError: an engine or text source is missing, or `out` holds a corpus with another recipe.
    """
    sources = load_text_sources()
    recipe = {
        "recipe_version": RECIPE_VERSION,
        "seed": seed,
        "engines": engines.versions(),
        "texts": sources.digests,
        "sample_rate_hz": engines.SAMPLE_RATE_HZ,
        "utterances_per_shard": shard_size,
        "held_out_utterances": num_held_out,
    }
    _check_recipe(out, recipe)
    _write_manifest(out, recipe)
    with ThreadPoolExecutor(num_threads) as pool:
        for part in _parts(sources, seed, hours, num_held_out, recordings):
            if part.name == corpus.OTHER_LANGUAGES and time.monotonic() >= until:
                break
            _make_part(out, part, shard_size, pool, report, until)
            _write_manifest(out, recipe)


def _parts(
    sources: TextSources, seed: int, hours: float, num_held_out: int, recordings: Path
) -> list[Part | RecordedPart]:
    """The held-out parts come first: they are small, and every later stage needs them from its first step."""
    extra = [speaker for engine in engines.installed_extras() for speaker in speakers.extra_speakers(engine)]
    everyone = (*speakers.training_speakers(), *extra, *engines.installed_like_speakers())
    held_out = [
        (corpus.HELD_OUT_TEXTS, everyone),
        (corpus.HELD_OUT_PARAMETERS, speakers.unseen_parameter_speakers()),
        (corpus.HELD_OUT_VOICE, (speakers.unseen_voice(),)),
    ]
    parts: list[Part | RecordedPart] = []
    for number, (name, people) in enumerate(held_out):
        texts = TextStream(sources, seed + number, held_out=True)
        parts.append(Part(name=name, people=people, texts=texts, seed=seed, num_utterances=num_held_out))
    if recorded := recorded_part(corpus.RECORDINGS, recordings):
        parts.append(recorded)
    texts = TextStream(sources, seed)
    parts.append(Part(name=corpus.TRAIN, people=everyone, texts=texts, seed=seed, hours=hours))
    # Last, because only the optional stage of the speaker encoder needs it.
    if foreign := engines.installed_foreign_speakers():
        num_utterances = _FOREIGN_PER_HELD_OUT * num_held_out
        texts = TextStream(sources, seed + len(held_out))
        parts.append(
            Part(name=corpus.OTHER_LANGUAGES, people=foreign, texts=texts, seed=seed, num_utterances=num_utterances)
        )
    return parts


def _make_part(
    out: Path,
    part: Part | RecordedPart,
    shard_size: int,
    pool: ThreadPoolExecutor,
    report: Callable[[str], None],
    until: float = math.inf,
) -> None:
    folder = out / part.name
    folder.mkdir(parents=True, exist_ok=True)
    num_made, seconds, number = 0, 0.0, 0
    started, seconds_before = time.monotonic(), 0.0
    while not _enough(part, number * shard_size, seconds):
        if number and time.monotonic() >= until:
            break
        index_path = corpus.shard_index(folder, number)
        is_new = not index_path.is_file()
        if is_new:
            stop = min((number + 1) * shard_size, part.num_utterances or (number + 1) * shard_size)
            _make_shard(folder, part, number, range(number * shard_size, stop), pool)
        entries = list(corpus.read_index(index_path))
        num_made += len(entries)
        shard_seconds = sum(entry.num_samples for entry in entries) / engines.SAMPLE_RATE_HZ
        seconds += shard_seconds
        seconds_before += 0.0 if is_new else shard_seconds
        number += 1
        if is_new:
            speed = (seconds - seconds_before) / (time.monotonic() - started)
            report(f"{part.name}: {num_made} utterances, {seconds / 3600:.2f} h{_remaining(part, seconds, speed)}")


def _enough(part: Part | RecordedPart, num_tried: int, seconds: float) -> bool:
    if part.num_utterances is not None:
        return num_tried >= part.num_utterances
    assert part.hours is not None
    return seconds >= part.hours * 3600


def _remaining(part: Part | RecordedPart, seconds: float, speed: float) -> str:
    """The time left; `speed` is seconds of speech made per second."""
    if part.hours is None:
        return ""
    left = max(0, int((part.hours * 3600 - seconds) / speed))
    return f" of {part.hours:g} h, {speed:.0f} times real time, {left // 3600}:{left // 60 % 60:02d} h left"


def _make_shard(folder: Path, part: Part | RecordedPart, number: int, indexes: range, pool: ThreadPoolExecutor) -> None:
    start = 0
    lines: list[str] = []
    pieces: list[bytes] = []
    for index, (speaker, text, audio) in zip(indexes, pool.map(part.utterance, indexes), strict=True):
        if audio is None or not _MIN_SECONDS <= len(audio) / engines.SAMPLE_RATE_HZ <= _MAX_SECONDS:
            continue
        entry = Entry(index=index, start=start, num_samples=len(audio), speaker=speaker, text=text)
        lines.append(entry.to_line())
        pieces.append(audio.astype("<i2").tobytes())
        start += len(audio)
    _write(corpus.shard_audio(folder, number), b"".join(pieces))
    _write(corpus.shard_index(folder, number), "".join(lines).encode())


def _check_recipe(out: Path, recipe: dict[str, Any]) -> None:
    path = out / corpus.MANIFEST
    if not path.is_file():
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    changed = [
        f"{name} {found.get(name)!r} instead of {value!r}" for name, value in recipe.items() if found.get(name) != value
    ]
    if changed:
        raise CorpusError(f"{out} holds another corpus ({'; '.join(changed)}). Choose another folder, or delete it.")


def _write_manifest(out: Path, recipe: dict[str, Any]) -> None:
    """Write recipe and contents. Counts come from the shards, so an interrupted run ends with the same file."""
    out.mkdir(parents=True, exist_ok=True)
    parts = {}
    for name in (*corpus.PARTS, corpus.RECORDINGS, corpus.OTHER_LANGUAGES):
        entries = [entry for path in corpus.shard_indexes(out / name) for entry in corpus.read_index(path)]
        hours = sum(entry.num_samples for entry in entries) / engines.SAMPLE_RATE_HZ / 3600
        parts[name] = {
            "utterances": len(entries),
            "skipped": entries[-1].index + 1 - len(entries) if entries else 0,
            "hours": round(hours, 4),
            "speakers": len({entry.speaker for entry in entries}),
        }
    _write(out / corpus.MANIFEST, (json.dumps({**recipe, "parts": parts}, indent=1) + "\n").encode())


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically, even if the machine crashes."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
