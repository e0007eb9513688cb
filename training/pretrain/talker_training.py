"""Trains talker, code predictor and speaker encoder: the loop, with what happens between its steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn

from training.loss import SpeechLosses
from training.model.checkpoint.reading import CONFIG_FILE
from training.model.voice_model import supports_bf16
from training.pretrain import frame_codes, muon
from training.pretrain.corpus import HELD_OUT_PARAMETERS, HELD_OUT_TEXTS, HELD_OUT_VOICE, TRAIN
from training.pretrain.errors import PretrainError
from training.pretrain.run_start import note_start
from training.pretrain.talker_batches import BatchSource, TalkerBatch
from training.pretrain.talker_guidance import AttentionGuide, neighbourhoods
from training.pretrain.talker_job import TalkerJob
from training.pretrain.talker_network import TalkerNetwork
from training.pretrain.training_log import TrainingLog
from training.pretrain.training_state import (
    has_state,
    load_state,
    read_checkpoint,
    read_weights,
    save_state,
    step_random,
)

_VALIDATED_PARTS = (HELD_OUT_TEXTS, HELD_OUT_PARAMETERS, HELD_OUT_VOICE)
_NUM_VALIDATED = 32
"""Utterances of each held-out part."""

# Tables and heads are looked up or compared row by row: no matrices in Muon's sense.
_NOT_FOR_MUON = ("loss.talker.codec_head", "loss.talker.code_predictor.lm_head")


class TalkerTraining:
    """One run, from its first step or from where it was killed."""

    def __init__(
        self,
        job: TalkerJob,
        corpus: Path,
        tokenizer_run: Path,
        run: Path,
        *,
        device: torch.device,
        report: Callable[[str], None],
        start: Path | None = None,
    ) -> None:
        """Open or begin the run in `run`; a new one starts from the weights of another, or of a checkpoint folder."""
        self.job, self.step = job, 0
        self._run, self._device, self._report = run, device, report
        run.mkdir(parents=True, exist_ok=True)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.seed)
            self.network = TalkerNetwork(job)
        config = self.network.config
        coded = frame_codes.open_codes(corpus, tokenizer_run, TRAIN)
        self._corpus_size = len(coded)
        self._source = BatchSource(coded, job, config)
        self._validation = {
            part: _validation_batches(BatchSource(frame_codes.open_codes(corpus, tokenizer_run, part), job, config))
            for part in _VALIDATED_PARTS
        }
        self._guide = AttentionGuide(self.network.talker)
        self.network.to(device)
        matrices, rest = muon.matrices_of(self.network, but=_NOT_FOR_MUON)
        self._optimizers: dict[str, torch.optim.Optimizer] = {
            "muon": muon.Muon(matrices, lr=job.muon_learning_rate, weight_decay=job.weight_decay),
            "adamw": torch.optim.AdamW(rest, lr=job.peak_learning_rate, betas=job.adam_betas, weight_decay=0.0),
        }
        self._autocast = supports_bf16(device)
        self._log = TrainingLog(run, job.num_steps, report)
        self._resume(start)

    def _resume(self, start: Path | None) -> None:
        if has_state(self._run):
            self.step, corpus_size = load_state(self._run, self.job, {"network": self.network}, self._optimizers)
            self._report(f"continuing after step {self.step}")
            if corpus_size != self._corpus_size:
                self._report(f"the corpus has {self._corpus_size} utterances now, not {corpus_size}")
        elif start is not None:
            if (start / CONFIG_FILE).is_file():
                parts = {"talker.": self.network.talker, "speaker_encoder.": self.network.speaker_encoder}
                read_checkpoint(start, parts)
            else:
                read_weights(start, {"network": self.network})
            note_start(self._run, start, stage="talker")
            self._report(f"starting from the weights in {start}")
        self._log.forget_after(self.step)

    def run(self, *, save_every_seconds: float, should_stop: Callable[[], bool]) -> bool:
        """Train to the last step; False when `should_stop` said so before, with the state saved.

        Raises:
            PretrainError: the losses are no longer numbers; the state saved last is kept.
        """
        saved = time.monotonic()
        while self.step < self.job.num_steps:
            self._log.begin_step()
            self._log.add(self.train_step())
            self.step += 1
            is_last = self.step == self.job.num_steps
            # Only where a line of the log ends, so that a resumed run's lines are means over the same steps.
            if self.step % self.job.log_every and not is_last:
                continue
            self._log.write(self.step, learning_rate=self.job.learning_rate_share(self.step - 1))
            if self.step % self.job.validate_every == 0 or is_last:
                self._log.write_validation(self.step, self.validate())
            stops = should_stop() and not is_last
            if is_last or stops or time.monotonic() - saved >= save_every_seconds:
                self.save()
                saved = time.monotonic()
            if stops:
                return False
        return True

    def save(self) -> None:
        """Keep where the run stands."""
        save_state(
            self._run, self.job, self.step, {"network": self.network}, self._optimizers, corpus_size=self._corpus_size
        )

    def train_step(self) -> dict[str, float]:
        """One update; returns what it measured."""
        random = step_random(self.job.seed, self.step)
        batch = self._source.batch(self.step)
        losses = self._losses(batch, random)
        total = losses.combined(self.job.code_predictor_weight)
        guidance = total.new_zeros(())
        if weight := self.job.guidance_weight_at(self.step):
            allowed = neighbourhoods(batch.spans, batch.examples.labels_BT.shape[1]).to(self._device)
            guidance = self._guide.loss(allowed)
            total = total + weight * guidance
        self._guide.forget()
        for optimizer in self._optimizers.values():
            optimizer.zero_grad()
        total.backward()
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), self.job.max_gradient_norm)
        share = self.job.learning_rate_share(self.step)
        for optimizer in self._optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = optimizer.defaults["lr"] * share
            optimizer.step()
        values = {
            "talker": float(losses.talker.detach()),
            "code_predictor": float(losses.code_predictor.detach()),
            "guidance": float(guidance.detach()),
            "gradient_norm": float(norm),
        }
        if not all(map(math.isfinite, values.values())):
            raise PretrainError(f"Training diverged at step {self.step} ({values}). Lower the learning rate.")
        return values

    @torch.no_grad()
    def validate(self) -> Mapping[str, float]:
        """Losses on held-out speech, by part and layout."""
        found: dict[str, float] = {}
        for part, batches in self._validation.items():
            for layout, batch in batches.items():
                losses = self._losses(batch, step_random(self.job.seed, 0))
                found[f"{layout}-{part}"] = float(losses.talker)
                found[f"codes/{layout}-{part}"] = float(losses.code_predictor)
        return found

    def _losses(self, batch: TalkerBatch, random: torch.Generator) -> SpeechLosses:
        moved = batch._replace(
            examples=batch.examples.to(self._device), reference_mel=batch.reference_mel.to(self._device)
        )
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._autocast):
            losses: SpeechLosses = self.network(moved, random)
        return losses._replace(talker=losses.talker.float(), code_predictor=losses.code_predictor.float())


def _validation_batches(source: BatchSource) -> dict[str, TalkerBatch]:
    """The same utterances in both layouts, with the same references in every run."""
    numbers = range(min(_NUM_VALIDATED, source.num_utterances))
    return {
        "x-vector": source.examples(numbers, np.random.default_rng(0), is_paired=False),
        "in-context": source.examples(numbers, np.random.default_rng(0), is_paired=True),
    }
