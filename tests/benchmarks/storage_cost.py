"""What it costs a fine-tune to keep its checkpoints in a storage as well, beside the local disk alone.

    python -m tests.benchmarks.storage_cost --model mini --out tests/benchmarks/results/2026-11-25-storage-cost.md

The same job in one process, with a checkpoint at the end of each epoch, in turns: on the local disk alone, with a
storage in another folder of it (`file://`), and with an S3 server on this machine (moto, a process of its own).
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.benchmarks.machine import describe_machine
from tests.benchmarks.report import footer
from tests.golden import GOLDEN_CHECKPOINT
from tests.object_server import BUCKET, object_server, variables
from tests.training.finetuning import make_job, make_rows, write_dataset
from training.job import FineTuneJob
from training.model.checkpoint.reading import read_config
from training.model.hub.hub import resolve_model
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore
from training.worker import RunStorage, run_worker

LOCAL, FOLDER, SERVER = "local disk alone", "`file://`", "S3 server"
FRAMES_PER_CLIP = 12


class Alone:
    """A worker by itself, which remembers what its steps were."""

    rank, local_rank, world_size = 0, 0, 1

    def __init__(self) -> None:
        self.steps: dict[int, Mapping[str, float]] = {}

    def report(self, metrics: Mapping[str, float], checkpoint_folder: Path | None) -> None:
        """See `WorkerContext`."""
        self.steps[int(metrics["step"])] = metrics

    def tell(self, sentence: str) -> None:
        """See `WorkerContext`."""
        print(sentence)

    def should_stop(self) -> bool:
        """See `WorkerContext`."""
        return False


@dataclass(frozen=True)
class Turn:
    """One way to do the job, once.

    Attributes:
        seconds: that the whole job took.
        processor_seconds: of this process, of all its threads.
        losses: of each step.
    """

    seconds: float
    processor_seconds: float
    losses: tuple[float, ...]


def do_once(job: FineTuneJob, output: Path, location: str | None) -> Turn:
    """Do the whole job in this process."""
    alone = Alone()
    storage = RunStorage(store=ObjectStore(StorageLocation.parse(location))) if location is not None else None
    began, processor = time.perf_counter(), time.process_time()
    run_worker(FineTuneJob.parse({**job.model_dump(), "output": output}), alone, storage=storage)
    took = time.perf_counter() - began, time.process_time() - processor
    return Turn(*took, tuple(line["talker_loss"] for _, line in sorted(alone.steps.items())))


def job_of(model: str, folder: Path, epochs: int, clips: int) -> FineTuneJob:
    """A job of so many epochs of so many clips, with random codes of the model's kind."""
    base = GOLDEN_CHECKPOINT if model == "tiny" else resolve_model(model)
    talker = read_config(base).talker
    rows = make_rows([FRAMES_PER_CLIP] * clips, width=talker.hidden_size, num_codes=64)
    write_dataset(folder / "dataset", rows)
    return make_job(
        folder, base_model=base, num_steps=None, num_epochs=epochs, checkpoint_every=None, micro_batch_tokens=40,
        keep_checkpoints=1, export_at_end=False,
    )  # fmt: skip


def main() -> None:
    """Take turns and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini", help="tiny (of the tests), mini, or a checkpoint folder")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--clips", type=int, default=96, help="in an epoch; four make a step")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", default="nothing", help="what else ran on the machine, as the result says it")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    facts = describe_machine("cpu")
    turns: dict[str, list[Turn]] = {LOCAL: [], FOLDER: [], SERVER: []}
    with tempfile.TemporaryDirectory() as name, object_server() as port:
        folder = Path(name)
        for variable, value in variables(port).items():
            os.environ.pop(variable, None)
            if value is not None:
                os.environ[variable] = value
        job = job_of(options.model, folder, options.epochs, options.clips)
        # Reads the checkpoint and compiles what is compiled once.
        do_once(job, folder / "warm", None)
        for number in range(options.rounds):
            (folder / "storage" / str(number)).mkdir(parents=True)
            places = {
                LOCAL: None,
                FOLDER: f"file://{folder / 'storage' / str(number)}",
                SERVER: f"s3://{BUCKET}/{number}",
            }
            for place in list(places)[number % 3 :] + list(places)[: number % 3]:
                output = folder / f"{number}-{list(places).index(place)}"
                turns[place].append(do_once(job, output, places[place]))
                print(place, turns[place][-1].seconds, turns[place][-1].processor_seconds, flush=True)
        checkpoint = max((folder / "warm" / "checkpoints").iterdir())
        num_bytes = sum(path.stat().st_size for path in checkpoint.rglob("*") if path.is_file())
    report = describe(options, facts, turns, num_bytes)
    options.out.write_text(report, encoding="utf-8")
    print(report)


def describe(options: argparse.Namespace, facts: list[str], turns: dict[str, list[Turn]], num_bytes: int) -> str:
    """The result as a document."""
    local = turns[LOCAL]
    num_steps = len(local[0].losses)
    rows = [_row(place, each, local, options.epochs) for place, each in turns.items()]
    same = all(turn.losses == local[0].losses for each in turns.values() for turn in each)
    counts = f"--model {options.model} --epochs {options.epochs} --clips {options.clips} --rounds {options.rounds}"
    return "\n".join(
        [
            f"# What keeping checkpoints in a storage costs, {datetime.now(UTC):%-d %B %Y}",
            "",
            f"`python -m tests.benchmarks.storage_cost {counts}`: the same fine-tune in one process, in turns,",
            f"{options.rounds} rounds after one that does not count; {options.epochs} epochs of "
            f"{num_steps // options.epochs} steps with a checkpoint of {num_bytes / 1e6:.1f} MB after each, so that",
            "what is more for an epoch is more for a checkpoint. Median, with the smallest and largest round.",
            "",
            "| where | an epoch with its checkpoint | times as long as without a storage, in the same round "
            "| more for each checkpoint | processor time, more for each |",
            "|---|---|---|---|---|",
            *rows,
            "",
            f"The losses of all turns are {'the same to the last bit' if same else 'NOT the same'}. Processor time is",
            "that of the process that trains and uploads, without the server's. Uploads go on while the next steps are",
            "done; the job ends when all of them have.",
            "",
            *footer(options.beside, facts),
        ]
    )


def _row(place: str, turns: list[Turn], local: list[Turn], epochs: int) -> str:
    each = [turn.seconds / epochs for turn in turns]
    cells = [place, f"{statistics.median(each):.2f} s ({min(each):.2f} to {max(each):.2f})"]
    if turns is local:
        return f"| {' | '.join([*cells, '', '', ''])} |"
    ratios = [turn.seconds / other.seconds for turn, other in zip(turns, local, strict=True)]
    later, work = (
        [1000 * (getattr(turn, name) - getattr(other, name)) / epochs for turn, other in zip(turns, local, strict=True)]
        for name in ("seconds", "processor_seconds")
    )
    cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    cells += [f"{statistics.median(more):.0f} ms ({min(more):.0f} to {max(more):.0f})" for more in (later, work)]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
