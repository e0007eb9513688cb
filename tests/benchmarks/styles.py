"""Whether a voice that is told how to speak is heard to do so, and still sounds like the same person.

    python -m tests.benchmarks.styles --output tests/benchmarks/results/DATE-styles-mini.md

One voice of flite reads sentences slowly and fast (`apt-get install flite`): two styles, which differ in nothing but
the pace. A dataset of both is fine-tuned on as the Tune tab does it, and the kept voice speaks sentences that it has
not learned from, in each style, in none, and in context of its ordinary reference, with the same seeds. The verifier
says how much each take sounds like recordings of the person that were not trained on; differences are between takes of
the same sentence and seed, with a 95 % interval from resampling the sentences.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from backend.dataset.clips.build_job import BuildJob
from backend.dataset.datasets import Datasets
from backend.evaluation.take_scores import read_own_wav
from backend.runs.planning.request import RunRequest
from backend.runs.process.conclude_run import conclude
from backend.runs.runs import Runs
from backend.runs.storage.records import RunRecord
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import RunState
from backend.serving.deploy.factory import build_synthesizer
from backend.serving.requests import SynthesisRequest
from backend.serving.settings import EngineSettings
from backend.serving.synthesizer import Synthesizer
from backend.store.home import Home
from backend.voices.consent import Consent
from backend.voices.registry import Voices
from backend.voices.voice import CloningMode, Voice
from backend.watermark.mark import Mark
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.report import line
from tests.benchmarks.voice import SENTENCES
from tests.training.strategy_worker import RecordingContext
from training.model.generation.finish_reason import FinishReason
from training.model.speaker_verifier import GE2EVerifier, load_verifier
from training.worker import run_worker

PACES = {"slow": 1.35, "fast": 0.75}
"""Styles, with flite's `duration_stretch`."""

RUN = "styles"
_NUM_RESAMPLED = 10_000
_VOICE, _SPEAKER = "Reader", "slt"
_FIRST_LEARNED = 24
"""Sentences from here on are learned from; those before are spoken."""

Sound = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One way of speaking: its name in the table, and what is asked for."""

    name: str
    style: str = ""
    mode: CloningMode | None = None


CONDITIONS = (
    Condition(name="no style"),
    Condition(name="no style, in context", mode="fine-tuned-in-context"),
    *(Condition(name=style, style=style) for style in PACES),
)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One take: which sentence, how much it sounds like the person, and how long it is."""

    sentence: int
    similarity: float
    seconds: float
    ended: bool


def read_aloud(folder: Path, sentences: Sequence[str]) -> Path:
    """Have flite read sentences in each style; the list beside them says which is which."""
    folder.mkdir(parents=True)
    lines = []
    for style, stretch in PACES.items():
        for number, text in enumerate(sentences):
            name = f"{style}-{number:02}.wav"
            command = ["flite", "-voice", _SPEAKER, "--setf", f"duration_stretch={stretch}", "-t", text]
            subprocess.run([*command, "-o", str(folder / name)], check=True, timeout=60)
            lines.append(json.dumps({"audio": name, "text": text, "style": style}))
    (folder / "metadata.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def fine_tune(home: Path, material: Path, model: str, preset: str) -> tuple[Voice, int]:
    """Make a dataset and train on it in this process; the voice that is kept, and the number of steps."""
    opened = Home(home)
    options: dict[str, object] = {"model": model, "whisper": "none", "num_actors": 0, "device": "cpu"}
    Datasets(opened).build(BuildJob.parse("styles", [material], **options))
    runs = Runs(opened, num_cpus=1)
    plan = runs.plan(RunRequest(dataset="styles", voice=_VOICE, model=model, preset=preset)).require_possible()
    assert plan.data is not None
    folder = RunFolder.of(home, RUN)
    job = plan.job.model_copy(update={"output": folder.path})
    run_worker(job, RecordingContext(0, 1))
    job.write(folder.job)
    folder.launch.write_text(plan.launch.model_dump_json())
    folder.evaluation_plan.write_text(plan.data.evaluation.model_dump_json())
    RunTable(opened.database).add(_record(model, preset, job.model_dump(mode="json"), plan.data.estimate.num_steps))
    conclude(opened, RUN)
    return Voices(opened).get(_VOICE), plan.data.estimate.num_steps


def _record(model: str, preset: str, job: dict[str, object], num_steps: int) -> RunRecord:
    return RunRecord(
        id=RUN, dataset="styles", voice=_VOICE, model=model, preset=preset, strategy="ddp", num_workers=1,
        state=RunState.EVALUATING, message="", created_at=time.time(), started_at=None, ended_at=None,
        heartbeat_at=None, process_id=None, process_started_at=None, attempt=0, step=num_steps, num_steps=num_steps,
        best_checkpoint=None, verdict="", export_folder=None, consent=Consent.give(_VOICE, "synthetic"), job=job,
    )  # fmt: skip


class Judge:
    """How much sound is like the person: the cosine of the verifier's vectors with the mean of their recordings."""

    def __init__(self, verifier: GE2EVerifier, recordings: Sequence[Path]) -> None:
        self._verifier = verifier
        self._own = [self._embed(*read_own_wav(path)) for path in recordings]
        self._target = _unit(np.mean(self._own, axis=0))

    def similarity(self, samples: Sound, rate: int) -> float:
        """Of a take."""
        return float(self._embed(samples, rate) @ self._target)

    @property
    def own(self) -> float:
        """Of the person's recordings to the mean of the others."""
        total = np.sum(self._own, axis=0)
        return float(np.mean([one @ _unit(total - one) for one in self._own]))

    def _embed(self, samples: Sound, rate: int) -> Sound:
        return self._verifier.embed(samples, sample_rate=rate)


def _unit(vector: Sound) -> Sound:
    return vector / np.linalg.norm(vector)


def speak(
    synthesizer: Synthesizer, voice: Voice, condition: Condition, text: str, seed: int
) -> tuple[Sound, int, bool]:
    """A take, its rate, and whether it ended by itself."""
    request = SynthesisRequest(
        voice=voice, text=text, style=condition.style, mode=condition.mode, seed=seed, is_streamed=False
    )
    stream = synthesizer.speak(request)
    samples = np.concatenate([np.zeros(0, np.float32), *stream])
    return samples, stream.sample_rate, stream.finish_reason is FinishReason.EOS


def interval(
    takes: dict[str, list[Measured]], one: str, other: str, value: Callable[[Measured], float]
) -> tuple[float, float, float]:
    """Mean difference between two conditions, and its 95 % interval from resampling the sentences."""
    by_sentence: dict[int, list[float]] = {}
    for here, there in zip(takes[one], takes[other], strict=True):
        assert here.sentence == there.sentence
        by_sentence.setdefault(here.sentence, []).append(value(here) - value(there))
    differences = np.array([np.mean(found) for found in by_sentence.values()])
    drawn = np.random.default_rng(0).choice(differences, (_NUM_RESAMPLED, len(differences))).mean(axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(differences.mean()), float(low), float(high)


def tables(takes: dict[str, list[Measured]], own: float) -> str:
    """What was measured of each condition, and the differences in similarity."""
    rows = [line("condition", ["similarity", "seconds", "of no style", "ended by itself"]), "|---|---|---|---|---|"]
    usual = np.mean([one.seconds for one in takes["no style"]])
    for condition in CONDITIONS:
        found = takes[condition.name]
        seconds = np.mean([one.seconds for one in found])
        similarity = np.mean([one.similarity for one in found])
        ended = f"{sum(one.ended for one in found)} of {len(found)}"
        rows.append(line(condition.name, [f"{similarity:.3f}", f"{seconds:.2f}", f"{seconds / usual:.2f}", ended]))
    rows += ["", f"The person's own recordings have {own:.3f}.", ""]
    rows += [line("difference", ["in similarity", "95 % interval"]), "|---|---|---|"]
    for style in PACES:
        for other in ("no style", "no style, in context"):
            mean, low, high = interval(takes, style, other, lambda one: one.similarity)
            rows.append(line(f"{style} − {other}", [f"{mean:+.3f}", f"{low:+.3f} to {high:+.3f}"]))
    mean, low, high = interval(takes, "slow", "fast", lambda one: float(np.log(one.seconds)))
    rows += ["", f"Slow takes last {np.exp(mean):.2f} times as long as fast ones of the same sentence and seed"]
    rows.append(
        f"(95 % interval {np.exp(low):.2f} to {np.exp(high):.2f}); the recordings {_ratio_of_paces():.2f} times."
    )
    return "\n".join(rows)


def _ratio_of_paces() -> float:
    return PACES["slow"] / PACES["fast"]


def main() -> None:
    """Make the voice, speak, judge, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="mini")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--sentences", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--learned", type=int, default=20, help="sentences to learn from, each in every style")
    parser.add_argument("--note", default="", help="what else ran on the machine")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    verifier = load_verifier()
    if verifier is None:
        sys.exit("The verifier's weights are missing.")
    sentences = SENTENCES.read_text(encoding="utf-8").splitlines()
    spoken = sentences[: min(options.sentences, _FIRST_LEARNED)]
    learned = sentences[_FIRST_LEARNED : _FIRST_LEARNED + options.learned]
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        material = read_aloud(folder / "material", learned)
        others = read_aloud(folder / "others", spoken)
        voice, num_steps = fine_tune(folder / "home", material, options.model, options.preset)
        judge = Judge(verifier, sorted(others.glob("*.wav")))
        settings = EngineSettings(
            model=options.model, device="cpu", num_slots=1, max_engines=3, mark=Mark(off_because="benchmark")
        )
        synthesizer = build_synthesizer(settings)
        takes: dict[str, list[Measured]] = {condition.name: [] for condition in CONDITIONS}
        # In turns, so that whatever else the machine does falls on all of them.
        for number, text in enumerate(spoken):
            for seed in range(1, options.seeds + 1):
                for condition in CONDITIONS:
                    samples, rate, ended = speak(synthesizer, voice, condition, text, seed)
                    measured = Measured(
                        sentence=number,
                        similarity=judge.similarity(samples, rate),
                        seconds=len(samples) / rate,
                        ended=ended,
                    )
                    takes[condition.name].append(measured)
            print(f"{number + 1} of {len(spoken)} sentences", file=sys.stderr, flush=True)
        synthesizer.close()
    report = "\n".join(
        [
            f"# Styles: {datetime.date.today().isoformat()}, {options.model}",
            "",
            *(f"- {fact}" for fact in describe_machine("cpu")),
            *([f"- {options.note}"] if options.note else []),
            f"- {_SPEAKER} of flite, {len(learned)} sentences in each of {len(PACES)} styles, preset {options.preset}, "
            f"{num_steps} steps; {len(spoken)} other sentences, seeds for each: {options.seeds}",
            "",
            tables(takes, judge.own),
            "",
        ]
    )
    if options.output is not None:
        options.output.write_text(report, encoding="utf-8")
    print(report)


if __name__ == "__main__":
    main()
