# Shape letters: B batch, T step, N chosen frame, Q codebook, D talker width, V vocabulary.
"""The two training losses, aligned with generation.

The state at the position *before* a frame predicts it: codebook 0 through the codec head, the other
codebooks through the code predictor, which is given the same state. Published fine-tuning scripts shift
their labels twice and give the code predictor the state *at* the frame, which has already seen the answer:
their losses fall while the voice degrades.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.data.example import IGNORED, TrainingBatch
from training.model.network.talker import Talker


class SpeechLosses(NamedTuple):
    """Mean losses of one batch with the number of labels, so that ranks can weight theirs.

    The global mean over ranks is sum(mean * count) / sum(count). A tuple, because FSDP2 and DeepSpeed look for
    the tensors to hook their backward pass to in tuples, lists and dicts only.

    Attributes:
        talker: mean cross-entropy of codebook 0 and the end of speech, in nats.
        code_predictor: mean cross-entropy of codebooks 1..Q-1; over the chosen frames, which makes it an
            unbiased estimate of the mean over all.
        num_talker_labels: number of labels in the first mean.
        num_code_labels: number of labels that the second mean estimates: (Q-1) per answer frame, chosen or not.
    """

    talker: Tensor
    code_predictor: Tensor
    num_talker_labels: Tensor
    num_code_labels: Tensor

    def combined(self, code_predictor_weight: float = 0.3) -> Tensor:
        """The training objective; the default weight is upstream's."""
        return self.talker + code_predictor_weight * self.code_predictor


class SpeechLoss(nn.Module):
    """Embeds a batch, runs talker and code predictor, and computes both losses, in a single `forward`.

    DDP, FSDP2 and DeepSpeed hook the forward of the module they wrap: calling the talker's parts from outside
    would run without gradient reduction or with parameters still sharded.
    """

    def __init__(
        self,
        talker: Talker,
        *,
        code_predictor_fraction: float = 1.0,
        train_text_embedding: bool = False,
        has_dropout: bool = False,
    ) -> None:
        """Wrap a talker for training.

        Args:
            talker: the network to train.
            code_predictor_fraction: share of answer frames, from 1/16 to 1, the code predictor is trained on in
                each batch. It costs half of a training step at 1.7B and three quarters at 0.6B, and a random
                subset of frames gives the same gradient on average (as Sesame's CSM does).
            train_text_embedding: one voice's transcripts use few of the 151,936 embeddings, and frozen ones need
                no gradient and no optimizer state, so the default freezes them.
            has_dropout: whether layers of the talker drop inputs at random: chosen then by the batch's generator.
        """
        super().__init__()
        if not 1 / 16 <= code_predictor_fraction <= 1:
            raise ValueError(f"code_predictor_fraction is {code_predictor_fraction}; choose a value from 1/16 to 1.")
        self.talker = talker
        self.code_predictor_fraction = code_predictor_fraction
        self.has_dropout = has_dropout
        talker.model.text_embedding.requires_grad_(train_text_embedding)

    def forward(self, batch: TrainingBatch, generator: torch.Generator | None = None) -> SpeechLosses:
        """Both losses of a batch with at least one answer frame.

        Args:
            batch: on the device of the parameters.
            generator: CPU generator that chooses the code predictor's frames and what is dropped; needed below
                fraction 1 and with dropout.
        """
        if self.has_dropout and self.training:
            assert generator is not None
            # Dropout draws from the process's own generator, whose state would depend on what was drawn before.
            torch.manual_seed(int(torch.randint(2**63 - 1, (), generator=generator)))
        hidden_BTD = self._hidden(batch)
        is_label = batch.labels_BT != IGNORED
        logits = self.talker.codec_head(hidden_BTD[is_label]).float()
        talker_loss = F.cross_entropy(logits, batch.labels_BT[is_label])
        codes_NQ = batch.inputs.with_first_codebook()[batch.is_answer_BT]
        # Position p-1 for frame p. The first position of an example is never a frame, so nothing wraps around.
        before_ND = hidden_BTD[:, :-1][batch.is_answer_BT[:, 1:]]
        num_frames = codes_NQ.shape[0]
        chosen = self._choose(num_frames, generator)
        if chosen is not None:
            chosen = chosen.to(codes_NQ.device)
            codes_NQ, before_ND = codes_NQ[chosen], before_ND[chosen]
        predicted = self.code_predictor_logits(codes_NQ, before_ND).float()
        code_loss = F.cross_entropy(predicted.flatten(0, 1), codes_NQ[:, 1:].flatten())
        num_code_labels = num_frames * (codes_NQ.shape[1] - 1)
        return SpeechLosses(
            talker=talker_loss,
            code_predictor=code_loss,
            num_talker_labels=is_label.sum(),
            num_code_labels=torch.tensor(num_code_labels, device=talker_loss.device),
        )

    def _hidden(self, batch: TrainingBatch) -> Tensor:
        """The talker's states, (B, T, D)."""
        packing, heard = batch.packing, batch.inputs if batch.heard is None else batch.heard
        if packing is None:
            hidden_BTD: Tensor = self.talker(self.talker.embed_input(heard, batch.speaker_ND))
        else:
            x_BTD = self.talker.embed_input(heard, packing.spread(batch.speaker_ND))
            hidden_BTD = self.talker(x_BTD, packing.positions, packing)
        return hidden_BTD

    def code_predictor_logits(self, codes_NQ: Tensor, before_ND: Tensor) -> Tensor:
        """Teacher-forced logits (N, Q-1, V) of frames, from the talker's states before them."""
        first_ND = self.talker.model.codec_embedding(codes_NQ[:, 0])
        out: Tensor = self.talker.code_predictor(before_ND, first_ND, codes_NQ)
        return out

    def _choose(self, num_frames: int, generator: torch.Generator | None) -> Tensor | None:
        """Indices of the frames to train the code predictor on: at least one, since every rank must take part."""
        if self.code_predictor_fraction == 1:
            return None
        assert generator is not None
        num_chosen = max(1, math.ceil(num_frames * self.code_predictor_fraction))
        return torch.randperm(num_frames, generator=generator)[:num_chosen]
