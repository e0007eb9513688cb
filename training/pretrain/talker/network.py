"""Talker, code predictor and speaker encoder as they are trained together."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from training.data.mishearing import misheard
from training.loss import SpeechLoss, SpeechLosses
from training.model.config import ModelConfig
from training.model.network.layers import DecoderLayer
from training.model.network.speaker_encoder import SpeakerEncoder
from training.model.network.talker import Talker
from training.pretrain.errors import PretrainError
from training.pretrain.talker.batches import TalkerBatch
from training.pretrain.talker.blending import blended
from training.pretrain.talker.job import TalkerJob

_LAYER_SCALE = 0.02


class TalkerNetwork(nn.Module):
    """The networks of a checkpoint's own weights file, with the losses of fine-tuning."""

    def __init__(self, job: TalkerJob) -> None:
        super().__init__()
        config: ModelConfig = job.size.config()
        talker = Talker(config.talker, config.code_predictor)
        _initialise(talker)
        self.config = config
        self.speaker_encoder = SpeakerEncoder(config.speaker_encoder)
        self.loss = SpeechLoss(talker, code_predictor_fraction=job.code_predictor_fraction, train_text_embedding=True)

    @property
    def talker(self) -> Talker:
        """The network that the losses are computed with."""
        return self.loss.talker

    def forward(
        self,
        batch: TalkerBatch,
        random: torch.Generator,
        *,
        misheard_share: float = 0.0,
        blended_share: float = 0.0,
    ) -> SpeechLosses:
        """Both losses of a batch, with speaker embeddings of the reference audio.

        Args:
            misheard_share: see `misheard`.
            blended_share: see `blended`; of utterances that continue a reference.
        """
        speakers = self.speaker_encoder(batch.reference_mel)
        if batch.is_paired:
            speakers = blended(speakers, blended_share, random)
        examples = replace(batch.examples, speaker_ND=speakers)
        losses: SpeechLosses = self.loss(misheard(examples, misheard_share, random), random)
        return losses

    def begin_as(self, smaller: TalkerNetwork) -> None:
        """Take the weights of a network whose code predictor has fewer layers; those added change nothing at first.

        Raises:
            PretrainError: the other network has more layers.
        """
        layers = self.talker.code_predictor.model.layers
        num_before = len(smaller.talker.code_predictor.model.layers)
        if num_before > len(layers):
            raise PretrainError(
                f"The code predictor to start from has {num_before} layers. Use --predictor-layers {num_before}."
            )
        for layer in layers[num_before:]:
            assert isinstance(layer, DecoderLayer)
            for last in (layer.self_attn.o_proj, layer.mlp.down_proj):
                nn.init.zeros_(last.weight)
        self.load_state_dict(self.state_dict() | smaller.state_dict())

    def checkpoint_state(self) -> dict[str, Tensor]:
        """The weights under the names of the public file."""
        parts = {"talker": self.talker, "speaker_encoder": self.speaker_encoder}
        return {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}


def _initialise(talker: Talker) -> None:
    """Small normal weights, as in the public architecture."""
    for module in talker.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=_LAYER_SCALE)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=_LAYER_SCALE)
