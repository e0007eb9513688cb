"""One party of the serving benchmark in its own process, and its listeners. Started by `serving.py`."""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from backend.serving.engine.engine import Engine
from backend.serving.engine.take_stream import PlaybackClock
from tests.benchmarks.shapes import materialize, read_shapes
from tests.golden import GOLDEN_CHECKPOINT
from tests.single_take import Synthesizer
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.model.config import ModelConfig, SpeechTokenizerConfig
from training.model.device import choose_device, supports_bf16
from training.model.generation.take_request import TakeRequest, VoicePrompt
from training.model.network.talker import Talker
from training.model.project import PROJECT_FOLDER
from training.model.prompt.text_tokenizer import TextTokenizer
from training.model.sampling_settings import Sampling
from training.model.voice_model import VoiceModel, choose_precision

SENTENCES = PROJECT_FOLDER / "assets" / "evaluation" / "sentences.txt"


@dataclass(frozen=True)
class Heard:
    """What one listener experienced of one take."""

    sound_seconds: float
    first_audio_seconds: float
    num_underruns: int
    max_pause_seconds: float


class ServingWorker:
    """Serves one load after another, the way its party does."""

    def __init__(self, setup: dict[str, Any]) -> None:
        torch.set_num_threads(setup["threads"])
        torch.manual_seed(0)
        self.model = _random_model(setup) if setup["shapes"] else _load_model(setup)
        if self.model.is_small and self.model.device.type == "cpu":
            torch.set_num_threads(1)
        self.sentences = SENTENCES.read_text(encoding="utf-8").splitlines()
        self.voice = VoicePrompt(speaker=torch.randn(self.model.config.talker.hidden_size) * 0.1)
        self.max_frames = setup["max_frames"]
        self._one_at_a_time = threading.Lock()
        self.speaker: Engine | Synthesizer
        if setup["party"] == "engine":
            self.slots = setup["slots"]
            self.speaker = Engine(self.model, num_slots=self.slots, cache_length=setup["cache"], max_waiting=1000)
        else:
            self.slots = 1
            self.speaker = Synthesizer(self.model, cache_length=setup["cache"])

    def about(self) -> dict[str, Any]:
        """What the report says of this party."""
        parameters = sum(p.numel() for p in self.model.talker.parameters())
        return {"precision": self.model.precision, "talker_parameters": parameters, "slots": self.slots}

    def serve(self, question: dict[str, int]) -> dict[str, Any]:
        """One load: so many listeners with so many sentences each."""
        started, processor_started = time.monotonic(), time.process_time()
        with ThreadPoolExecutor(question["streams"]) as listeners:
            seeds = [1000 * question["round"] + number * question["takes"] for number in range(question["streams"])]
            heard = [
                take
                for takes in listeners.map(lambda seed: self._listen(seed, question["takes"]), seeds)
                for take in takes
            ]
        return {
            "wall_seconds": time.monotonic() - started,
            "processor_seconds": time.process_time() - processor_started,
            "sound_seconds": sum(take.sound_seconds for take in heard),
            "first_audio_seconds": [take.first_audio_seconds for take in heard],
            "num_underruns": sum(take.num_underruns for take in heard),
            "max_pause_seconds": max(take.max_pause_seconds for take in heard),
            "num_takes": len(heard),
            "peak_bytes": self._peak_bytes(),
        }

    def _listen(self, seed: int, num_takes: int) -> list[Heard]:
        return [self._hear(seed + number) for number in range(num_takes)]

    def _hear(self, seed: int) -> Heard:
        request = TakeRequest(
            text=self.sentences[seed % len(self.sentences)], voice=self.voice, seed=seed, max_frames=self.max_frames
        )
        asked = time.monotonic()
        if isinstance(self.speaker, Engine):
            return self._play(self.speaker.submit(request), asked)
        with self._one_at_a_time:
            return self._play(self.speaker.stream(request), asked)

    def _play(self, chunks: Any, asked: float) -> Heard:  # a handle or a stream: both iterate over samples
        clock, first = PlaybackClock(), 0.0
        for chunk in chunks:
            now = time.monotonic()
            first = first or now - asked
            clock.add(len(chunk) / self.model.sample_rate, now)
        return Heard(clock.seconds, first, clock.num_underruns, clock.max_pause_seconds)

    def _peak_bytes(self) -> int:
        if self.model.device.type == "cuda":
            return torch.cuda.max_memory_allocated()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _load_model(setup: dict[str, Any]) -> VoiceModel:
    return VoiceModel.load(Path(setup["checkpoint"]), precision=setup["precision"], device=setup["device"])


def _random_model(setup: dict[str, Any]) -> VoiceModel:
    """Public shapes with random weights, and the tiny checkpoint's text tokenizer."""
    shapes, device = read_shapes(setup["shapes"]), choose_device(setup["device"])
    config = ModelConfig.from_json(shapes.model)
    with torch.device("meta"):
        talker = Talker(config.talker, config.code_predictor)
    precision = choose_precision(setup["precision"], device, sum(p.numel() for p in talker.model.layers.parameters()))
    talker_dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    made = materialize(talker, talker_dtype, device)
    assert isinstance(made, Talker)
    tokenizer = SpeechTokenizer(SpeechTokenizerConfig.from_json(shapes.speech_tokenizer)).to(device).eval()
    if precision != "fp32" and supports_bf16(device):
        tokenizer.use_decoder_dtype(torch.bfloat16)
    return VoiceModel(
        folder=Path(shapes.name),
        config=config,
        talker=made,
        speaker_encoder=None,
        speech_tokenizer=tokenizer,
        text_tokenizer=TextTokenizer.from_folder(GOLDEN_CHECKPOINT),
        default_sampling=Sampling(),
        max_take_frames=2048,
        precision=precision,
        device=device,
    )


def main() -> None:
    """Answer one line of JSON with another until nobody asks."""
    worker = ServingWorker(json.loads(sys.stdin.readline()))
    print(json.dumps(worker.about()), flush=True)
    for line in sys.stdin:
        print(json.dumps(worker.serve(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
