"""What adapters cost a running batch, how long one takes to load, and whether codes are those of merged weights.

    python -m tests.benchmarks.adapters_serving --shapes assets/mini --shapes 0.6b --layers 4 \\
        --output tests/benchmarks/results/DATE-adapters-serving.md
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import soundfile
import torch
from torch import Tensor

from backend.audio.resample import resample
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.shapes import materialize, read_shapes
from tests.training.adapters import merged, random_adapter
from training.model.checkpoint.adapter_folder import read_adapter
from training.model.checkpoint.writing import save_adapter
from training.model.config import ModelConfig
from training.model.generation.adapter import Adapter
from training.model.generation.frame_loop import FrameLoop, FrameRequest
from training.model.hub.hub import EMBEDDED_FOLDER
from training.model.lora_config import LoraConfig
from training.model.network.talker import Talker
from training.model.network.talker_input import id_positions
from training.model.prompt.prompt import Prompt, PromptHead, x_vector_prompt
from training.model.voice_model import VoiceModel

NUM_TAKES = 8
PROMPT_ROWS = 40
LORA = LoraConfig(rank=16, alpha=32)
"""What runs train unless told otherwise."""

TEXT = "The quick brown fox jumps over the lazy dog, again and again, until it is dark."
NUM_COMPARED = 1000


def main() -> None:
    """Measure, print the report and write it to a file if asked to."""
    options = parse_options()
    torch.set_num_threads(1)
    machine = [*(f"- {fact}" for fact in describe_machine("cpu")), "- One thread; adapters of rank 16 on all layers"]
    lines = ["# Adapters in a running batch", "", *machine, "", *cost(options), "", *loading(options.rounds)]
    if not options.skip_codes:
        lines += ["", *codes()]
    report = "\n".join(lines)
    print(report)
    if options.output is not None:
        options.output.write_text(report + "\n", encoding="utf-8")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.adapters_serving")
    parser.add_argument("--shapes", action="append", required=True, help="0.6b, 1.7b or a folder; repeatable")
    parser.add_argument("--layers", type=int, help="of the talker of public shapes, fewer than it has")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--frames", type=int, default=12, help="of each round")
    parser.add_argument("--skip-codes", action="store_true", help="measure time alone")
    parser.add_argument("--output", type=Path, help="file to write the report to")
    return parser.parse_args()


def cost(options: argparse.Namespace) -> list[str]:
    """Eight takes by the base and by eight adapters, in turns in one loop."""
    rows = []
    for name in options.shapes:
        shapes = read_shapes(name)
        config = ModelConfig.from_json(shapes.model)
        if options.layers and "public" in shapes.name:
            config = replace(config, talker=replace(config.talker, num_hidden_layers=options.layers))
        talker = random_talker(config)
        packed = [Adapter.pack(random_adapter(talker, LORA, seed=one), LORA.scale, talker) for one in range(NUM_TAKES)]
        loop = FrameLoop(talker, config, num_slots=NUM_TAKES, cache_length=256, consume=True)
        kinds: dict[str, Sequence[Adapter | None]] = {
            "base": [None] * NUM_TAKES,
            "one": [packed[0]] * NUM_TAKES,
            "eight": packed,
        }
        times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        for number in range(options.rounds + 1):
            for kind, adapters in kinds.items():
                measured = frames(loop, config, adapters, options.frames)
                if number:  # the first is a warm-up
                    times[kind].append(measured)
        rows += [[f"{shapes.name}, {config.talker.num_hidden_layers} layers", *row] for row in rows_of(times)]
        rows[-1][-1] = f"{packed[0].num_bytes / 2**20:.1f} MiB"
    head = ["shapes", "takes by", "wall, ms per frame", "processor, ms per frame", "speed, of the base's", "an adapter"]
    return [
        f"Eight takes, {options.frames} frames a round, medians of {options.rounds} rounds in turns (smallest to "
        "largest). Speed is by processor time, round by round.",
        "",
        *as_table(head, rows),
    ]


def rows_of(times: dict[str, list[tuple[float, float]]]) -> list[list[str]]:
    """One line for each kind of batch."""
    words = {"base": "the base", "one": "one adapter", "eight": "eight adapters"}
    base = [processor for _, processor in times["base"]]
    return [
        [
            words[kind],
            spread([wall * 1e3 for wall, _ in found], "{:.1f}"),
            spread([processor * 1e3 for _, processor in found], "{:.1f}"),
            spread([before / processor for before, (_, processor) in zip(base, found, strict=True)], "{:.2f}"),
            "",
        ]
        for kind, found in times.items()
    ]


def frames(
    loop: FrameLoop, config: ModelConfig, adapters: Sequence[Adapter | None], num_frames: int
) -> tuple[float, float]:
    """Seconds per frame of all takes, on the wall and of the processor, once their prompts are read."""
    ids = [1] * PROMPT_ROWS
    prompt = Prompt(inputs=id_positions(ids, ids, config.talker.num_code_groups))
    for slot, adapter in enumerate(adapters):
        request = FrameRequest(prompt=prompt, seed=slot, max_frames=100, min_frames=100, adapter=adapter)
        loop.admit(slot, request)
    loop.step()
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(num_frames):
        loop.step()
    measured = (time.perf_counter() - wall) / num_frames, (time.process_time() - processor) / num_frames
    for slot in range(len(adapters)):
        loop.release(slot)
    return measured


def loading(num_rounds: int) -> list[str]:
    """Reading and packing an adapter of the 1.7B shapes, by itself and beside a batch of the embedded model."""
    config = ModelConfig.from_json(read_shapes("1.7b").model)
    with torch.device("meta"):
        talker = Talker(config.talker, config.code_predictor)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "adapter"
        row = torch.zeros(config.talker.hidden_size)
        matrices = random_adapter(talker, LORA)
        save_adapter(folder, adapter=matrices, config=LORA, rows={3000: row}, base_name=None, base_digest="0" * 64)
        num_bytes = sum(path.stat().st_size for path in folder.iterdir())
        alone = [load(folder, talker) for _ in range(num_rounds)]
        own = ModelConfig.from_json(read_shapes(str(EMBEDDED_FOLDER)).model)
        loop = FrameLoop(random_talker(own), own, num_slots=NUM_TAKES, cache_length=256)
        quiet = [frames(loop, own, [None] * NUM_TAKES, 12)[0] for _ in range(num_rounds)]
        is_over = threading.Event()
        speaking = threading.Thread(target=lambda: keep_speaking(loop, own, is_over, busy), daemon=True)
        busy: list[float] = []
        speaking.start()
        beside = [load(folder, talker) for _ in range(num_rounds)]
        is_over.set()
        speaking.join()
    rows = [
        ["by itself", *(spread([one[kind] * 1e3 for one in alone], "{:.0f}") for kind in (0, 1)), ""],
        [
            "beside eight takes of the embedded model",
            *(spread([one[kind] * 1e3 for one in beside], "{:.0f}") for kind in (0, 1)),
            f"{spread([one * 1e3 for one in quiet], '{:.1f}')} before, {spread([one * 1e3 for one in busy], '{:.1f}')}",
        ],
    ]
    head = ["an adapter of the 1.7B shapes is loaded", "wall, ms", "of the process, ms", "their frames, ms"]
    return [f"The adapter has {num_bytes / 2**20:.0f} MiB on the disk.", "", *as_table(head, rows)]


def keep_speaking(loop: FrameLoop, config: ModelConfig, is_over: threading.Event, kept: list[float]) -> None:
    """Make frames until told to stop, and note how long they took on the wall."""
    while not is_over.is_set():
        kept.append(frames(loop, config, [None] * NUM_TAKES, 12)[0])


def load(folder: Path, talker: Talker) -> tuple[float, float]:
    """Seconds to read and pack an adapter, on the wall and of the processor."""
    wall, processor = time.perf_counter(), time.process_time()
    stored = read_adapter(folder)
    Adapter.pack(stored.weights, stored.header.scale, talker)
    return time.perf_counter() - wall, time.process_time() - processor


def codes() -> list[str]:
    """Takes of the embedded model by adapters in batches, against each by itself with merged weights."""
    model = VoiceModel.load(EMBEDDED_FOLDER, precision="fp32", device="cpu")
    samples, sample_rate = soundfile.read(EMBEDDED_FOLDER.parent / "voices" / "rufus.flac", dtype="float32")
    speaker = model.embed_speaker(torch.from_numpy(resample(samples, sample_rate, model.speaker_sample_rate)))
    tokenizer = model.text_tokenizer
    head = PromptHead(role_ids=tokenizer.role_ids, language="english", has_speaker=True)
    prompt = x_vector_prompt(model.config, head, tokenizer.encode_text(TEXT))
    take = FrameRequest(prompt=prompt, speaker=speaker, sampling=model.default_sampling, max_frames=120)
    num_frames, num_same, num_takes, num_apart = 0, 0, 0, 0
    loop = FrameLoop(model.talker, model.config, num_slots=NUM_TAKES, cache_length=512)
    while num_frames < NUM_COMPARED:
        seeds = range(num_takes, num_takes + NUM_TAKES)
        matrices = [random_adapter(model.talker, LORA, seed=seed) for seed in seeds]
        takes = [replace(take, seed=seed) for seed in seeds]
        packed = [Adapter.pack(one, LORA.scale, model.talker) for one in matrices]
        together = spoken(loop, [replace(one, adapter=its) for one, its in zip(takes, packed, strict=True)])
        for one, its, found in zip(takes, matrices, together, strict=True):
            alone = FrameLoop(merged(model.talker, its, LORA), model.config, cache_length=512)
            expected = spoken(alone, [one])[0]
            shorter = min(len(found), len(expected))
            is_same = (found[:shorter] == expected[:shorter]).all(dim=1)
            first = int(is_same.long().cumprod(0).sum())
            num_frames, num_same = num_frames + shorter, num_same + first
            num_apart += first < shorter or len(found) != len(expected)
        num_takes += NUM_TAKES
    return [
        f"{num_takes} takes of the embedded model by as many adapters, eight at a time, against each alone with merged "
        f"weights, float32: {num_frames} frames; {num_apart} takes differ in a code; {num_same} frames come before one "
        "that differs."
    ]


def spoken(loop: FrameLoop, takes: Sequence[FrameRequest]) -> list[Tensor]:
    """Codes (frames, codebooks) of takes that are made together."""
    kept: list[list[Tensor]] = [[] for _ in takes]
    for slot, take in enumerate(takes):
        loop.admit(slot, take)
    while len(loop.free_slots) < loop.num_slots:
        step = loop.step()
        for slot in step.spoke:
            kept[slot].append(step.codes_BQ[slot])
    return [torch.stack(one) for one in kept]


def random_talker(config: ModelConfig) -> Talker:
    """A talker with random weights that fit 16 bits, as published ones do."""
    with torch.device("meta"):
        talker = Talker(config.talker, config.code_predictor)
    made = materialize(talker, torch.float32, torch.device("cpu"))
    assert isinstance(made, Talker)
    for parameter in made.parameters():
        parameter.copy_(parameter.bfloat16())
    return made


def as_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def spread(numbers: Sequence[float], form: str) -> str:
    """Median with the smallest and the largest."""
    if not numbers:
        return "none"
    middle, least, most = statistics.median(numbers), min(numbers), max(numbers)
    return f"{form.format(middle)} ({form.format(least)} to {form.format(most)})"


if __name__ == "__main__":
    main()
