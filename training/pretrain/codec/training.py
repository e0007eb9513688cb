"""Trains the speech tokenizer: the loop, with what happens between its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.model.checkpoint.reading import read_speech_tokenizer_config
from training.model.speech_tokenizer.tokenizer import SpeechTokenizer
from training.pretrain.codec import discriminator as opponents
from training.pretrain.codec import frame_codes
from training.pretrain.codec.crops import Crops, CropSource
from training.pretrain.codec.evaluation import evaluate, held_out_speech
from training.pretrain.codec.export import share_codebooks
from training.pretrain.codec.job import TokenizerJob
from training.pretrain.codec.network import Heard, TokenizerNetwork
from training.pretrain.codec.spectral_loss import SpectralLoss
from training.pretrain.codec.widening import widen
from training.pretrain.corpus.corpus import PARTS, TRAIN
from training.pretrain.run import muon
from training.pretrain.run.run_start import note_start
from training.pretrain.run.training_run import TrainingRun
from training.pretrain.run.training_state import read_checkpoint, step_random

# Relative to the spectral loss, about as in DAC (Kumar et al. 2023).
_DECEPTION_WEIGHT, _FEATURE_WEIGHT = 0.07, 0.13

NUM_VALIDATED = 12
"""Utterances of each held-out part that are resynthesized in a validation."""

SAMPLES_FOLDER = "samples"
"""Where a run leaves them to listen to."""


class TokenizerTraining(TrainingRun):
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
        super().__init__(job, run, device=device, report=report)
        self.job = job
        space = frame_codes.analyse(corpus, run, job, PARTS, report)
        coded = frame_codes.open_codes(corpus, run, TRAIN)
        self._crops = CropSource(coded, job.crops, job.seed)
        # Weights are drawn on the CPU, so that they do not depend on the device.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.seed)
            self.network = TokenizerNetwork(job)
            self.network.adopt(space)
            self._adversary = opponents.Adversary(job.size.adversary_width) if job.adversarial else None
        self._spectral_loss = SpectralLoss(self.network.tokenizer.config.input_sample_rate).to(device)
        networks: dict[str, nn.Module] = {"network": self.network}
        if self._adversary is not None:
            networks["adversary"] = self._adversary
        self.networks = networks
        self.optimizers = {key: one for name in networks for key, one in self._optimizers_of(name).items()}
        self._speech = held_out_speech(corpus, num_utterances=NUM_VALIDATED)
        self.open(start, corpus_size=len(coded))
        if compiled:
            self.network.compile_networks()

    def _optimizers_of(self, name: str) -> dict[str, torch.optim.Optimizer]:
        """Muon for matrices and kernels, AdamW for the rest and for opponents; keys begin with the network's name."""
        matrices, rest = muon.matrices_of(self.networks[name].to(self.device))
        job = self.job
        if name == "adversary":
            opponents_rate = job.adversary_learning_rate
            adamw = torch.optim.AdamW(
                [*matrices, *rest], lr=opponents_rate, betas=job.adam_betas, weight_decay=job.weight_decay
            )
            return {f"{name}/adamw": adamw}
        return {
            f"{name}/muon": muon.Muon(matrices, lr=job.muon_learning_rate, weight_decay=job.weight_decay),
            f"{name}/adamw": torch.optim.AdamW(rest, lr=job.peak_learning_rate, betas=job.adam_betas, weight_decay=0.0),
        }

    def read_start(self, start: Path) -> None:
        """Begin with the weights of a `speech_tokenizer` folder, and with the codebooks found here.

        A wider decoder than the folder's begins with what that one can do.
        """
        config = read_speech_tokenizer_config(start.parent)
        if config.decoder.decoder_dim < self.job.size.decoder_size:
            narrow = SpeechTokenizer(config)
            read_checkpoint(start, {"": narrow})
            widen(narrow, self.network.tokenizer)
        else:
            read_checkpoint(start, {"": self.network.tokenizer})
        self.network.adopt(frame_codes.read_code_space(self.folder, self.job))
        note_start(self.folder, start, stage="tokenizer")

    def validate(self) -> Mapping[str, float]:
        """What resynthesized held-out speech measures; some of it is left to be listened to."""
        share_codebooks(self.network.tokenizer)
        evaluation = evaluate(self.network.tokenizer, self._speech, self.folder / SAMPLES_FOLDER)
        perplexities = {f"perplexity/{number}": value for number, value in enumerate(evaluation.perplexities)}
        return {**evaluation.distances, **perplexities}

    def train_step(self) -> dict[str, float]:
        """One update; returns what it measured."""
        random = step_random(self.job.seed, self.step)
        crops = Crops(*(tensor.to(self.device) for tensor in self._crops.batch(self.step)))
        with self._arithmetic():
            heard: Heard = self.network(crops, random)
        decoded = heard.waveform.float()
        losses = {
            "spectral": self._spectral_loss(decoded, crops.waveform),
            "waveform": functional.l1_loss(decoded, crops.waveform),
        }
        job = self.job
        total = losses["spectral"] + job.waveform_weight * losses["waveform"]
        if heard.imitation is not None and heard.first_code is not None:
            losses |= {"imitation": heard.imitation, "first_code": heard.first_code}
            total = total + job.imitation_weight * heard.imitation + job.first_code_weight * heard.first_code
        if self._adversary is not None and self.step >= job.num_steps_before_opponents:
            total = total + self._play(self._adversary, decoded, crops.waveform, losses)
        losses["gradient_norm"] = self._descend("network", total)
        return self.read(losses)

    def _arithmetic(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.job.bfloat16)

    def _descend(self, name: str, loss: Tensor) -> Tensor:
        own = {key: one for key, one in self.optimizers.items() if key.startswith(f"{name}/")}
        return self.descend(self.networks[name], loss, own)

    def _play(
        self, adversary: opponents.Adversary, decoded: Tensor, recorded: Tensor, losses: dict[str, Tensor]
    ) -> Tensor:
        """Let the opponents learn from this batch, and return what the network loses against them."""
        with self._arithmetic():
            judged = opponents.opponent_loss(adversary(decoded.detach()), adversary(recorded))
        losses["discriminator"] = judged
        self._descend("adversary", judged)
        adversary.requires_grad_(False)
        with self._arithmetic():
            verdicts = adversary(decoded)
            losses["deception"] = opponents.deception_loss(verdicts)
            losses["feature"] = opponents.feature_loss(verdicts, adversary(recorded))
        adversary.requires_grad_(True)
        return _DECEPTION_WEIGHT * losses["deception"] + _FEATURE_WEIGHT * losses["feature"]
