# Shape letters: B batch row, F codec frame, Q codebook, D talker width.
"""Our side of the decoding benchmark: one precision in its own process. Started by `decode.py`."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.benchmarks.shapes import materialize
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.model.codec.stream_state import DecoderState
from training.model.config import ModelConfig, SpeechTokenizerConfig
from training.model.device import supports_bf16
from training.model.generation.frame_loop import FrameLoop, FrameRequest, PredictorKey
from training.model.generation.graphed_calls import GraphedCalls
from training.model.network.talker import Talker
from training.model.precision import Precision
from training.model.prompt.prompt import PromptHead, x_vector_prompt

ROLE_ROWS, HEAD_ROWS = 3, 10
"""Rows of an x-vector prompt: the role, and everything beside the text."""

ONE_SHOT_FRAMES = 32
CALLS_PER_ROUND = 4
WEIGHT_DTYPE: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    # As public checkpoints store them; the loop quantizes them while it packs.
    "int8": torch.bfloat16,
}


class TimedCalls(GraphedCalls):
    """Adds up how long each half of a frame takes."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(GraphedCalls.on(device).recorder)
        self.milliseconds: dict[str, float] = defaultdict(float)
        self._on_cuda = device.type == "cuda"

    def run(self, key: Any, call: Callable[[], None]) -> None:
        started = now(self._on_cuda)
        super().run(key, call)
        self.milliseconds["depth" if isinstance(key, PredictorKey) else "talker"] += now(self._on_cuda) - started


def now(on_cuda: bool) -> float:
    """Milliseconds, once the device has done what it was given."""
    if on_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() * 1e3


class FrameWorker:
    """The frame loop and the codec at one precision, with random weights."""

    def __init__(self, setup: dict[str, Any]) -> None:
        torch.set_num_threads(setup["threads"])
        torch.manual_seed(0)
        self.device, self.precision = torch.device(setup["device"]), setup["precision"]
        self.on_cuda = self.device.type == "cuda"
        self.config = ModelConfig.from_json(setup["model"])
        with torch.device("meta"):
            talker = Talker(self.config.talker, self.config.code_predictor)
        talker = materialize(talker, WEIGHT_DTYPE[self.precision], self.device)
        assert isinstance(talker, Talker)
        if self.precision == "fp32":
            # Public checkpoints store bfloat16; float32 weights that were never rounded would be read in 32 bits.
            for parameter in talker.parameters():
                parameter.data = parameter.bfloat16().float()
        frames, rows = setup["frames"] + 1, setup["prompt_rows"]
        self.loop = FrameLoop(
            talker, self.config, precision=self.precision, cache_length=rows + frames + 1, consume=True
        )
        self.timed = self.loop._graphs = TimedCalls(self.device)
        for key in self.loop.usual_graphs():
            self.loop.capture(key)
        head = PromptHead(role_ids=range(ROLE_ROWS))
        self.request = FrameRequest(
            prompt=x_vector_prompt(self.config, head, [id_ % 100 for id_ in range(rows - HEAD_ROWS)]),
            speaker=torch.randn(self.config.talker.hidden_size),
            # The end cannot be drawn before the cap: every round has all its frames.
            max_frames=frames,
            min_frames=frames,
        )
        self.codec = SpeechTokenizer(SpeechTokenizerConfig.from_json(setup["speech_tokenizer"])).to(self.device).eval()
        self.codec_dtype = (
            torch.float32 if self.precision == "fp32" or not supports_bf16(self.device) else torch.bfloat16
        )
        self.codec.use_decoder_dtype(self.codec_dtype)
        self.stream = self.codec.start_stream(1)

    @torch.inference_mode()
    def measure(self) -> dict[str, Any]:
        """One round: a take of a few frames, then the codec."""
        return {
            **self._measure_take(),
            "codec_one_shot": self._per_frame(lambda: self.codec.decode(self._codes(ONE_SHOT_FRAMES)), ONE_SHOT_FRAMES),
            "codec_1": self._measure_stream(1),
            "codec_4": self._measure_stream(4),
            "peak_bytes": self._peak_bytes(),
        }

    def _measure_take(self) -> dict[str, Any]:
        state = self.codec.start_stream(1)
        started = now(self.on_cuda)
        self.loop.admit(0, self.request)
        prefilled = now(self.on_cuda)
        codes_BQ = self.loop.step().codes_BQ
        self._decode(codes_BQ.unsqueeze(1), state)
        heard = now(self.on_cuda)
        halves: dict[str, list[float]] = {"talker": [], "depth": []}
        frames = []
        while not self.loop.free_slots:
            self.timed.milliseconds.clear()
            stepped = now(self.on_cuda)
            self.loop.step()
            frames.append(now(self.on_cuda) - stepped)
            for half, values in halves.items():
                values.append(self.timed.milliseconds[half])
        return {
            "prefill": [prefilled - started],
            "first_audio": [heard - started],
            "frame": frames,
            "talker": halves["talker"],
            "code_predictor": halves["depth"],
        }

    def _measure_stream(self, frames_per_call: int) -> list[float]:
        pieces = [self._codes(frames_per_call) for _ in range(CALLS_PER_ROUND)]
        return [
            self._per_frame(lambda piece=piece: self._decode(piece, self.stream), frames_per_call)[0]  # type: ignore[misc]
            for piece in pieces
        ]

    def _per_frame(self, call: Callable[[], object], frames: int) -> list[float]:
        started = now(self.on_cuda)
        call()
        return [(now(self.on_cuda) - started) / frames]

    def _decode(self, codes_BFQ: Tensor, state: DecoderState) -> Tensor:
        return self.codec.decode_step(codes_BFQ, state).float().cpu()

    def _codes(self, num_frames: int) -> Tensor:
        decoder = self.codec.config.decoder
        return torch.randint(decoder.codebook_size, (1, num_frames, decoder.num_quantizers), device=self.device)

    def _peak_bytes(self) -> int:
        if self.on_cuda:
            return torch.cuda.max_memory_allocated()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Answer one line of JSON with another until nobody asks."""
    worker = FrameWorker(json.loads(sys.stdin.readline()))
    about = {
        "codec": str(worker.codec_dtype).removeprefix("torch."),
        "frame_milliseconds": 1000 / worker.codec.config.frame_rate_hz,
    }
    print(json.dumps(about), flush=True)
    for _ in sys.stdin:
        print(json.dumps(worker.measure()), flush=True)


if __name__ == "__main__":
    main()
