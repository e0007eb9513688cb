"""Trains the speech tokenizer: its steps, validation and start from other weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from training.model.checkpoint.reading import read_speech_tokenizer_config
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.pretrain.codec import filter_bank, frame_codes
from training.pretrain.codec.altered_crops import AlteredCrops
from training.pretrain.codec.code_space import CodeSpace
from training.pretrain.codec.crops import Crops, CropSource
from training.pretrain.codec.discriminator import Discriminators, adversarial_loss, discriminator_loss, feature_loss
from training.pretrain.codec.evaluation import evaluate, held_out_speech
from training.pretrain.codec.frame_codes import CodedCorpus
from training.pretrain.codec.job import FILTER_BANK_RATIOS, TokenizerJob
from training.pretrain.codec.network import NetworkOutput, TokenizerNetwork
from training.pretrain.codec.periodicity_loss import PeriodicityLoss
from training.pretrain.codec.repetition_loss import RepetitionLoss
from training.pretrain.codec.spectral_loss import QUIET_FLOOR, SpectralLoss
from training.pretrain.codec.widening import widen
from training.pretrain.codec.write_tokenizer import share_codebooks
from training.pretrain.corpus.corpus import PARTS, RECORDINGS, TRAIN, has_part
from training.pretrain.run import muon
from training.pretrain.run.prefetch import Prefetch
from training.pretrain.run.run_start import record_start
from training.pretrain.run.training_run import TrainingRun
from training.pretrain.run.training_state import has_state, read_checkpoint, step_random

# Relative to the spectral loss, about as in DAC (Kumar et al. 2023).
_ADVERSARIAL_WEIGHT, _FEATURE_WEIGHT = 0.07, 0.13

NUM_VALIDATED = 12
"""Utterances of each held-out part that are resynthesized in a validation."""

_NUM_FITTED = 240
"""Utterances that the filters of an encoder are fitted to."""

SAMPLES_FOLDER = "samples"
"""Folder of resynthesized utterances to listen to."""


class TokenizerTraining(TrainingRun):
    """One run, from its first step or from its saved state."""

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
        """Continue or begin the run in `run`; a new one may start from a checkpoint's `speech_tokenizer` folder."""
        super().__init__(job, run, device=device, report=report)
        self.job = job
        recorded = (RECORDINGS,) if has_part(corpus, RECORDINGS) else ()
        space = frame_codes.analyse(corpus, run, job, (*PARTS, *recorded), report, start=start, device=device)
        coded = frame_codes.open_codes(corpus, run, TRAIN)
        recordings = frame_codes.open_codes(corpus, run, RECORDINGS) if recorded else None
        crops = CropSource(coded, job.crops, job.seed, recordings=recordings)
        plain: Callable[[int], Crops] = crops.batch
        joint: Callable[[int], Crops] = partial(crops.batch, channel_share=job.channel_share)
        if job.encoder_only or job.decoder_only:
            plain = joint = self._altered(crops, space, job.altered_share)
        elif job.learned_altered_share:
            joint = self._altered(crops, space, job.learned_altered_share)
        self._plain_crops, self._joint_crops = Prefetch(plain, device), Prefetch(joint, device)
        # Weights are drawn on the CPU, so that they do not depend on the device.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.seed)
            self.network = TokenizerNetwork(job)
            self.network.adopt(space)
            if job.size.filter_bank and not has_state(run):
                report("fitting the encoder's filters")
                filter_bank.install(self.network.tokenizer.encoder, space, _some_speech(coded, recordings, job.seed))
            self._discriminators = Discriminators(job.size.discriminator_width) if job.adversarial else None
        rate_hz = self.network.tokenizer.config.input_sample_rate
        self._rate_hz = rate_hz
        self._spectral_loss = SpectralLoss(rate_hz, QUIET_FLOOR).to(device)
        hears_pitch = job.periodicity_weight > 0 or job.long_windows_below_hz > 0
        self._periodicity_loss = PeriodicityLoss(rate_hz).to(device) if hears_pitch else None
        self._repetition_loss = RepetitionLoss(rate_hz).to(device) if job.repetition_weight > 0 else None
        networks: dict[str, nn.Module] = {"network": self.network}
        if self._discriminators is not None:
            networks["discriminators"] = self._discriminators
        self.networks = networks
        self.optimizers = {key: one for name in networks for key, one in self._optimizers_of(name).items()}
        self._speech = held_out_speech(corpus, num_utterances=NUM_VALIDATED)
        self.open(start, corpus_size=len(coded))
        if compiled:
            self.network.compile_networks()

    def _altered(self, crops: CropSource, space: CodeSpace, share: float) -> Callable[[int], Crops]:
        return AlteredCrops(crops, space, altered_share=share, deepened_share=self.job.deepened_share).batch

    def _optimizers_of(self, name: str) -> dict[str, torch.optim.Optimizer]:
        """Muon for matrices and kernels, AdamW for the rest and for discriminators, by network and optimizer."""
        matrices, rest = muon.matrices_of(self.networks[name].to(self.device))
        job = self.job
        if name == "discriminators":
            rate = job.discriminator_learning_rate
            parameters = [*matrices, *rest]
            adamw = torch.optim.AdamW(parameters, lr=rate, betas=job.adam_betas, weight_decay=job.weight_decay)
            return {f"{name}/adamw": adamw}
        return {
            f"{name}/muon": muon.Muon(matrices, lr=job.muon_learning_rate, weight_decay=job.weight_decay),
            f"{name}/adamw": torch.optim.AdamW(rest, lr=job.peak_learning_rate, betas=job.adam_betas, weight_decay=0.0),
        }

    def read_start(self, start: Path) -> None:
        """Begin with the weights of a `speech_tokenizer` folder; a larger network computes the same at first."""
        smaller = SpeechTokenizer(read_speech_tokenizer_config(start.parent))
        read_checkpoint(start, {"": smaller})
        has_filters = smaller.config.encoder.upsampling_ratios == FILTER_BANK_RATIOS
        if self.job.size.filter_bank and not has_filters:
            widen(smaller.decoder, self.network.tokenizer.decoder)
        else:
            widen(smaller, self.network.tokenizer)
        record_start(self.folder, start, stage="tokenizer")

    def validate(self) -> Mapping[str, float]:
        """Evaluate resynthesized held-out speech, and write some of it to listen to."""
        share_codebooks(self.network.tokenizer)
        evaluation = evaluate(self.network.tokenizer, self._speech, self.folder / SAMPLES_FOLDER)
        perplexities = {f"perplexity/{number}": value for number, value in enumerate(evaluation.perplexities)}
        return {**evaluation.distances, **perplexities}

    def train_step(self) -> dict[str, float]:
        """One update; returns its losses."""
        job = self.job
        random = step_random(job.seed, self.step)
        is_joint = job.joint_from is not None and self.place >= job.joint_from * job.num_steps
        if is_joint:
            self._plain_crops.stop()
        batch = (self._joint_crops if is_joint else self._plain_crops).batch(self.step)
        crops = Crops(*(tensor.to(self.device) for tensor in batch))
        with self._arithmetic():
            output: NetworkOutput = self.network(crops, random, joint=is_joint)
        losses: dict[str, Tensor] = {}
        total = crops.waveform.new_zeros(())
        if output.waveform is not None:
            total = self._reconstruction(output.waveform.float(), crops.waveform, losses)
        if output.imitation is not None and output.codebook_0 is not None:
            losses |= {"imitation": output.imitation, "codebook_0": output.codebook_0}
            total = total + job.imitation_weight * output.imitation + job.codebook_0_weight * output.codebook_0
        if output.commitment is not None:
            losses["commitment"] = output.commitment
            total = total + job.commitment_weight * output.commitment
        is_adversarial = self._discriminators is not None and self.place >= job.num_steps_before_discriminators
        if is_adversarial and output.waveform is not None:
            total = total + self._discriminate(output.waveform.float(), crops.waveform, losses)
        losses["gradient_norm"] = self._descend("network", total)
        if job.codebooks_learn and output.quantized is not None:
            self.network.follow(output.quantized, random)
        return self.read(losses)

    def _reconstruction(self, decoded: Tensor, recorded: Tensor, losses: dict[str, Tensor]) -> Tensor:
        """The loss of decoded speech (rows, samples) against what was recorded; adds its parts to `losses`."""
        job = self.job
        is_deep = None
        if self._periodicity_loss is not None:
            periods = self._periodicity_loss.periods(recorded)
            losses["periodicity"] = self._periodicity_loss(decoded, periods)
            if job.long_windows_below_hz > 0:
                is_deep = periods.longer_than(self._rate_hz / job.long_windows_below_hz, recorded.shape[-1])
        losses["spectral"] = self._spectral_loss(decoded, recorded, is_deep)
        losses["waveform"] = functional.l1_loss(decoded, recorded)
        total = losses["spectral"] + job.waveform_weight * losses["waveform"]
        if job.periodicity_weight > 0:
            total = total + job.periodicity_weight * losses["periodicity"]
        if self._repetition_loss is not None:
            losses["repetition"] = self._repetition_loss(decoded, recorded)
            total = total + job.repetition_weight * losses["repetition"]
        return total

    def _arithmetic(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.job.bfloat16)

    def _descend(self, name: str, loss: Tensor) -> Tensor:
        own = {key: one for key, one in self.optimizers.items() if key.startswith(f"{name}/")}
        return self.descend(self.networks[name], loss, own)

    def _discriminate(self, decoded: Tensor, recorded: Tensor, losses: dict[str, Tensor]) -> Tensor:
        """Train the discriminators on this batch, and return the decoder's loss against them."""
        discriminators = self._discriminators
        assert discriminators is not None
        # Crops of a batch have no order.
        num_judged = max(1, round(self.job.discriminated_ratio * len(decoded)))
        decoded, recorded = decoded[:num_judged], recorded[:num_judged]
        with self._arithmetic():
            real = discriminators(recorded)
            own_loss = discriminator_loss(discriminators(decoded.detach()), real)
        losses["discriminator"] = own_loss
        self._descend("discriminators", own_loss)
        discriminators.requires_grad_(False)
        with self._arithmetic():
            found = discriminators(decoded)
            losses["adversarial"] = adversarial_loss(found)
            # One update changes what they hear in the recordings too little to listen once more.
            losses["feature"] = feature_loss(found, real)
        discriminators.requires_grad_(True)
        return _ADVERSARIAL_WEIGHT * losses["adversarial"] + _FEATURE_WEIGHT * losses["feature"]


def _some_speech(coded: CodedCorpus, recordings: CodedCorpus | None, seed: int) -> list[Tensor]:
    """Utterances to fit filters to, people's among them."""
    random = np.random.default_rng((seed, 0xF17))
    return [
        frame_codes.samples_of(source.corpus, int(number))
        for source, most in ((coded, _NUM_FITTED), (recordings, _NUM_FITTED // 3))
        if source is not None
        for number in random.permutation(len(source))[:most]
    ]
