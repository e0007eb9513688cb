"""Trains talker, code predictor and speaker encoder: steps, validation and start from other weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from training.loss import SpeechLosses
from training.model.checkpoint.reading import CONFIG_FILE, read_config
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.model.config import ModelConfig
from training.model.device import supports_bf16
from training.pretrain.codec import frame_codes
from training.pretrain.codec.frame_codes import CodedCorpus
from training.pretrain.codec.job import TokenizerJob
from training.pretrain.codec.read_tokenizer import read_tokenizer
from training.pretrain.corpus.corpus import HELD_OUT_PARAMETERS, HELD_OUT_TEXTS, HELD_OUT_VOICE, PARTS, TRAIN
from training.pretrain.run import muon
from training.pretrain.run.prefetch import Prefetch
from training.pretrain.run.run_start import record_start
from training.pretrain.run.training_run import TrainingRun
from training.pretrain.run.training_state import has_state, read_checkpoint, read_job, read_weights, step_random
from training.pretrain.talker.batches import BatchSource, TalkerBatch
from training.pretrain.talker.guidance import AttentionGuide, neighbourhoods
from training.pretrain.talker.job import TalkerJob
from training.pretrain.talker.network import TalkerNetwork
from training.pretrain.talker.recoding import paired_codes, recode
from training.pretrain.talker.references import ReferenceShelf, make_references, open_references

_VALIDATED_PARTS = (HELD_OUT_TEXTS, HELD_OUT_PARAMETERS, HELD_OUT_VOICE)
_NUM_VALIDATED = 32
"""Utterances of each held-out part."""

# Rows of tables and heads are used separately, so these are not matrices in Muon's sense.
_NOT_FOR_MUON = ("loss.talker.codec_head", "loss.talker.code_predictor.lm_head")


class TalkerTraining(TrainingRun):
    """One run, from its first step or from its saved state."""

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
        start_codes: Path | None = None,
    ) -> None:
        """Continue or begin the run in `run`; a new one may start from another run or a checkpoint folder.

        Args:
            start_codes: run of the tokenizer whose codes of this corpus mean to `start` what it was trained on, if its
                codebooks are others than those of `tokenizer_run`.
        """
        super().__init__(job, run, device=device, report=report)
        self.job = job
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.seed)
            self.network = TalkerNetwork(job)
        self.network.speaker_encoder.requires_grad_(not job.keeps_speaker_encoder)
        config = self.network.config
        codes_run = run if job.pace != 1 or _speaks_encoder_codes(tokenizer_run) else tokenizer_run
        tokenizer = self._tokenizer = read_tokenizer(tokenizer_run).to(device)
        if codes_run == run:
            frame_codes.encode(corpus, run, tokenizer, PARTS, report, pace=job.pace)
        coded = self._coded = frame_codes.open_codes(corpus, codes_run, TRAIN, pace=job.pace)
        self._start_codes = None if start_codes is None else frame_codes.open_codes(corpus, start_codes, TRAIN)
        per_speaker = job.references_per_speaker
        shelf = open_references(coded.corpus, tokenizer, run, per_speaker=per_speaker, seed=job.seed, report=report)
        self._batches = Prefetch(BatchSource(coded, shelf, job, config).batch, device)
        self._validation = {
            part: _validation_batches(
                frame_codes.open_codes(corpus, codes_run, part, pace=job.pace), tokenizer, job, config
            )
            for part in _VALIDATED_PARTS
        }
        self._guide = AttentionGuide(self.network.talker)
        self.networks = {"network": self.network.to(device)}
        self.optimizers = self._optimizers()
        self._autocast = supports_bf16(device)
        self.open(start, corpus_size=len(coded))

    def _optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Muon and AdamW, and where the speaker encoder learns more slowly, two more for that."""
        job = self.job

        def both_of(network: nn.Module, rate: float) -> dict[str, torch.optim.Optimizer]:
            matrices, rest = muon.matrices_of(network, but=_NOT_FOR_MUON)
            adamw = torch.optim.AdamW(rest, lr=rate * job.peak_learning_rate, betas=job.adam_betas, weight_decay=0.0)
            return {
                "muon": muon.Muon(matrices, lr=rate * job.muon_learning_rate, weight_decay=job.weight_decay),
                "adamw": adamw,
            }

        if job.keeps_speaker_encoder or job.speaker_encoder_rate == 1:
            return both_of(self.network, 1.0)
        # Without its first module the network's names are as they were.
        talker = nn.ModuleDict({"loss": self.network.loss})
        of_encoder = both_of(self.network.speaker_encoder, job.speaker_encoder_rate)
        return both_of(talker, 1.0) | {f"speaker_encoder/{name}": one for name, one in of_encoder.items()}

    def read_start(self, start: Path) -> None:
        """Begin with the weights of another run or of a checkpoint, whose code predictor may have fewer layers."""
        if (start / CONFIG_FILE).is_file():
            num_layers = read_config(start).code_predictor.num_hidden_layers
            size = self.job.size.model_copy(update={"num_predictor_layers": num_layers})
            smaller = TalkerNetwork(self.job.model_copy(update={"size": size}))
            read_checkpoint(start, {"talker.": smaller.talker, "speaker_encoder.": smaller.speaker_encoder})
            self.network.begin_as(smaller)
        else:
            read_weights(start, self.networks)
        if self._start_codes is not None:
            self.report("carrying its tables over to other codes")
            pairs = paired_codes(self._start_codes, self._coded, codes_of=self._codes_as_recorded())
            recode(self.network.talker, *pairs)
        record_start(self.folder, start, stage="talker")

    def _codes_as_recorded(self) -> Callable[[Sequence[int]], list[Tensor]] | None:
        """Writes utterances at the pace of their recordings; none if the run's codes have it."""
        if self.job.pace == 1:
            return None
        return lambda numbers: frame_codes.codes_of(self._coded.corpus, numbers, self._tokenizer)

    def train_step(self) -> dict[str, float]:
        """One update; returns its losses."""
        random = step_random(self.job.seed, self.step)
        batch = self._batches.batch(self.step)
        losses = self._losses(
            batch, random, misheard_share=self.job.misheard_share, blended_share=self.job.blended_share
        )
        total = losses.combined(self.job.code_predictor_weight)
        guidance = total.new_zeros(())
        weight = self.job.guidance_weight_at(self.place)
        if weight and any(batch.spans):
            allowed = neighbourhoods(batch.spans, batch.examples.labels_BT.shape[1]).to(self.device)
            guidance = self._guide.loss(allowed)
            total = total + weight * guidance
        self._guide.forget()
        norm = self.descend(self.network, total, self.optimizers)
        return self.read(
            {
                "talker": losses.talker,
                "code_predictor": losses.code_predictor,
                "guidance": guidance,
                "gradient_norm": norm,
            }
        )

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

    def _losses(self, batch: TalkerBatch, random: torch.Generator, **shares: float) -> SpeechLosses:
        moved = batch._replace(
            examples=batch.examples.to(self.device), reference_mel=batch.reference_mel.to(self.device)
        )
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._autocast):
            losses: SpeechLosses = self.network(moved, random, **shares)
        return losses._replace(talker=losses.talker.float(), code_predictor=losses.code_predictor.float())


def _speaks_encoder_codes(tokenizer_run: Path) -> bool:
    """Whether the decoder was trained on the encoder's codes alone, so that those of the analysis mean less to it.

    Also a checkpoint has no codes of the analysis.
    """
    if not has_state(tokenizer_run):
        return True
    job = TokenizerJob.model_validate(read_job(tokenizer_run))
    return job.joint_from is not None and job.analysed_share == 0


def _validation_batches(
    coded: CodedCorpus, tokenizer: SpeechTokenizer, job: TalkerJob, config: ModelConfig
) -> dict[str, TalkerBatch]:
    """The same utterances in both layouts, with the same references in every run; where a run learns it, in none."""
    numbers = range(min(_NUM_VALIDATED, len(coded)))
    speakers = {coded.corpus.entries[number].speaker for number in numbers}
    by_speaker = {name: own for name, own in coded.corpus.by_speaker().items() if name in speakers}
    shelf = ReferenceShelf(coded.corpus, make_references(coded.corpus, by_speaker, tokenizer, per_speaker=2, seed=0))

    def examples(unconditional_share: float, *, is_paired: bool) -> TalkerBatch:
        of_kind = job.model_copy(update={"unconditional_share": unconditional_share})
        source = BatchSource(coded, shelf, of_kind, config)
        return source.examples(numbers, np.random.default_rng(0), is_paired=is_paired)

    found = {"x-vector": examples(0, is_paired=False), "in-context": examples(0, is_paired=True)}
    return found | ({"unconditional": examples(1, is_paired=False)} if job.unconditional_share else {})
