"""Trains the speech tokenizer: the loop, with what happens between its steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.pretrain import adversary as opponents
from training.pretrain import vector_quantizer_training as vq
from training.pretrain.corpus import open_corpus
from training.pretrain.crops import CropSource
from training.pretrain.errors import PretrainError
from training.pretrain.spectral_loss import SpectralLoss
from training.pretrain.tokenizer_evaluation import Evaluation, evaluate, held_out_speech
from training.pretrain.tokenizer_export import share_codebooks
from training.pretrain.tokenizer_job import TokenizerJob
from training.pretrain.tokenizer_network import Heard, TokenizerNetwork
from training.pretrain.training_log import TrainingLog
from training.pretrain.training_state import has_state, load_state, save_state, step_random

# Keeps the seeds of different uses of one job's seed apart.
_START_STEP = 2**32 - 1

# Relative to the spectral loss, about as in DAC (Kumar et al. 2023).
_DECEPTION_WEIGHT, _FEATURE_WEIGHT = 0.07, 0.13
# Opponents join when the codes carry speech; before that they only teach the decoder to hiss.
STEPS_BEFORE_OPPONENTS = 1000

NUM_VALIDATED = 12
"""Utterances of each held-out part that are resynthesized in a validation."""

SAMPLES_FOLDER = "samples"
"""Where a run leaves them to listen to."""


class TokenizerTraining:
    """One run, from its first step or from where it was killed."""

    def __init__(
        self,
        job: TokenizerJob,
        corpus: Path,
        run: Path,
        *,
        device: torch.device,
        compiled: bool,
        report: Callable[[str], None],
    ) -> None:
        self.job = job
        self.step = 0
        self._run = run
        self._device = device
        self._report = report
        training_part = open_corpus(corpus)
        self._corpus_size = len(training_part)
        self._crops = CropSource(training_part, job.crops, job.seed)
        run.mkdir(parents=True, exist_ok=True)
        # Weights are drawn on the CPU, so that they do not depend on the device.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.seed)
            self.network = TokenizerNetwork(job)
            self._adversary = opponents.Adversary(job.size.adversary_width) if job.adversarial else None
        self._spectral_loss = SpectralLoss(self.network.tokenizer.config.input_sample_rate).to(device)
        self._networks: dict[str, nn.Module] = {"network": self.network}
        self._optimizers = {"network": self._optimizer(self.network.to(device))}
        if self._adversary is not None:
            self._networks["adversary"] = self._adversary
            self._optimizers["adversary"] = self._optimizer(self._adversary.to(device))
        self._speech = held_out_speech(corpus, num_utterances=NUM_VALIDATED)
        self._log = TrainingLog(run, job.num_steps, report)
        self._resume()
        if compiled:
            self.network.compile_networks()

    def _optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """Decay pulls at matrices and kernels only; biases, scales and frequencies are what they need to be."""
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        groups = [
            {"params": [one for one in trained if one.ndim > 1], "weight_decay": self.job.weight_decay},
            {"params": [one for one in trained if one.ndim <= 1], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=0.0, betas=self.job.adam_betas, fused=self._device.type == "cuda")

    def _resume(self) -> None:
        if not has_state(self._run):
            self._log.forget_after(0)
            return
        self.step, corpus_size = load_state(self._run, self.job, self._networks, self._optimizers)
        self._log.forget_after(self.step)
        self._report(f"continuing after step {self.step}")
        if corpus_size != self._corpus_size:
            self._report(f"the corpus has {self._corpus_size} utterances now, not {corpus_size}: other crops from here")

    @property
    def has_codes(self) -> bool:
        """Whether the codebooks have been started."""
        return self.step > self.job.num_continuous_steps

    def run(self, *, save_every_seconds: float, should_stop: Callable[[], bool]) -> bool:
        """Train to the last step; False when `should_stop` said so before, with the state saved.

        Raises:
            PretrainError: the losses are no longer numbers; the state saved last is kept.
        """
        saved = time.monotonic()
        while self.step < self.job.num_steps:
            self._log.begin_step()
            self._log.add(self._train_step())
            self.step += 1
            is_last = self.step == self.job.num_steps
            # Only where a line of the log ends, so that a resumed run's lines are means over the same steps.
            if self.step % self.job.log_every and not is_last:
                continue
            self._log.write(self.step, learning_rate=self.job.learning_rate(self.step - 1))
            if self.has_codes and (self.step % self.job.validate_every == 0 or is_last):
                self.validate()
            stops = should_stop() and not is_last
            if is_last or stops or time.monotonic() - saved >= save_every_seconds:
                self.save()
                saved = time.monotonic()
            if stops:
                return False
        return True

    def save(self) -> None:
        """Keep where the run stands."""
        save_state(self._run, self.job, self.step, self._networks, self._optimizers, corpus_size=self._corpus_size)

    def validate(self) -> Evaluation:
        """Resynthesize held-out speech, log what it measures, and leave some of it to listen to."""
        share_codebooks(self.network.tokenizer)
        evaluation = evaluate(self.network.tokenizer, self._speech, self._run / SAMPLES_FOLDER)
        perplexities = {f"perplexity/{number}": value for number, value in enumerate(evaluation.perplexities)}
        self._log.write_validation(self.step, {**evaluation.distances, **perplexities})
        return evaluation

    def _train_step(self) -> dict[str, float]:
        if self.step == self.job.num_continuous_steps:
            self._start_codebooks()
        random = step_random(self.job.seed, self.step)
        waveform = self._crops.batch(self.step).to(self._device)
        heard: Heard = self.network(waveform, random, has_codes=self.step >= self.job.num_continuous_steps)
        losses = {
            "spectral": self._spectral_loss(heard.waveform, waveform),
            "waveform": functional.l1_loss(heard.waveform, waveform),
            "commitment": heard.commitment,
            "content": heard.content,
        }
        job = self.job
        total = losses["spectral"] + job.waveform_weight * losses["waveform"]
        total = total + job.commitment_weight * losses["commitment"] + job.content_weight * losses["content"]
        if self._adversary is not None and self.step >= job.num_continuous_steps + STEPS_BEFORE_OPPONENTS:
            total = total + self._play(self._adversary, heard.waveform, waveform, losses)
        losses["gradient_norm"] = self._descend("network", total)
        if heard.semantic is not None and heard.acoustic is not None:
            losses["revived"] = self._move_codebooks(heard.semantic, heard.acoustic, random)
        return self._read(losses)

    def _descend(self, name: str, loss: Tensor) -> Tensor:
        """One step of one optimizer; returns the gradient's norm before it was limited."""
        optimizer = self._optimizers[name]
        optimizer.zero_grad()
        loss.backward()
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        norm = nn.utils.clip_grad_norm_(parameters, self.job.max_gradient_norm)
        for group in optimizer.param_groups:
            group["lr"] = self.job.learning_rate(self.step)
        optimizer.step()
        return norm

    def _play(
        self, adversary: opponents.Adversary, decoded: Tensor, recorded: Tensor, losses: dict[str, Tensor]
    ) -> Tensor:
        """Let the opponents learn from this batch, and return what the network loses against them."""
        judged = opponents.opponent_loss(adversary(decoded.detach()), adversary(recorded))
        losses["opponent"] = judged
        self._descend("adversary", judged)
        adversary.requires_grad_(False)
        verdicts = adversary(decoded)
        losses["deception"] = opponents.deception_loss(verdicts)
        losses["feature"] = opponents.feature_loss(verdicts, adversary(recorded))
        adversary.requires_grad_(True)
        return _DECEPTION_WEIGHT * losses["deception"] + _FEATURE_WEIGHT * losses["feature"]

    def _move_codebooks(self, semantic: vq.Quantized, acoustic: vq.Quantized, random: torch.Generator) -> Tensor:
        """Let the codebooks follow what this step assigned to them; returns how many entries were revived."""
        decay = self.job.codebook_decay_at(self.step)
        revived = []
        for codebooks, quantized in ((self.network.semantic, semantic), (self.network.acoustic, acoustic)):
            vq.follow(codebooks, quantized, decay)
            revived += [vq.revive(*pair, random) for pair in zip(codebooks, quantized.inputs, strict=True)]
        return torch.stack(revived).sum()

    @torch.no_grad()
    def _start_codebooks(self) -> None:
        """Start them from the latents of the batches to come."""
        batches = range(self.step, self.step + self.job.num_start_batches)
        vectors = [self.network.vectors(self._crops.batch(step).to(self._device)) for step in batches]
        random = step_random(self.job.seed, _START_STEP)
        for codebooks, found in zip(
            (self.network.semantic, self.network.acoustic), zip(*vectors, strict=True), strict=True
        ):
            vq.start(codebooks, torch.cat([one.flatten(0, 1) for one in found]), random)

    def _read(self, losses: dict[str, Tensor]) -> dict[str, float]:
        """Numbers of a step, fetched from the device at once."""
        values = torch.stack([loss.detach().float() for loss in losses.values()]).tolist()
        if not all(math.isfinite(value) for value in values):
            found = ", ".join(f"{name} {value}" for name, value in zip(losses, values, strict=True))
            raise PretrainError(f"Training diverged at step {self.step} ({found}). Lower the learning rate.")
        return dict(zip(losses, values, strict=True))
