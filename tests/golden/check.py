# Shape letters: S sample, F codec frame, Q codebook, T step, D talker width, L label.
"""Compare the network with recorded outputs of the reference implementation.

    python -m tests.golden.check DIR

DIR is a checkpoint folder with `expected.safetensors` and `expected.json` beside its weights. Prints one
line per recorded name with the largest difference; exit status 1 if any is out of bounds.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from training.data.example import build_example, collate
from training.loss import SpeechLoss
from training.model.errors import EncoreError
from training.model.generation.frame_loop import FrameLoop, FrameRequest
from training.model.generation.take_request import TakeRequest, VoicePrompt, build_prompt
from training.model.network.mel import log_mel
from training.model.prompt.prompt import Prompt, PromptHead, x_vector_prompt
from training.model.sampling_settings import Sampling
from training.model.voice_model import VoiceModel

TOLERANCE = 1e-4
LOSS_TOLERANCE = 1e-5
RELATIVE_GRADIENT_TOLERANCE = 1e-3
CACHE_LENGTH = 2048
INPUTS = re.compile(r"audio\.\d+\.waveform|decode\.codes")
"""Recorded names that are inputs: there is nothing to compare."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One recorded tensor against ours."""

    name: str
    difference: float
    bound: float
    problem: str = ""

    @property
    def passed(self) -> bool:
        return not self.problem and self.difference <= self.bound

    def __str__(self) -> str:
        verdict = "ok  " if self.passed else "FAIL"
        what = self.problem or f"difference {self.difference:.2e}, bound {self.bound:.0e}"
        return f"{verdict} {self.name}: {what}"


class GoldenFolder:
    """A reference checkpoint, its recorded outputs, and what our network computes for each of them."""

    def __init__(self, folder: Path) -> None:
        self.expected = load_file(folder / "expected.safetensors")
        self.notes: dict[str, Any] = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        self.model = VoiceModel.load(folder, precision="fp32", device="cpu")

    @cached_property
    def codes(self) -> dict[str, Tensor]:
        """Codes of every recorded waveform, each encoded alone."""
        return {audio: self.model.encode(self.expected[f"{audio}.waveform"]) for audio in self._recordings()}

    @cached_property
    def speakers(self) -> dict[str, Tensor]:
        """Speaker embedding of every recorded waveform."""
        return {audio: self.model.embed_speaker(self.expected[f"{audio}.waveform"]) for audio in self._recordings()}

    def _recordings(self) -> list[str]:
        return sorted(
            name.removesuffix(".waveform") for name in self.expected if re.fullmatch(r"audio\.\d+\.waveform", name)
        )

    def compute(self) -> Iterator[tuple[str, Tensor]]:
        """Everything we can compute, by recorded name."""
        yield from self._audio()
        yield from self._texts()
        for case in self.notes.get("clone_cases", []):
            yield from self._clone(case)
        yield from self._batch()
        yield from self._fine_tuning()

    def _audio(self) -> Iterator[tuple[str, Tensor]]:
        encoder = self.model.config.speaker_encoder
        for audio in self._recordings():
            waveform_S = self.expected[f"{audio}.waveform"]
            yield f"{audio}.log_mel", log_mel(waveform_S.unsqueeze(0), encoder.sample_rate, encoder.mel_dim)[0]
            yield f"{audio}.speaker_embedding", self.speakers[audio]
            yield f"{audio}.codes", self.codes[audio]
        if "decode.codes" in self.expected:
            yield "decode.waveform", self._decode(self.expected["decode.codes"])

    def _texts(self) -> Iterator[tuple[str, Tensor]]:
        tokenizer = self.model.text_tokenizer
        for index, text in enumerate(self.notes["texts"]):
            reference = [*tokenizer.role_ids, *tokenizer.encode_text(text), *tokenizer.turn_end_ids]
            yield f"text.{index}.ref_ids", torch.tensor(reference)
            yield f"text.{index}.assistant_ids", torch.tensor([*reference, *tokenizer.role_ids])

    def _clone(self, case: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
        audio, model = case["reference"], self.model
        in_context = not case["x_vector_only_mode"]
        voice = VoicePrompt(
            speaker=self.speakers[audio],
            reference_codes=self.codes[audio] if in_context else None,
            reference_text=case["ref_text"] if in_context else None,
        )
        request = TakeRequest(
            text=case["text"], voice=voice, language=case["language"], streaming_text=not case["non_streaming_mode"]
        )
        prompt = build_prompt(model, request)
        prefix = f"clone.{case['name']}"
        with torch.inference_mode():
            speaker_1D = self.speakers[audio].unsqueeze(0)
            yield f"{prefix}.prompt_embeddings", model.talker.embed_input(prompt.inputs.batched(), speaker_1D)[0]
            # The reference stands one pad row where no text trails.
            trailing = prompt.trailing_text_ids or (model.config.tts_pad_token_id,)
            yield f"{prefix}.trailing_text", model.talker.embed_text(torch.tensor(trailing))
        (codes_FQ,) = self._generate([prompt], [audio])
        yield f"{prefix}.codes", codes_FQ
        reference = self.codes[audio] if in_context else codes_FQ[:0]
        waveform_S = self._decode(torch.cat((reference, codes_FQ)))
        yield f"{prefix}.waveform", waveform_S[len(waveform_S) - len(codes_FQ) * self._samples_per_frame :]

    @property
    def _samples_per_frame(self) -> int:
        return self.model.speech_tokenizer.config.decode_upsample_rate

    @torch.inference_mode()
    def _decode(self, codes_FQ: Tensor) -> Tensor:
        return self.model.speech_tokenizer.decode(codes_FQ.long().unsqueeze(0))[0]

    def _generate(self, prompts: list[Prompt], audios: list[str]) -> list[Tensor]:
        settings = self.notes["generation"]
        sampling = replace(
            Sampling(temperature=0.0, residual_temperature=0.0), repetition_penalty=settings["repetition_penalty"]
        )
        loop = FrameLoop(self.model.talker, self.model.config, num_slots=len(prompts), cache_length=CACHE_LENGTH)
        for slot, (prompt, audio) in enumerate(zip(prompts, audios, strict=True)):
            # The reference counts the first token, and only tokens fed back become frames.
            cap = settings["max_new_tokens"] - 1
            loop.admit(
                slot, FrameRequest(prompt=prompt, speaker=self.speakers[audio], sampling=sampling, max_frames=cap)
            )
        frames: list[list[Tensor]] = [[] for _ in prompts]
        while len(loop.free_slots) < len(prompts):
            step = loop.step()
            for slot in step.spoke:
                frames[slot].append(step.codes_BQ[slot])
        num_codebooks = self.model.config.talker.num_code_groups
        return [torch.stack(rows) if rows else torch.zeros(0, num_codebooks, dtype=torch.long) for rows in frames]

    def _batch(self) -> Iterator[tuple[str, Tensor]]:
        prompts = [self._plain_prompt(text) for text in self.notes["texts"][:2]]
        takes = self._generate(prompts, ["audio.0"] * len(prompts))
        if len({len(codes) for codes in takes}) == 1:
            yield "clone.batch.codes", torch.stack(takes)
        else:
            yield "clone.batch.codes", torch.nn.utils.rnn.pad_sequence(takes, batch_first=True)
        longest = max(len(prompt.inputs) for prompt in prompts)
        steps_T = torch.arange(longest)
        yield "clone.batch.attention_mask", torch.stack([steps_T >= longest - len(p.inputs) for p in prompts]).long()

    def _plain_prompt(self, text: str) -> Prompt:
        tokenizer = self.model.text_tokenizer
        return x_vector_prompt(self.model.config, PromptHead(role_ids=tokenizer.role_ids), tokenizer.encode_text(text))

    def _fine_tuning(self) -> Iterator[tuple[str, Tensor]]:
        talker, config = self.model.talker, self.model.config
        examples = [
            build_example(config, self._plain_prompt(text), self.codes[audio], self.speakers[audio].clone())
            for text, audio in zip(self.notes["texts"], self._recordings(), strict=False)
        ]
        loss = SpeechLoss(talker, train_text_embedding=True)
        for index, example in enumerate(examples):
            x_BTD = talker.embed_input(example.inputs.batched(), example.speaker_D.unsqueeze(0))
            hidden_TD = talker(x_BTD)[0]
            before_ND = hidden_TD[:-1][example.is_answer_T[1:]]
            codes_NQ = example.inputs.with_first_codebook()[example.is_answer_T]
            yield f"sft.{index}.input_embeddings", x_BTD[0]
            yield f"sft.{index}.talker_logits", talker.codec_head(hidden_TD[example.labels_T >= 0])
            yield f"sft.{index}.sub_talker_logits", loss.code_predictor_logits(codes_NQ, before_ND)
        losses = loss(collate(examples))
        yield "sft.talker_loss", losses.talker
        yield "sft.sub_talker_loss", losses.code_predictor
        losses.combined(self.notes["sub_talker_loss_weight"]).backward()
        for name, parameter in talker.named_parameters():
            if parameter.grad is not None:
                yield f"sft.grad.talker.{name}", parameter.grad


def compare(name: str, expected: Tensor, found: Tensor) -> Comparison:
    """Judge one recorded tensor by the bound of its kind."""
    if name.endswith(".waveform") and name.startswith("clone.") and 0 < len(expected) - len(found) <= 1:
        # The reference cuts its prompt off by proportion and may leave one sample of it at the front.
        expected = expected[len(expected) - len(found) :]
    if expected.shape != found.shape:
        problem = f"shape {tuple(found.shape)} instead of {tuple(expected.shape)}"
        return Comparison(name=name, difference=float("inf"), bound=0, problem=problem)
    if not expected.dtype.is_floating_point:
        return Comparison(name=name, difference=float((expected.long() != found.long()).sum()), bound=0)
    difference = (expected - found.detach()).abs().max().item() if expected.numel() else 0.0
    if ".grad." in name:
        relative = (expected - found.detach()).norm().item() / max(expected.norm().item(), 1e-12)
        return Comparison(name=name, difference=relative, bound=RELATIVE_GRADIENT_TOLERANCE)
    bound = LOSS_TOLERANCE if name.endswith("_loss") else TOLERANCE
    # NaN compares false with everything, so it must not reach `difference <= bound` as a pass.
    problem = "" if difference == difference else "not a number"
    return Comparison(name=name, difference=difference, bound=bound, problem=problem)


def check(folder: Path) -> list[Comparison]:
    """Compare everything recorded in a folder; names nobody computes fail."""
    golden = GoldenFolder(folder)
    computed = dict(golden.compute())
    results = []
    for name, expected in sorted(golden.expected.items()):
        if INPUTS.fullmatch(name):
            continue
        if name in computed:
            results.append(compare(name, expected, computed[name]))
        else:
            results.append(Comparison(name=name, difference=float("inf"), bound=0, problem="nothing computes this"))
    return results


def main(arguments: list[str]) -> int:
    """Print the comparison of the folder named on the command line."""
    if len(arguments) != 1:
        print("usage: python -m tests.golden.check DIR", file=sys.stderr)
        return 2
    # As the outputs were recorded: more threads add up in another order.
    torch.set_num_threads(1)
    try:
        results = check(Path(arguments[0]))
    except (EncoreError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for result in results:
        print(result)
    failed = sum(not result.passed for result in results)
    print(f"{len(results) - failed} of {len(results)} agree with the reference.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
