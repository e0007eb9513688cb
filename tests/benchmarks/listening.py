"""How well datasets are heard offline: a real person and the sample voices, with right, wrong and no texts.

    python -m tests.benchmarks.listening --output tests/benchmarks/results/DATE-listening.md
    python -m tests.benchmarks.listening --pipeline --output ...

Everything is built by `app.py dataset build`, from files as a person has them; texts are made wrong as on the page. The
person's recordings are for judging only: the voice that `--pipeline` trains is thrown away.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

import app
from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.views import ClipRow, DatasetView
from backend.dataset.datasets import Datasets
from backend.runs.runs import Runs
from backend.store.home import Home
from backend.transcription.pocketsphinx_transcriber import PocketsphinxTranscriber
from backend.transcription.text_difference import compare_texts, normalise_text
from tests.backend.audio.speech import FLITE_HZ, speak
from tests.backend.dataset.spoken import SENTENCES
from tests.benchmarks.machine import describe_machine
from tests.real_voices import INSTALL, REAL_VOICE_HZ, Prompt, drawn_prompts, is_installed

_SAMPLE_VOICES = Path(__file__).parents[2] / "assets" / "voices"
_SYNTHETIC_VOICES = ("slt", "rms", "awb", "kal")
_MISSING_SHARE = 0.25
_TURNS = 10
"""One text in so many is wrong at a time, until each has been wrong once."""


@dataclass(frozen=True)
class Recording:
    """A sentence of a speaker, and what is said in it."""

    samples: np.ndarray
    sample_rate: int
    text: str


class Bench:
    """A home in which datasets are built, and the table of what came of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.rows = ["| | measured | at least |", "|---|---|---|"]
        # No Whisper: neither one that is on this machine nor a download.
        os.environ |= {"ENCORE_HOME": str(self.home), "XDG_CACHE_HOME": str(folder / "none"), "ENCORE_OFFLINE": "1"}

    def row(self, name: str, measured: str, target: str) -> None:
        """Add to the table, and show how it is going."""
        self.rows.append(f"| {name} | {measured} | {target} |")
        print(self.rows[-1], flush=True)

    def write(self, name: str, recordings: Sequence[Recording], texts: Sequence[str] | None = None) -> Path:
        """Recordings as files, with other texts than their own if given; empty ones are left out."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        for number, recording in enumerate(recordings):
            wav = folder / f"{number:03}.wav"
            if not wav.exists():
                soundfile.write(wav, recording.samples, recording.sample_rate, subtype="PCM_16")
            text = recording.text if texts is None else texts[number]
            if text:
                wav.with_suffix(".txt").write_text(text, encoding="utf-8")
        return folder

    def build(self, name: str, folder: Path, *options: str) -> DatasetView:
        """Build a dataset, as the command does."""
        with contextlib.redirect_stdout(io.StringIO()):
            code = app.main(["dataset", "build", str(folder), "--name", name, "--workers", "0", *options])
        assert code == 0, f"{name} could not be built"
        return Datasets(Home(self.home)).show(name)


def main() -> None:
    """Measure, print the table and write it to a file if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prompts", type=int, default=40, help="of the person")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="draws of the prompts")
    parser.add_argument("--synthetic", action="store_true", help="wrong texts of speech engines, too")
    parser.add_argument("--pipeline", action="store_true", help="fine-tune on the prompts as well, for minutes")
    parser.add_argument("--output", type=Path, help="write the report here as well")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(Path(temporary))
        bench.row("memory of the listener", f"{listener_megabytes():.0f} MB", "at most 150 MB")
        samples_row(bench)
        if options.synthetic:
            for voice in _SYNTHETIC_VOICES:
                recordings = synthetic(Path(temporary), voice)
                view = bench.build(voice, bench.write(voice, recordings))
                bench.row(f"flite {voice} with its texts: accepted / rejected", in_words(view.clips), "")
                wrong_text_rows(bench, f"flite {voice}", voice, recordings, 0)
        for seed in options.seeds if is_installed() else ():
            prompts = [_recorded(prompt) for prompt in drawn_prompts(options.prompts, seed)]
            person_rows(bench, prompts, seed)
        if options.pipeline and is_installed():
            pipeline_rows(bench, [_recorded(prompt) for prompt in drawn_prompts(options.prompts, options.seeds[0])])
    lines = [f"# Listening offline, {datetime.date.today().isoformat()}", ""]
    lines += [*(f"- {line}" for line in describe_machine("cpu")), "", *bench.rows]
    if not is_installed():
        lines.append(f"\nThe rows on a real person need: {INSTALL}")
    report = "\n".join(lines)
    print(report)
    if options.output is not None:
        options.output.write_text(report + "\n", encoding="utf-8")


def person_rows(bench: Bench, prompts: Sequence[Recording], seed: int) -> None:
    """Judge a draw of the person's prompts with right, wrong and no texts."""
    name = f"person-{seed}"
    who = f"{len(prompts)} prompts (draw {seed})"
    view = bench.build(name, bench.write(name, prompts))
    bench.row(f"{who} with their texts: accepted / rejected", in_words(view.clips), "38 / 0 of 40")
    wrong_text_rows(bench, who, name, prompts, seed)
    silent = bench.build(f"{name}-silent", bench.write(f"{name}-silent", prompts, [""] * len(prompts)))
    errors, letters = 0.0, 0
    for number, prompt in enumerate(prompts):
        heard = " ".join(clip.text for clip in clips_of(silent, number))
        errors += compare_texts(prompt.text, heard).character_error_rate
        letters += 1
    bench.row(f"{who} without texts: characters wrong", f"{errors / letters:.3f}", "at most 0.12")


def wrong_text_rows(bench: Bench, who: str, name: str, recordings: Sequence[Recording], seed: int) -> None:
    """Ten times one text in ten is made wrong on the page: which are found, and which others are blamed.

    What is judged after an edit is what a build would judge (`test_change_clip`), without decoding everything anew.
    """
    datasets = Datasets(Home(bench.home))
    rng, right = np.random.default_rng(seed), [recording.text for recording in recordings]
    spoilers: dict[str, tuple[Callable[[str], str], str]] = {
        "exchanged with another's": (lambda text: another(text, right, rng), "all"),
        "missing a quarter at one place": (lambda text: without_stretch(text, rng), "85 % at 1 in 40"),
        "missing a quarter of the words": (lambda text: without_words(text, rng), "85 % at 1 in 40"),
    }
    for spoiled, (spoil, target) in spoilers.items():
        num_found = num_false = num_right = 0
        for turn in range(_TURNS):
            spoiled_places = range(turn, len(recordings), _TURNS)
            keys = {clip.key: place for place in spoiled_places for clip in clips_of(datasets.show(name), place)}
            for key, place in keys.items():
                datasets.edit_text(name, key, spoil(right[place]))
            view = datasets.show(name)
            for key in keys:
                datasets.edit_text(name, key, None)
            for place in range(len(recordings)):
                is_doubted = any(is_text_doubted(clip) for clip in clips_of(view, place))
                num_found += is_doubted and place % _TURNS == turn
                num_false += is_doubted and place % _TURNS != turn
                num_right += place % _TURNS != turn
        measured = f"{num_found} of {len(recordings)}, false {num_false / num_right:.1%}"
        bench.row(f"{who}, one text in ten {spoiled}: found", measured, target)


def samples_row(bench: Bench) -> None:
    """The sample voices, cut into their sentences, each voice a dataset."""
    clips: list[ClipRow] = []
    for voice in json.loads((_SAMPLE_VOICES / "voices.json").read_text())["voices"]:
        samples, rate = soundfile.read(_SAMPLE_VOICES / voice["recording"], dtype="float32")
        recordings = [
            Recording(
                samples[round(max(each["start_seconds"] - 0.1, 0) * rate) : round((each["end_seconds"] + 0.1) * rate)],
                rate,
                each["text"],
            )
            for each in voice["sentences"]
        ]
        clips += bench.build(voice["name"], bench.write(voice["name"], recordings)).clips
    bench.row("sample voices with their texts: accepted / rejected", in_words(clips), "19 / 0 of 20")


def pipeline_rows(bench: Bench, prompts: Sequence[Recording]) -> None:
    """From the prompts to a fine-tuned voice by `app.py pipeline`, with the recipe for a first try."""
    folder = bench.write("pipeline", prompts)
    code = app.main(
        [
            "pipeline",
            str(folder),
            "--voice",
            "throw-away",
            "--consent",
            "speaker-agreed",
            "--consent-by",
            "benchmark",
            "--language",
            "english",
        ]
    )
    (run,) = Runs(Home(bench.home)).list()
    view = Datasets(Home(bench.home)).show(run.dataset)
    usable = [clip for clip in view.clips if clip.is_usable]
    measured = f"{sum(not clip.held_out for clip in usable)} and {sum(clip.held_out for clip in usable)} held out"
    bench.row("app.py pipeline on the prompts: clips trained on", measured, "36 in all")
    bench.row("its end", f"exit {code}, {run.state}: {run.verdict}", "an evaluated voice")


def listener_megabytes() -> float:
    """What one process needs more once it has listened."""
    sound = np.random.default_rng(0).normal(0, 0.01, 10 * REAL_VOICE_HZ).astype(np.float32)
    before = _resident_bytes()
    PocketsphinxTranscriber().transcribe(sound, "en")
    return (_resident_bytes() - before) / 1e6


def synthetic(folder: Path, voice: str) -> list[Recording]:
    """Sentences of a speech engine, on which limits may be chosen."""
    return [Recording(speak(folder, text, voice=voice), FLITE_HZ, text) for text in SENTENCES]


def clips_of(view: DatasetView, number: int) -> list[ClipRow]:
    """The clips that were cut from one recording."""
    return [clip for clip in view.clips if Path(clip.details.recording_name).stem == f"{number:03}"]


def is_text_doubted(clip: ClipRow) -> bool:
    """Whether text and hearing are said to differ."""
    return any(gate.gate == "disagreement" and gate.verdict is not Verdict.ACCEPTED for gate in clip.details.gates)


def in_words(clips: Sequence[ClipRow]) -> str:
    """Accepted and rejected, and why others are neither."""
    accepted, rejected = (
        sum(clip.verdict is verdict for clip in clips) for verdict in (Verdict.ACCEPTED, Verdict.REJECTED)
    )
    doubts = list(_doubts(clips))
    return f"{accepted} / {rejected} of {len(clips)}" + (f" ({', '.join(doubts)})" if doubts else "")


def another(text: str, texts: Sequence[str], rng: np.random.Generator) -> str:
    """The text of another recording."""
    others = [each for each in texts if normalise_text(each) != normalise_text(text)]
    return others[int(rng.integers(len(others)))]


def without_stretch(text: str, rng: np.random.Generator) -> str:
    """A text without a quarter of its words, in a row."""
    words = text.split()
    count = max(1, round(len(words) * _MISSING_SHARE))
    begin = int(rng.integers(len(words) - count + 1))
    return " ".join(words[:begin] + words[begin + count :])


def without_words(text: str, rng: np.random.Generator) -> str:
    """A text without a quarter of its words, here and there."""
    words = text.split()
    gone = set(rng.permutation(len(words))[: max(1, round(len(words) * _MISSING_SHARE))].tolist())
    return " ".join(word for place, word in enumerate(words) if place not in gone)


def _doubts(clips: Sequence[ClipRow]) -> Iterator[str]:
    for clip in clips:
        for gate in clip.details.gates:
            if gate.verdict is not Verdict.ACCEPTED:
                yield f"{Path(clip.details.recording_name).stem} {gate.gate} {gate.value:.2f}"


def _recorded(prompt: Prompt) -> Recording:
    return Recording(prompt.samples(), REAL_VOICE_HZ, prompt.text)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
