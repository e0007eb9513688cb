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
from training.pretrain import frame_codes, muon
from training.pretrain.corpus import PARTS, TRAIN
from training.pretrain.crops import Crops, CropSource
from training.pretrain.errors import PretrainError
from training.pretrain.run_start import note_start
from training.pretrain.spectral_loss import SpectralLoss
from training.pretrain.tokenizer_evaluation import Evaluation, evaluate, held_out_speech
from training.pretrain.tokenizer_export import share_codebooks
from training.pretrain.tokenizer_job import TokenizerJob
from training.pretrain.tokenizer_network import Heard, TokenizerNetwork
from training.pretrain.training_log import TrainingLog
from training.pretrain.training_state import has_state, load_state, read_checkpoint, save_state, step_random

# Relative to the spectral loss, about as in DAC (Kumar et al. 2023).
_DECEPTION_WEIGHT, _FEATURE_WEIGHT = 0.07, 0.13
# Opponents join when the decoder speaks; before that they only teach the decoder to hiss.
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
        start: Path | None = None,
    ) -> None:
        """Open or begin the run in `run`; a new one may start from a `speech_tokenizer` folder of the same size."""
        self.job = job
        self._start = start
        self.step = 0
        self._run = run
        self._device = device
        self._report = report
        space = frame_codes.analyse(corpus, run, job, PARTS, report)
        coded = frame_codes.open_codes(corpus, run, TRAIN)
        self._corpus_size = len(coded)
        self._crops = CropSource(coded, job.crops, job.seed)
        # Weights are drawn on the CPU, so that they do not depend on the device.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.seed)
            self.network = TokenizerNetwork(job)
            self.network.adopt(space)
            self._adversary = opponents.Adversary(job.size.adversary_width) if job.adversarial else None
        self._spectral_loss = SpectralLoss(self.network.tokenizer.config.input_sample_rate).to(device)
        self._networks: dict[str, nn.Module] = {"network": self.network}
        self._optimizers = self._optimizers_of("network")
        if self._adversary is not None:
            self._networks["adversary"] = self._adversary
            self._optimizers |= self._optimizers_of("adversary")
        self._speech = held_out_speech(corpus, num_utterances=NUM_VALIDATED)
        self._log = TrainingLog(run, job.num_steps, report)
        self._resume()
        if compiled:
            self.network.compile_networks()

    def _optimizers_of(self, name: str) -> dict[str, torch.optim.Optimizer]:
        """Muon for matrices and kernels, AdamW for the rest; the keys begin with the network's name."""
        matrices, rest = muon.matrices_of(self._networks[name].to(self._device))
        job = self.job
        return {
            f"{name}/muon": muon.Muon(matrices, lr=job.muon_learning_rate, weight_decay=job.weight_decay),
            f"{name}/adamw": torch.optim.AdamW(rest, lr=job.peak_learning_rate, betas=job.adam_betas, weight_decay=0.0),
        }

    def _resume(self) -> None:
        if not has_state(self._run):
            if self._start is not None:
                read_checkpoint(self._start, {"": self.network.tokenizer})
                self.network.adopt(frame_codes.read_code_space(self._run, self.job))
                note_start(self._run, self._start, stage="tokenizer")
                self._report(f"starting from the weights in {self._start}")
            self._log.forget_after(0)
            return
        self.step, corpus_size = load_state(self._run, self.job, self._networks, self._optimizers)
        self._log.forget_after(self.step)
        self._report(f"continuing after step {self.step}")
        if corpus_size != self._corpus_size:
            self._report(f"the corpus has {self._corpus_size} utterances now, not {corpus_size}: other crops from here")

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
            self._log.write(self.step, learning_rate=self.job.learning_rate_share(self.step - 1))
            if self.step % self.job.validate_every == 0 or is_last:
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
        random = step_random(self.job.seed, self.step)
        crops = Crops(*(tensor.to(self._device) for tensor in self._crops.batch(self.step)))
        heard: Heard = self.network(crops, random)
        losses = {
            "spectral": self._spectral_loss(heard.waveform, crops.waveform),
            "waveform": functional.l1_loss(heard.waveform, crops.waveform),
            "imitation": heard.imitation,
            "first_code": heard.first_code,
        }
        job = self.job
        total = losses["spectral"] + job.waveform_weight * losses["waveform"]
        total = total + job.imitation_weight * losses["imitation"] + job.first_code_weight * losses["first_code"]
        if self._adversary is not None and self.step >= STEPS_BEFORE_OPPONENTS:
            total = total + self._play(self._adversary, heard.waveform, crops.waveform, losses)
        losses["gradient_norm"] = self._descend("network", total)
        return self._read(losses)

    def _descend(self, name: str, loss: Tensor) -> Tensor:
        """One step of a network's optimizers; returns the gradient's norm before it was limited."""
        optimizers = [one for key, one in self._optimizers.items() if key.startswith(f"{name}/")]
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self._networks[name].parameters(), self.job.max_gradient_norm)
        share = self.job.learning_rate_share(self.step)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = optimizer.defaults["lr"] * share
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

    def _read(self, losses: dict[str, Tensor]) -> dict[str, float]:
        """Numbers of a step, fetched from the device at once."""
        values = torch.stack([loss.detach().float() for loss in losses.values()]).tolist()
        if not all(math.isfinite(value) for value in values):
            found = ", ".join(f"{name} {value}" for name, value in zip(losses, values, strict=True))
            raise PretrainError(f"Training diverged at step {self.step} ({found}). Lower the learning rate.")
        return dict(zip(losses, values, strict=True))
