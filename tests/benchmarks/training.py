"""What a training step takes, beside the published fine-tuning script on the same clips.

    python -m tests.benchmarks.training --shapes mini --reference-python PYTHON \\
        --output tests/benchmarks/results/DATE-training.md

PYTHON is an interpreter with `qwen-tts` installed; without it only our own loop is measured. Every party has a new
process for each of its turns, so no two hold their weights at the same time, and each has a peak of its own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.benchmarks.machine import describe_machine
from tests.benchmarks.process import MeasuredProcess
from tests.benchmarks.shapes import materialize, read_shapes
from tests.benchmarks.training_report import Party, table
from training.model.config import ModelConfig
from training.model.network.speaker_encoder import SpeakerEncoder
from training.model.network.talker import Talker

MINI = Path(__file__).parents[2] / "assets" / "mini"
MICRO_BATCHES, NUM_TEXT_IDS, MEL_FRAMES = 4, 40, 470
"""Micro-batches as the script has them; a sentence; a reference of five seconds."""

HOW_TO_READ = """\
Medians of {rounds} rounds with the smallest and the largest round, where there is more than one. In every round each
party had its turn of {steps} steps after one that does not count, in a new process. A step has 4 micro-batches of
{clips} clips of 2 to 10 seconds, the same clips in the same micro-batches for everybody; codes and texts are random.
Processor time depends little on what else the machine does, and samples per second much. Peak memory: the most that a
process held while it loaded, and in its steps.

As published: bfloat16 weights, sdpa attention for want of a GPU, all weights trained, losses as the script has them.
Equal mathematics: the losses aligned with generation, all weights trained with AdamW, the code predictor on all frames.
Then Encore with the text embedding frozen (the default), and with the code predictor on a quarter of the frames (as the
preset Quick): its gradient is the same on average only. Encore's weights are float32 in any case; bf16 is the
arithmetic."""


@dataclass(frozen=True)
class Side:
    """Who has a turn: `job` are fields of ours, `reference` is how the reference is set up."""

    name: str
    job: dict[str, Any] | None = None
    reference: dict[str, Any] | None = None
    answers: list[dict[str, Any]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)


def make_sides(options: argparse.Namespace) -> list[Side]:
    """The reference first, then ours at equal mathematics, then what our defaults change."""
    whole = {"train_text_embedding": True}
    sides = [
        Side("reference, as published, bf16", reference={"precision": "bf16", "aligned": False}),
        Side("reference, equal mathematics, fp32", reference={"precision": "fp32", "aligned": True}),
        Side("Encore, equal mathematics, fp32", {"precision": "fp32", **whole}),
        Side("Encore, equal mathematics, fp32, padded rows", {"precision": "fp32", "batching": "shuffled", **whole}),
        Side("Encore, equal mathematics, bf16", {"precision": "bf16", **whole}),
    ]
    usual = "fp32" if options.shapes == "mini" else "bf16"
    sides += [
        Side(f"Encore, text embedding frozen, {usual}", {"precision": usual}),
        Side(f"Encore, Quick, {usual}", {"precision": usual, "code_predictor_fraction": 0.25}),
    ]
    wanted = [side for side in sides if side.reference is None or options.reference_python]
    return [side for side in wanted if not options.only or any(word in side.name for word in options.only)]


def main() -> None:
    """Measure, print the report and write it to a file if asked to."""
    options = parse_options()
    torch.set_num_threads(1)
    machine = describe_machine("cpu")
    sides = make_sides(options)
    with tempfile.TemporaryDirectory(prefix="encore-training-") as folder:
        name, setup = write_inputs(Path(folder), options)
        about: dict[str, Any] = {}
        for number in range(options.rounds):
            for side in sides if number % 2 else reversed(sides):
                said = take_turn(side, setup, options)
                about |= said if side.reference is not None else {}
                print(f"round {number + 1}, {side.name}: {side.answers[-1]}", file=sys.stderr, flush=True)
    report = write_report(options, name, machine, about, sides)
    print(report)
    if options.output is not None:
        with options.output.open("a", encoding="utf-8") as file:
            file.write(report + "\n")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.training", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--shapes", default="mini", choices=["mini", "0.6b", "1.7b"])
    parser.add_argument("--layers", type=int, help="of talker and code predictor; what the shapes have if not given")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3, help="of the optimizer, in each turn")
    parser.add_argument("--clips", type=int, default=2, help="in a micro-batch; 2 is the script's default")
    parser.add_argument("--threads", type=int, default=1, help="of each process; only one works at a time")
    parser.add_argument("--only", action="append", metavar="WORDS", help="the parties with these words in their names")
    parser.add_argument("--reference-python", help="an interpreter that has the package qwen-tts")
    parser.add_argument("--output", type=Path, help="add the report to this file")
    return parser.parse_args()


def write_inputs(folder: Path, options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The checkpoint and the clips that all parties are given; a name for the shapes, and the setup of a party."""
    shapes = read_shapes(str(MINI) if options.shapes == "mini" else options.shapes)
    if options.layers is not None:
        for part in (shapes.model["talker_config"], shapes.model["talker_config"]["code_predictor_config"]):
            part["num_hidden_layers"] = options.layers
            part.pop("layer_types", None)
    config = ModelConfig.from_json(shapes.model)
    (folder / "config.json").write_text(json.dumps(shapes.model), encoding="utf-8")
    if options.shapes == "mini" and options.layers is None:
        shutil.copy(MINI / "model.safetensors", folder)
    else:
        write_random_weights(folder, config)
    encoder = SpeakerEncoder(config.speaker_encoder)
    weights = load_file(folder / "model.safetensors")
    prefix = "speaker_encoder."
    encoder.load_state_dict(
        {name.removeprefix(prefix): tensor.float() for name, tensor in weights.items() if name.startswith(prefix)}
    )
    mel = torch.randn(MEL_FRAMES, config.speaker_encoder.mel_dim, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        speaker = encoder.eval()(mel.unsqueeze(0))[0]
    layers = f"{config.talker.num_hidden_layers} layers of {config.talker.hidden_size}"
    return f"{shapes.name}, talker of {layers}, code predictor of {config.code_predictor.num_hidden_layers} layers", {
        "checkpoint": str(folder),
        "threads": options.threads,
        "role_ids": [1, 2, 3],
        "clips": draw_clips(config, options.clips * MICRO_BATCHES * (options.steps + 1)),
        "clips_per_micro_batch": options.clips,
        "micro_batches": MICRO_BATCHES,
        "mel": mel.tolist(),
        "speaker": speaker.tolist(),
        "learning_rate": 2e-6,
    }


def write_random_weights(folder: Path, config: ModelConfig) -> None:
    """A whole checkpoint's weights in bfloat16, as public ones are stored."""
    torch.manual_seed(0)
    with torch.device("meta"):
        parts = {
            "talker.": Talker(config.talker, config.code_predictor),
            "speaker_encoder.": SpeakerEncoder(config.speaker_encoder),
        }
    tensors = {
        prefix + name: tensor
        for prefix, part in parts.items()
        for name, tensor in materialize(part, torch.bfloat16, torch.device("cpu")).state_dict().items()
    }
    save_file(tensors, folder / "model.safetensors")


def draw_clips(config: ModelConfig, count: int) -> list[dict[str, Any]]:
    """Clips of 2 to 10 seconds with random codes and texts."""
    draw = random.Random(1)
    num_codes, num_books = config.code_predictor.vocab_size, config.talker.num_code_groups
    clips = []
    for _ in range(count):
        frames = draw.randint(25, 125)
        codes = [[draw.randrange(num_codes) for _ in range(num_books)] for _ in range(frames)]
        clips.append({"text_ids": [draw.randrange(4, 250) for _ in range(NUM_TEXT_IDS)], "codes": codes})
    return clips


def take_turn(side: Side, setup: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Start a party, warm it up and measure it; what it says about itself."""
    if side.reference is not None:
        command = [options.reference_python, str(Path(__file__).with_name("reference_training.py"))]
        process = MeasuredProcess(side.name, command, {**setup, **side.reference}, options.threads)
    else:
        command = [sys.executable, "-m", "tests.benchmarks.training_worker"]
        process = MeasuredProcess(side.name, command, {**setup, "job": side.job}, options.threads)
    try:
        about = process.ready()
        side.losses[:] = process.ask({"steps": 0})["losses"]
        process.ask({"steps": 1})
        side.answers.append({**process.ask({"steps": options.steps}), "loading_bytes": about.pop("loading_bytes")})
    finally:
        process.close()
    return about


def write_report(
    options: argparse.Namespace, name: str, machine: Sequence[str], about: dict[str, Any], sides: Sequence[Side]
) -> str:
    """The result as Markdown, with everything needed to judge and repeat it."""
    layers = f" --layers {options.layers}" if options.layers else ""
    command = f"--shapes {options.shapes}{layers} --rounds {options.rounds} --steps {options.steps}"
    command += f" --clips {options.clips} --threads {options.threads}"
    versions = ", ".join(f"{name} {version}" for name, version in about.items())
    return "\n".join(
        [
            f"# Training, {name}",
            "",
            f"{datetime.datetime.now(tz=datetime.UTC).date()}, `python -m tests.benchmarks.training {command}`",
            "",
            *(f"- {line}" for line in machine),
            f"- Reference: {versions}" if versions else "- No reference was measured.",
            "",
            HOW_TO_READ.format(rounds=options.rounds, steps=options.steps, clips=options.clips),
            "",
            table([Party(side.name, side.answers, side.losses) for side in sides]),
            "",
        ]
    )


if __name__ == "__main__":
    main()
