"""The reference's side of the decoding benchmark: the public `qwen-tts` package decoding frames.

Run by an interpreter that has the package, never imported; so it uses nothing of ours. Started by `decode.py` and by
the GPU benchmark, which also asks for the same talker in the graphs of `faster-qwen3-tts`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import itertools
import json
import os
import resource
import sys
import time
from typing import Any

import torch


class Reference:
    """The package's talker with random weights, in float32 on CPU and bfloat16 on CUDA, driven by its own loop."""

    def __init__(self, setup: dict[str, Any]) -> None:
        torch.set_num_threads(setup["threads"])
        torch.manual_seed(0)
        self.frames = setup["frames"]
        self.device = torch.device(setup["device"])
        configuration = importlib.import_module("qwen_tts.core.models.configuration_qwen3_tts")
        modeling = importlib.import_module("qwen_tts.core.models.modeling_qwen3_tts")
        talker_config = configuration.Qwen3TTSConfig(**setup["model"]).talker_config
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self.talker = modeling.Qwen3TTSTalkerForConditionalGeneration(talker_config).to(self.device, dtype).eval()
        width, self.vocabulary = talker_config.hidden_size, talker_config.vocab_size
        self.end = talker_config.codec_eos_token_id
        self.prompt = torch.randn(1, setup["prompt_rows"], width, device=self.device, dtype=dtype)
        self.pad = torch.randn(1, 1, width, device=self.device, dtype=dtype)
        self.predictor_calls: list[tuple[float, float]] = []
        self._generate_residual = self.talker.code_predictor.generate
        self.talker.code_predictor.generate = self._timed_residual

    def about(self) -> dict[str, str]:
        """What exactly is measured."""
        return {
            "package": _package(),
            "transformers": importlib.metadata.version("transformers"),
            "torch": torch.__version__,
            "attention": self.talker.model.config._attn_implementation,
            "dtype": str(self.pad.dtype).removeprefix("torch."),
        }

    def measure(self) -> dict[str, Any]:
        """One take; a frame lasts from one call of the code predictor to the next."""
        self.predictor_calls.clear()
        started = self._now()
        self._take()
        begins = [begin for begin, _ in self.predictor_calls]
        predictor = [end - begin for begin, end in self.predictor_calls[:-1]]
        frames = [after - before for before, after in itertools.pairwise(begins)]
        return {
            "prefill": [begins[0] - started],
            "frame": frames,
            "code_predictor": predictor,
            "talker": [frame - part for frame, part in zip(frames, predictor, strict=True)],
            "peak_bytes": self._peak_bytes(),
        }

    def _take(self) -> None:
        """The arguments are those the package passes, but that the take cannot end before its last frame."""
        tokens = self.frames + 2
        suppressed = [code for code in range(self.vocabulary - 1024, self.vocabulary) if code != self.end]
        self.talker.generate(
            inputs_embeds=self.prompt,
            attention_mask=torch.ones(self.prompt.shape[:2], dtype=torch.long, device=self.device),
            trailing_text_hidden=self.pad,
            tts_pad_embed=self.pad,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=True,
            top_k=50,
            top_p=1.0,
            temperature=0.9,
            subtalker_dosample=True,
            subtalker_top_k=50,
            subtalker_top_p=1.0,
            subtalker_temperature=0.9,
            eos_token_id=self.end,
            repetition_penalty=1.05,
            suppress_tokens=[code for code in suppressed if code >= 0],
            output_hidden_states=True,
            return_dict_in_generate=True,
        )

    def _timed_residual(self, **arguments: Any) -> Any:
        begin = self._now()
        result = self._generate_residual(**arguments)
        self.predictor_calls.append((begin, self._now()))
        return result

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() * 1e3

    def _peak_bytes(self) -> int:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _package() -> str:
    """Version of the package; beside the public one there is a port to newer transformers under another name."""
    try:
        return importlib.metadata.version("qwen-tts")
    except importlib.metadata.PackageNotFoundError:
        return importlib.metadata.version("qwen-tts-hf") + " (hf)"


class Faster(Reference):
    """The same talker in the CUDA graphs of `faster-qwen3-tts`, driven by that package's loop."""

    def __init__(self, setup: dict[str, Any]) -> None:
        super().__init__(setup)
        self.talker.code_predictor.generate = self._generate_residual  # which nobody times here
        config = self.talker.config
        predictor_graph = importlib.import_module("faster_qwen3_tts.predictor_graph").PredictorGraph
        talker_graph = importlib.import_module("faster_qwen3_tts.talker_graph").TalkerGraph
        self._generate = importlib.import_module("faster_qwen3_tts.generate").fast_generate
        device, dtype = str(self.device), self.pad.dtype
        self._graphs = {
            "predictor_graph": predictor_graph(
                self.talker.code_predictor,
                self.talker.code_predictor.model.config,
                config.hidden_size,
                device=device,
                dtype=dtype,
                do_sample=True,
                top_k=50,
                temperature=0.9,
            ),
            "talker_graph": talker_graph(self.talker.model, config, device=device, dtype=dtype, max_seq_len=2048),
        }
        self._graphs["predictor_graph"].capture(num_warmup=3)
        self._graphs["talker_graph"].capture(prefill_len=setup["prompt_rows"], num_warmup=3)

    def about(self) -> dict[str, str]:
        """What exactly is measured."""
        return {**super().about(), "package": importlib.metadata.version("faster-qwen3-tts")}

    def measure(self) -> dict[str, Any]:
        """One take of as many frames as the others'; the package times prefill and decoding itself."""
        self.talker.rope_deltas = None
        rows = torch.ones(self.prompt.shape[:2], dtype=torch.long, device=self.device)
        _, timing = self._generate(
            talker=self.talker,
            talker_input_embeds=self.prompt,
            attention_mask=rows,
            trailing_text_hiddens=self.pad,
            tts_pad_embed=self.pad,
            config=self.talker.config,
            max_new_tokens=self.frames + 1,
            min_new_tokens=self.frames + 1,
            **self._graphs,
        )
        return {
            "prefill": [timing["prefill_ms"]],
            "frame": [1000 * timing["decode_s"] / timing["steps"]],
            "peak_bytes": self._peak_bytes(),
        }


PARTIES: dict[str, type[Reference]] = {"qwen-tts": Reference, "faster-qwen3-tts": Faster}


def main() -> None:
    """Answer one line of JSON with another until nobody asks."""
    # The package prints while it is imported; answers go to what was standard output before.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    setup = json.loads(sys.stdin.readline())
    reference = PARTIES[setup.get("package", "qwen-tts")](setup)
    print(json.dumps(reference.about()), file=answers, flush=True)
    for _ in sys.stdin:
        print(json.dumps(reference.measure()), file=answers, flush=True)


if __name__ == "__main__":
    main()
