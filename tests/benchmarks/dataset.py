"""How fast recordings become a dataset: stage by stage in one process, and on Ray Data with several actors.

    python -m tests.benchmarks.dataset --model mini --output tests/benchmarks/results/DATE-dataset.md

Recordings are made by flite. Each round has new homes, so nothing is found ready.
"""

from __future__ import annotations

import argparse
import datetime
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import ray

from backend.cluster.connect import BUILD_DATASET, connect, quiet_ray_data
from backend.dataset.build.build import encoder_facts
from backend.dataset.build.context import BuildContext
from backend.dataset.build.passes import run_in_one_process, run_passes
from backend.dataset.build.progress import StageCounts, shared_counts
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.stage_counts import STAGES, Stage
from backend.dataset.sources.find import SourceRecording, open_sources
from backend.dataset.storage.workspace import DatasetWorkspace
from backend.transcription.select_transcriber import select_transcriber
from tests.backend.dataset.spoken import SENTENCES, speak
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.process_tree import PeakMemory, ProcessorTime
from tests.benchmarks.report import Spread

VOICES = ("slt", "rms", "awb", "kal")


@dataclass(frozen=True)
class Taken:
    """What a build took; processor time is that of all its processes."""

    wall_seconds: float
    cpu_seconds: float


class TimedCounts(StageCounts):
    """Counts that also tell how long each stage took, where stages follow each other in one process."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[Stage, float] = dict.fromkeys(STAGES, 0.0)
        self._since = time.perf_counter()

    def begin(self, stage: Stage) -> bool:
        self._since = time.perf_counter()
        return super().begin(stage)

    def add(self, stage: Stage, row: str, outcome: str, audio_seconds: float = 0.0) -> bool:
        self.seconds[stage] += time.perf_counter() - self._since
        self._since = time.perf_counter()
        return super().add(stage, row, outcome, audio_seconds)


def main() -> None:
    """Measure, print the report and write it to a file if asked to."""
    options = parse_options()
    logging.getLogger("ray").setLevel(logging.WARNING)
    # Ray's workers step back behind everything else on the machine, which a single process does not.
    os.environ.setdefault("RAY_worker_niceness", "0")
    machine = describe_machine("cpu")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_recordings(folder / "recordings", options.recordings, options.sentences)
        job = BuildJob.parse(
            "bench", [folder / "recordings"], model=options.model, whisper=options.whisper, num_actors=options.actors[0]
        )
        alone: list[TimedCounts] = []
        taken: dict[str, list[Taken]] = {"one process": [], "Ray Data": []}
        more: dict[int, list[Taken]] = {actors: [] for actors in options.actors[1:]}
        memory: list[tuple[int, float]] = []
        began = time.perf_counter()
        with connect(BUILD_DATASET):
            quiet_ray_data()
            start_seconds = time.perf_counter() - began
            for number in range(options.rounds):
                counts = TimedCounts()
                taken["one process"].append(measure(job, folder / f"alone-{number}", counts, run_in_one_process))
                alone.append(counts)
                taken["Ray Data"].append(measure(job, folder / f"ray-{number}", shared_counts(), run_passes))
                for actors, rounds in more.items():
                    larger = job.model_copy(update={"num_actors": actors})
                    rounds.append(measure(larger, folder / f"ray-{actors}-{number}", shared_counts(), run_passes))
            for times in (1, options.times_as_many) if options.times_as_many else ():
                make_recordings(folder / f"times-{times}", times * options.recordings, options.sentences)
                many = job.model_copy(update={"recordings": (str(folder / f"times-{times}"),)})
                with PeakMemory() as peak:
                    measure(many, folder / f"memory-{times}", shared_counts(), run_passes)
                memory.append((times * options.recordings, peak.peak_mib))
            cores = ray.cluster_resources().get("CPU", 0)
    report = write_report(options, machine, alone, taken, more, memory, start_seconds, cores)
    print(report)
    if options.output is not None:
        options.output.write_text(report + "\n", encoding="utf-8")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.dataset", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--model", default="mini", help="mini, a checkpoint folder or a hub id")
    parser.add_argument("--whisper", default="none", help="a Whisper model, mini or none (texts come along)")
    parser.add_argument("--recordings", type=int, default=16)
    parser.add_argument("--sentences", type=int, default=4, help="per recording")
    parser.add_argument("--actors", type=int, nargs="+", default=[2], help="per pass; more numbers: by processor time")
    parser.add_argument("--rounds", type=int, default=3, help="0 looks at memory only")
    parser.add_argument("--times-as-many", type=int, default=4, help="recordings, to see memory grow; 0 does not look")
    parser.add_argument("--output", type=Path, help="write the report here as well")
    return parser.parse_args()


def make_recordings(folder: Path, num_recordings: int, num_sentences: int) -> None:
    """Recordings with their texts; no two are the same."""
    for index in range(num_recordings):
        chosen = [SENTENCES[(index + offset) % len(SENTENCES)] for offset in range(num_sentences)]
        text = " ".join([*chosen, f"This was recording number {index}."])
        wav = speak(folder / f"{index:03}.wav", text, VOICES[index % len(VOICES)])
        wav.with_suffix(".txt").write_text(text)


def measure(
    job: BuildJob,
    home: Path,
    counts: StageCounts,
    run: Callable[[Sequence[SourceRecording], BuildContext], dict[str, str]],
) -> Taken:
    """What all stages take, from an empty home."""
    encoder = encoder_facts(job.model, job.device)
    with open_sources(job, DatasetWorkspace(home)) as recordings:
        context = BuildContext(
            home=home,
            job=job,
            model_folder=Path(encoder.folder),
            encoder_identity=encoder.identity,
            transcriber=select_transcriber(job.whisper, job.language).source,
            language_code="en",
            counts=counts,
        )
        sources = [found.source for found in recordings if found.source is not None]
        began = time.perf_counter()
        with ProcessorTime() as processor:
            problems = run(sources, replace(context))
        taken = Taken(wall_seconds=time.perf_counter() - began, cpu_seconds=processor.seconds)
    assert not problems, problems
    shutil.rmtree(home)
    return taken


def write_report(
    options: argparse.Namespace,
    machine: list[str],
    alone: list[TimedCounts],
    taken: dict[str, list[Taken]],
    more: dict[int, list[Taken]],
    memory: list[tuple[int, float]],
    start_seconds: float,
    cores: float,
) -> str:
    """The report as Markdown."""
    lines = [
        f"# Recordings to a dataset, {datetime.date.today().isoformat()}",
        "",
        *(f"- {line}" for line in machine),
        f"- {options.recordings} recordings; model {options.model}, whisper {options.whisper}; Ray on {cores:g} cores "
        f"with {options.actors[0]} actors per pass; one thread per process",
        f"- Starting Ray took {start_seconds:.1f} s and is not in the table.",
        *(write_paces(alone, taken) if alone else []),
        *(
            f"| processor time of {actors} actors : {options.actors[0]} | {_work_of(rounds, taken['Ray Data'])} |"
            for actors, rounds in more.items()
            if rounds
        ),
    ]
    if memory:
        lines += [
            "",
            "| recordings | most memory of driver and workers, MiB |",
            "|---|---|",
            *(f"| {num_recordings} | {mib:.0f} |" for num_recordings, mib in memory),
        ]
    return "\n".join(lines)


def write_paces(alone: list[TimedCounts], taken: dict[str, list[Taken]]) -> list[str]:
    """The table of how fast each stage and the whole is."""
    audio = {count.stage: count.audio_seconds for count in alone[0].all()}
    lines = ["", f"| of {audio['decode']:.0f} s of sound | seconds of audio per second |", "|---|---|"]
    for stage in STAGES:
        paces = [audio[stage] / counts.seconds[stage] for counts in alone if audio[stage] and counts.seconds[stage]]
        if paces:
            lines.append(f"| {stage}, one process | {Spread.of(paces).show(1)} |")
    for name, rounds in taken.items():
        paces = [audio["decode"] / each.wall_seconds for each in rounds]
        lines.append(f"| **all stages, {name}** | {Spread.of(paces).show(1)} |")
    one, many = taken["one process"], taken["Ray Data"]
    gains = [alone.wall_seconds / shared.wall_seconds for alone, shared in zip(one, many, strict=True)]
    best = min(each.wall_seconds for each in one) / min(each.wall_seconds for each in many)
    busy = {name: [each.cpu_seconds / each.wall_seconds for each in rounds] for name, rounds in taken.items()}
    lines += [
        f"| **times as fast with Ray Data** | {Spread.of(gains).show(2)} |",
        f"| times as fast with Ray Data, best round against best round | {best:.2f} |",
        f"| cores at work, one process | {Spread.of(busy['one process']).show(2)} |",
        f"| cores at work, Ray Data | {Spread.of(busy['Ray Data']).show(2)} |",
        f"| processor time of Ray Data : one process | {_work_of(many, one)} |",
    ]
    return lines


def _work_of(rounds: list[Taken], before: list[Taken]) -> str:
    """How much processor time each round took of that of another way in the same round."""
    pairs = zip(rounds, before, strict=True)
    return Spread.of([now.cpu_seconds / then.cpu_seconds for now, then in pairs]).show(2)


if __name__ == "__main__":
    main()
