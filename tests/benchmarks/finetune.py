"""How fast a fine-tune is by strategy and number of workers, and what each worker holds.

    python -m tests.benchmarks.finetune --model assets/mini --output tests/benchmarks/results/DATE-finetune.md

Codes are random: speed does not depend on them. The jobs run as they do under torchrun, one after another, several
rounds of all of them, so that every job has its turn in every round.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from backend.runs.planning.base_model import fingerprint_of
from tests.benchmarks.finetune_launchers import compare_launchers
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.report import Spread
from tests.golden import GOLDEN_CHECKPOINT
from tests.training.finetuning import make_job, make_rows, padding_share, run_stages, stage, task, write_dataset
from training.data.code_rows import read_card, write_card
from training.job import STRATEGIES
from training.memory_plan import network_tensors, worker_memory
from training.model.checkpoint.reading import read_config
from training.model.config import ModelConfig
from training.model.prompt.length import FRAMES_PER_SECOND
from training.worker import plan_data

GIB = 2**30
CHECKPOINT_EVERY = 4
# The first steps of a process allocate, and DDP builds its buckets.
WARMUP_STEPS = 2
NUM_CLIPS = 48
CONTRACT = Path(GOLDEN_CHECKPOINT).parent / "contract" / "1.7b-base.json"

HOW_TO_READ = """\
Milliseconds per step: from one report to the next, median over the steps without a checkpoint within a round, then
median over {num_rounds} rounds with the smallest and the largest. Stall: what a step with the start of a checkpoint
takes on top. Padding: of the rows that are computed, those that hold nothing. State: weights, gradients and optimizer
of the fullest worker, measured, and by plan. Every step trains on the same {micro_batches} micro-batches of up to
{rows} rows, packed unless another way is named, whatever the strategy; fp32 on {threads} thread per worker. Ways to
share a micro-batch are compared by processor time: the fewer rows are padding, the more speech a step has. It includes
checkpoints, and depends little on what else the machine does."""


@dataclass
class Case:
    """One line of a table."""

    name: str
    num_workers: int
    changes: dict[str, Any]
    padding_share: float = 0.0
    rounds: list[list[dict[str, float]]] = field(default_factory=list)

    def intervals(self, reports: list[dict[str, float]], *, with_checkpoint: bool) -> list[float]:
        """Milliseconds from report to report; a checkpoint starts in the interval that ends with its step's report."""
        pairs = zip(reports[WARMUP_STEPS - 1 :], reports[WARMUP_STEPS:], strict=False)
        # The last step waits for its checkpoint to be written, which no other step does.
        kept = [(after["at"] - before["at"], int(after["step"])) for before, after in pairs][:-1]
        return [1000 * seconds for seconds, step in kept if (step % CHECKPOINT_EVERY == 0) == with_checkpoint]

    def milliseconds(self) -> Spread:
        """Per step, over the rounds."""
        return Spread.of([statistics.median(self.intervals(one, with_checkpoint=False)) for one in self.rounds])

    def stall(self) -> Spread:
        """What a checkpoint adds to its step."""
        return Spread.of(
            [
                statistics.median(self.intervals(one, with_checkpoint=True))
                - statistics.median(self.intervals(one, with_checkpoint=False))
                for one in self.rounds
            ]
        )

    def clips_per_second(self) -> float:
        """Clips of the timed steps by their time, in the median round."""
        rates = []
        for one in self.rounds:
            clips = statistics.mean(report["clips_per_second"] * report["seconds_per_step"] for report in one)
            rates.append(clips / statistics.median(self.intervals(one, with_checkpoint=False)) * 1000)
        return statistics.median(rates)

    def processor_milliseconds(self) -> Spread:
        """Per second of speech, on all workers together if they take what the first does."""
        rates = []
        for one in self.rounds:
            first, last = one[WARMUP_STEPS - 1], one[-2]
            frames = sum(report["frames_per_second"] * report["seconds_per_step"] for report in one[WARMUP_STEPS:-1])
            milliseconds = 1000 * self.num_workers * (last["processor"] - first["processor"])
            rates.append(milliseconds * FRAMES_PER_SECOND / frames)
        return Spread.of(rates)

    def state_bytes(self) -> float:
        """Of the fullest worker."""
        return self.rounds[0][-1]["state_bytes"]


def main() -> None:
    """Measure, print the report and write it to a file if asked to."""
    options = parse_options()
    config = read_config(options.model)
    cases = [case for case in make_cases(options) if options.only is None or options.only in case.name]
    parts = write_head(options, config)
    with tempfile.TemporaryDirectory(prefix="encore-finetune-") as folder:
        write_clips(Path(folder), config)
        if not options.only_launchers:
            measure(Path(folder), options, cases)
            parts += ["", *write_table(options, config, cases), "", *plan_of_large_model()]
        if not options.without_ray and options.only is None:
            parts += ["", *measure_launchers(Path(folder), options)]
    report = "\n".join(parts)
    print(report)
    if options.output is not None:
        options.output.write_text(report + "\n", encoding="utf-8")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path(GOLDEN_CHECKPOINT), help="a base checkpoint's folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=14, help="per job and round")
    parser.add_argument("--launcher-steps", type=int, default=40, help="per round under Ray Train and torchrun")
    parser.add_argument("--launcher-workers", type=int, default=2, help="under Ray Train and torchrun")
    parser.add_argument("--micro-batch-tokens", type=int, default=512)
    parser.add_argument("--without-deepspeed", action="store_true")
    parser.add_argument("--without-ray", action="store_true", help="do not compare Ray Train with torchrun")
    parser.add_argument("--only", metavar="WORD", help="the cases with this word in their names, and no launchers")
    parser.add_argument("--only-launchers", action="store_true", help="compare Ray Train with torchrun, nothing else")
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def make_cases(options: argparse.Namespace) -> Iterator[Case]:
    """Every strategy with one and two workers, then what else there is to choose, with one."""
    strategies = ["ddp", "fsdp2", "fsdp2-no-reshard"]
    strategies += [] if options.without_deepspeed else ["zero1", "zero2", "zero3"]
    for num_workers in (1, 2):
        for strategy in strategies:
            if num_workers > 1 or not strategy.startswith("fsdp2"):
                yield Case(strategy, num_workers, {"strategy": strategy})
    for fraction in (0.5, 0.25, 0.0625):
        yield Case(f"ddp, code predictor on {fraction:g} of the frames", 1, {"code_predictor_fraction": fraction})
    # With the code predictor as the quick preset has it, which knows no padding and would hide what the talker gains.
    for name, batching in (("packed", "packed"), ("in rows, by length", "bucketed"), ("in rows, as drawn", "shuffled")):
        changes = {"batching": batching, "code_predictor_fraction": 0.25}
        yield Case(f"ddp, code predictor on 0.25, clips {name}", 1, changes)
    yield Case("ddp, activations computed twice", 1, {"activation_checkpointing": True})


def write_clips(folder: Path, config: ModelConfig) -> None:
    """A dataset of random codes for all jobs."""
    lengths = random.Random(1)
    counts = [lengths.randint(20, 130) for _ in range(NUM_CLIPS)]
    rows = make_rows(counts, width=config.talker.hidden_size, num_codes=config.code_predictor.vocab_size)
    write_dataset(folder / "dataset", rows)


def measure(folder: Path, options: argparse.Namespace, cases: list[Case]) -> None:
    """Let every case have its turn in every round."""
    results = folder / "results"
    with_deepspeed = any(case.name.startswith("zero") for case in cases)
    for number in range(options.rounds):
        stages = []
        for case in cases:
            _, training_set, batches = plan_data(make_benchmark_job(folder, options, "padding", case))
            case.padding_share = padding_share(batches, training_set)
        for num_workers in (1, 2):
            chosen = [(index, case) for index, case in enumerate(cases) if case.num_workers == num_workers]
            jobs = [
                task(f"{number}-{index}", make_benchmark_job(folder, options, f"{number}-{index}", case))
                for index, case in chosen
            ]
            stages.append(stage(num_workers, jobs))
        run_stages(folder / f"round-{number}", stages, results, with_deepspeed=with_deepspeed, deadline_seconds=None)
        for index, case in enumerate(cases):
            case.rounds.append(json.loads((results / f"{number}-{index}.json").read_text())["reports"])


def measure_launchers(folder: Path, options: argparse.Namespace) -> list[str]:
    """The same job by both launchers, on the dataset of the strategies."""
    card = read_card(folder / "dataset")
    write_card(folder / "dataset", card.model_copy(update={"tokenizer_fingerprint": fingerprint_of(options.model)}))
    fields = {
        "strategy": "ddp",
        "num_workers": options.launcher_workers,
        "num_steps": options.launcher_steps,
        "micro_batch_tokens": options.micro_batch_tokens,
        "checkpoint_every": options.launcher_steps,
        "precision": "fp32",
        "device": "cpu",
    }
    return compare_launchers(folder, folder / "dataset", options.model, fields, options.rounds)


def make_benchmark_job(folder: Path, options: argparse.Namespace, name: str, case: Case) -> Any:
    """One case's job, in a folder of its own."""
    fields = {
        "base_model": options.model,
        "output": folder / name,
        "num_workers": case.num_workers,
        "num_steps": options.steps,
        "micro_batch_tokens": options.micro_batch_tokens,
        "in_context_ratio": 0.0,
        "checkpoint_every": CHECKPOINT_EVERY,
        "keep_checkpoints": 1,
        "export_at_end": False,
    }
    return make_job(folder, **{**fields, **case.changes})


def write_head(options: argparse.Namespace, config: ModelConfig) -> list[str]:
    """What was measured, and on what."""
    return [
        f"# Fine-tuning, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "",
        *(f"- {fact}" for fact in describe_machine("cpu")),
        "",
        f"Model: {options.model.name}, {config.talker.num_hidden_layers} layers of {config.talker.hidden_size}.",
    ]


def write_table(options: argparse.Namespace, config: ModelConfig, cases: list[Case]) -> list[str]:
    """The measurements of all cases as lines of Markdown."""
    lines = [
        HOW_TO_READ.format(
            num_rounds=options.rounds, micro_batches=4, rows=options.micro_batch_tokens, threads=torch.get_num_threads()
        ),
        "",
        "| strategy | workers | ms per step | clips/s | processor ms per second of speech | padding "
        "| checkpoint stall, ms | state, MiB | planned, MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        strategy = case.changes.get("strategy", "ddp")
        planned = worker_memory(config, strategy, case.num_workers, compute_bytes=4).state.total
        lines.append(
            f"| {case.name} | {case.num_workers} | {case.milliseconds().show(0)} | {case.clips_per_second():.1f} | "
            f"{case.processor_milliseconds().show(0)} | {100 * case.padding_share:.1f} % | "
            f"{case.stall().show(0)} | {case.state_bytes() / 2**20:.2f} | {planned / 2**20:.2f} |"
        )
    return lines


def plan_of_large_model() -> list[str]:
    """What every strategy would take on machines that are not here."""
    large = ModelConfig.from_json(json.loads(CONTRACT.read_text(encoding="utf-8"))["config"])
    return ["## Planned memory of the 1.7B shapes, bf16 arithmetic, 1024 rows", "", memory_table(large)]


def memory_table(config: ModelConfig, *, compute_bytes: int = 2, micro_batch_tokens: int = 1024) -> str:
    """Memory per worker of every strategy with 1, 2, 4 and 8 workers, as a Markdown table in GiB."""
    counts = (1, 2, 4, 8)
    tensors = network_tensors(config)
    lines = [
        f"{(tensors.num_trained + tensors.num_frozen) / 1e9:.2f} billion parameters, {tensors.num_frozen / 1e9:.2f} of "
        "them frozen; GiB per worker: weights + gradients + optimizer (with gathered weights and activations)",
        "",
        f"| strategy | {' | '.join(f'{count} workers' if count > 1 else '1 worker' for count in counts)} |",
        f"|---|{'---|' * len(counts)}",
    ]
    for strategy in STRATEGIES:
        cells = []
        for count in counts:
            if strategy == "fsdp2-hybrid" and count < 4:
                cells.append("")
                continue
            memory = worker_memory(
                config,
                strategy,
                count,
                compute_bytes=compute_bytes,
                micro_batch_tokens=micro_batch_tokens,
                tensors=tensors,
            )
            cells.append(f"{memory.state.total / GIB:.1f} ({memory.total / GIB:.1f})")
        lines.append(f"| {strategy} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
