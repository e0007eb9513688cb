"""Trains the transcriber: the loop, with what happens between its steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from training.pretrain.corpus import open_corpus
from training.pretrain.muon import Muon, matrices_of
from training.pretrain.run_start import note_start
from training.pretrain.training_run import TrainingRun
from training.pretrain.training_state import read_weights, step_random
from training.pretrain.whisper_alignment import align, even_places, soft_targets, token_places
from training.pretrain.whisper_batches import SpeechBatch, SpeechSource
from training.pretrain.whisper_export import WHISPER_FILE, export_whisper, read_whisper
from training.pretrain.whisper_job import NUM_MELS, WhisperJob
from training.pretrain.whisper_network import LogMel, WhisperNetwork
from training.pretrain.whisper_spelling import BLANK, Spelled, Spelling
from training.pretrain.whisper_validation import validate

IGNORED = -100
# The encoder's letters are believed from this log probability per letter on.
_BELIEVED_SCORE = -1.0
_TILT = 0.25
_TIMED_SHARE = 0.5


class WhisperTraining(TrainingRun):
    """One run, from its first step or from where it was killed."""

    def __init__(
        self,
        job: WhisperJob,
        corpus: Path,
        run: Path,
        *,
        device: torch.device,
        report: Callable[[str], None],
        start: Path | None = None,
    ) -> None:
        super().__init__(job, run, device=device, report=report)
        self.job = job
        self.spelling = Spelling(job.num_text_tokens)
        self._corpus = corpus
        training_part = open_corpus(corpus)
        self._source = SpeechSource(training_part, job)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.seed)
            self.network = WhisperNetwork(job.size, len(self.spelling.used))
        self.average = copy.deepcopy(self.network).requires_grad_(False)
        self.networks = {"network": self.network.to(device), "average": self.average.to(device)}
        self._log_mel = LogMel().to(device)
        matrices, rest = matrices_of(self.network, but=("decoder.positional_embedding", "letters"))
        self.optimizers = {
            "matrices": Muon(matrices, lr=job.matrix_learning_rate),
            "rest": torch.optim.AdamW(rest, lr=job.vector_learning_rate, betas=(0.9, 0.98), weight_decay=0.0),
        }
        self.open(start, corpus_size=len(training_part))

    def read_start(self, start: Path) -> None:
        """Begin with the weights of another run, or with its `whisper.pt`, which cannot yet name letters."""
        if start.is_dir():
            read_weights(start, self.networks)
        else:
            read_whisper(start, self.network, self.spelling)
            self.average.load_state_dict(self.network.state_dict())
        note_start(self.folder, start, stage="whisper")

    def save(self) -> None:
        """Keep where the run stands, and what it is worth so far."""
        super().save()
        export_whisper(self.folder / WHISPER_FILE, self.average, self.spelling, self.job.size)

    def validate(self) -> Mapping[str, float]:
        """How often held-out speech is spelt wrong, by part."""
        return validate(self.average, self.spelling, self._corpus, self._log_mel)

    def train_step(self) -> dict[str, float]:
        """One update; returns what it measured."""
        random = step_random(self.job.seed, self.step)
        batch = self._source.batch(self.step)
        is_timed = torch.rand(len(batch.said), generator=random) < _TIMED_SHARE
        spelled = [
            self.spelling.spell(said, timed=bool(timed)) for said, timed in zip(batch.said, is_timed, strict=True)
        ]
        tilt = torch.randn(len(batch.said), 1, generator=random) * torch.linspace(-1, 1, NUM_MELS) * _TILT
        mel = self._log_mel(batch.samples.to(self.device), tilt.to(self.device))
        shown, wanted = self._lessons(spelled, is_timed, random)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            states = self.network.encode(mel)
            letters = self.network.read_letters(states)
            decoded = self.network.decode(shown, states)
        losses = {
            "text": functional.cross_entropy(decoded.logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED),
            "letters": letters_loss(letters, spelled),
        }
        targets, losses["aligned"] = self._attention_targets(letters, batch, spelled, shown.shape[1])
        misled = -(targets * decoded.attention).sum(dim=-1).mean(dim=(0, 2))
        heard = targets.sum(dim=-1)[:, 0]
        losses["guidance"] = (misled * heard).sum() / heard.sum().clamp(min=1)
        job = self.job
        total = losses["text"] + job.letters_weight * losses["letters"]
        total = total + job.guidance(self.step) * losses["guidance"]
        losses["gradient_norm"] = self.descend(self.network, total, self.optimizers)
        self._follow()
        return self.read(losses)

    def _lessons(self, spelled: Sequence[Spelled], is_timed: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Rows of tokens shown to the decoder (rows, tokens), and the rows it shall write next."""
        whisper = self.spelling.whisper
        length = 2 + max(len(one.tokens) for one in spelled)
        eot = self.spelling.row(whisper.eot)
        shown = torch.full((len(spelled), length), eot)
        wanted = torch.full((len(spelled), length), IGNORED)
        for row, (one, timed) in enumerate(zip(spelled, is_timed.tolist(), strict=True)):
            # Without times, Whisper's decoding starts from two tokens, and what follows the first is not asked.
            start = [whisper.sot] if timed and one.said else [whisper.sot, whisper.no_timestamps]
            tokens = self.spelling.rows([*start, *one.tokens])
            shown[row, : len(tokens) - 1] = tokens[:-1]
            wanted[row, len(start) - 1 : len(tokens) - 1] = tokens[len(start) :]
            if not one.said:
                wanted[row, 0] = self.spelling.row(whisper.no_speech)
        is_text = shown < self.job.num_text_tokens
        is_wrong = torch.rand(shown.shape, generator=random) < self.job.wrong_token_share
        others = torch.randint(self.job.num_text_tokens, shown.shape, generator=random)
        shown = torch.where(is_text & is_wrong, others, shown)
        return shown.to(self.device), wanted.to(self.device)

    def _attention_targets(
        self, letters: Tensor, batch: SpeechBatch, spelled: Sequence[Spelled], num_tokens: int
    ) -> tuple[Tensor, Tensor]:
        """Where each token is heard, (rows, 1, tokens, positions), and the share of pieces that told it themselves."""
        num_positions = letters.shape[1]
        alignments = align(letters, [one.letters for one in spelled])
        targets = torch.zeros(len(spelled), num_tokens, num_positions)
        num_believed = 0
        for row, (one, said, alignment) in enumerate(zip(spelled, batch.said, alignments, strict=True)):
            if not said:
                continue
            is_believed = alignment.score > _BELIEVED_SCORE
            num_believed += is_believed
            places = token_places(one.spans, alignment.places if is_believed else even_places(one, said))
            first = self._first_query(one)
            targets[row, first : first + len(places)] = soft_targets(places, num_positions)
        share = torch.tensor(num_believed / len(spelled))
        return targets.unsqueeze(1).to(self.device), share

    def _first_query(self, spelled: Spelled) -> int:
        """The place from which the first token is written."""
        return 0 if spelled.tokens[0] >= self.spelling.whisper.timestamp_begin else 1

    def _follow(self) -> None:
        """Let the running mean of the weights follow a step."""
        # Early weights are far from where they will be, so the mean starts short.
        decay = min(self.job.average_decay, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.network.parameters()), 1 - decay)


def letters_loss(log_probabilities: Tensor, spelled: Sequence[Spelled]) -> Tensor:
    """How far the encoder is from naming the letters in order (CTC), per letter."""
    lengths = torch.tensor([len(one.letters) for one in spelled])
    letters = torch.tensor([letter for one in spelled for letter in one.letters])
    positions = torch.full((len(spelled),), log_probabilities.shape[1])
    return functional.ctc_loss(
        log_probabilities.transpose(0, 1), letters, positions, lengths, blank=BLANK, zero_infinity=True
    )
