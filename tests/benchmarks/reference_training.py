"""The reference's side of the training benchmark: the model of `qwen-tts`, stepped as the published script steps it.

Run by an interpreter that has the package, so it uses nothing of ours. Started by `training.py`. The step is that of
`finetuning/sft_12hz.py` as of 2026-03-17, written anew: its optimizer, its accumulation through accelerate, its layout
with padded rows, its calls. Two things differ: attention is sdpa, because flash attention needs a GPU, and the mel
spectrogram of the reference recording, which the script computes for every clip of every epoch, is made once.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

FIRST_TEXT, SPEAKER_PLACE, IGNORED = 8, 6, -100


class Reference:
    """The whole model, in bfloat16 as published or in float32, and its optimizer.

    `aligned` puts the published losses right: each position predicts the frame behind it and not the one after that,
    the code predictor gets the state before the frame and labels that are shifted once, and text is projected.
    """

    def __init__(self, setup: dict[str, Any]) -> None:
        torch.set_num_threads(setup["threads"])
        torch.manual_seed(0)
        accelerate = importlib.import_module("accelerate")
        configuration = importlib.import_module("qwen_tts.core.models.configuration_qwen3_tts")
        modeling = importlib.import_module("qwen_tts.core.models.modeling_qwen3_tts")
        folder = Path(setup["checkpoint"])
        config = configuration.Qwen3TTSConfig(**json.loads((folder / "config.json").read_text(encoding="utf-8")))
        self.config, self.talker_config, self.aligned = config, config.talker_config, setup["aligned"]
        # The script does not project text, which ends in an error where the widths differ.
        self.projects = self.aligned or self.talker_config.text_hidden_size != self.talker_config.hidden_size
        is_bf16 = setup["precision"] == "bf16"
        config._attn_implementation = "sdpa"
        model = modeling.Qwen3TTSForConditionalGeneration(config)
        weights = importlib.import_module("safetensors.torch").load_file(folder / "model.safetensors")
        model.load_state_dict(weights)
        del weights
        model = model.to(torch.bfloat16 if is_bf16 else torch.float32)
        self.accelerator = accelerate.Accelerator(
            cpu=True,
            gradient_accumulation_steps=setup["micro_batches"],
            mixed_precision="bf16" if is_bf16 else "no",
        )
        mel = torch.tensor(setup["mel"]).unsqueeze(0)
        clips = [(setup["role_ids"] + clip["text_ids"], torch.tensor(clip["codes"]), mel) for clip in setup["clips"]]
        loader: Any = torch.utils.data.DataLoader(
            clips,  # type: ignore[arg-type]
            batch_size=setup["clips_per_micro_batch"],
            shuffle=False,
            collate_fn=self.collate,
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=setup["learning_rate"], weight_decay=0.01)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)
        self.model.train()
        self.batches = itertools.chain.from_iterable(itertools.repeat(self.loader))
        self.micro_batches = setup["micro_batches"]

    def about(self) -> dict[str, Any]:
        """What exactly is measured."""
        versions = {name: importlib.metadata.version(name) for name in ("qwen-tts", "transformers", "accelerate")}
        return {
            **versions,
            "torch": torch.__version__,
            "attention": self.model.talker.model.config._attn_implementation,
            "loading_bytes": peak_bytes(),
        }

    def losses(self) -> dict[str, Any]:
        """Both losses of the first micro-batch, with the weights as they were loaded."""
        with torch.no_grad():
            talker, code_predictor = self._losses(next(iter(self.loader)))
        return {"losses": [float(talker), float(code_predictor)]}

    def measure(self, steps: int) -> dict[str, Any]:
        """Do some steps of the optimizer."""
        forget_peak()
        started, computed, num_clips = time.perf_counter(), time.process_time(), 0
        for number in range(steps * self.micro_batches):
            batch = next(self.batches)
            num_clips += len(batch["input_ids"])
            with self.accelerator.accumulate(self.model):
                talker, code_predictor = self._losses(batch)
                loss = talker + 0.3 * code_predictor
                self.accelerator.backward(loss)
                if self.accelerator.sync_gradients:
                    self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
            if number % 10 == 0:
                loss.item()
        return {
            "seconds": time.perf_counter() - started,
            "processor_seconds": time.process_time() - computed,
            "clips": num_clips,
            "peak_bytes": peak_bytes(),
        }

    def _losses(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        model, talker, mask, codes = self.model, self.model.talker, batch["codec_mask"], batch["codec_ids"]
        speaker = model.speaker_encoder(batch["ref_mels"].to(model.device).to(model.dtype)).detach()
        text = talker.model.text_embedding(batch["input_ids"][:, :, 0])
        text = (talker.text_projection(text) if self.projects else text) * batch["text_mask"]
        codec = talker.model.codec_embedding(batch["input_ids"][:, :, 1]) * batch["codec_embedding_mask"]
        codec[:, SPEAKER_PLACE, :] = speaker
        inputs = text + codec
        for place, table in enumerate(talker.code_predictor.get_input_embeddings(), start=1):
            inputs = inputs + table(codes[:, :, place]) * mask.unsqueeze(-1)
        attention, labels = batch["attention_mask"], batch["labels"]
        if self.aligned:
            out = talker(inputs_embeds=inputs, attention_mask=attention, labels=labels, output_hidden_states=True)
            states = out.hidden_states[0][-1][:, :-1][mask[:, 1:]]
        else:
            out = talker(
                inputs_embeds=inputs[:, :-1],
                attention_mask=attention[:, :-1],
                labels=labels[:, 1:],
                output_hidden_states=True,
            )
            states = out.hidden_states[0][-1][mask[:, :-1]]
        frames = codes[mask]
        logits, code_loss = talker.forward_sub_talker_finetune(frames, states)
        if self.aligned:
            code_loss = F.cross_entropy(logits.float().flatten(0, 1), frames[:, 1:].flatten())
        return out.loss, code_loss

    def collate(self, clips: list[tuple[list[int], Tensor, Tensor]]) -> dict[str, Tensor]:
        """Padded rows: role, head, text and its end on codec padding, then the frames and their end on text padding."""
        ids, talker = self.config, self.talker_config
        rows, longest = len(clips), FIRST_TEXT + max(len(text) + len(codes) for text, codes, _ in clips)
        batch = {
            "input_ids": torch.zeros(rows, longest, 2, dtype=torch.long),
            "codec_ids": torch.zeros(rows, longest, talker.num_code_groups, dtype=torch.long),
            "text_mask": torch.zeros(rows, longest, 1, dtype=torch.bool),
            "codec_embedding_mask": torch.zeros(rows, longest, 1, dtype=torch.bool),
            "codec_mask": torch.zeros(rows, longest, dtype=torch.bool),
            "attention_mask": torch.zeros(rows, longest, dtype=torch.long),
            "labels": torch.full((rows, longest), IGNORED, dtype=torch.long),
        }
        head = [talker.codec_nothink_id, talker.codec_think_bos_id, talker.codec_think_eos_id, 0, talker.codec_pad_id]
        for row, (text, codes, _) in enumerate(clips):
            first = FIRST_TEXT + len(text) - 1
            end, spoken = first + len(codes), torch.tensor(text)
            words, codec = batch["input_ids"][row, :, 0], batch["input_ids"][row, :, 1]
            words[:3], words[3:7], words[7] = spoken[:3], ids.tts_pad_token_id, ids.tts_bos_token_id
            words[FIRST_TEXT : first - 2] = spoken[3:]
            words[first - 2], words[first - 1 : end + 1] = ids.tts_eos_token_id, ids.tts_pad_token_id
            codec[3:FIRST_TEXT], codec[FIRST_TEXT : first - 1] = torch.tensor(head), talker.codec_pad_id
            codec[first - 1], codec[first:end], codec[end] = talker.codec_bos_id, codes[:, 0], talker.codec_eos_token_id
            batch["labels"][row, first:end], batch["labels"][row, end] = codes[:, 0], talker.codec_eos_token_id
            batch["codec_ids"][row, first:end] = codes
            batch["codec_mask"][row, first:end] = True
            batch["text_mask"][row, : end + 1] = True
            batch["codec_embedding_mask"][row, 3 : end + 1] = True
            batch["codec_embedding_mask"][row, SPEAKER_PLACE] = False
            batch["attention_mask"][row, : end + 1] = 1
        return {**batch, "ref_mels": torch.cat([mel for *_, mel in clips])}


def peak_bytes() -> int:
    """The most that this process has held since it began or `forget_peak`."""
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def forget_peak() -> None:
    """Begin to measure the peak anew."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def main() -> None:
    """Answer one line of JSON with another until nobody asks."""
    # The package prints while it is imported; answers go to what was standard output before.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    reference = Reference(json.loads(sys.stdin.readline()))
    print(json.dumps(reference.about()), file=answers, flush=True)
    for line in sys.stdin:
        steps = json.loads(line)["steps"]
        print(json.dumps(reference.measure(steps) if steps else reference.losses()), file=answers, flush=True)


if __name__ == "__main__":
    main()
