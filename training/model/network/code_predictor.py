# Shape letters: N frame, Q codebook (all 16), R residual codebook (1..Q-1), D talker width, V code vocabulary.
"""The code predictor ("sub-talker"): codebooks 1..Q-1 of one frame, given the talker's state and codebook 0."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.model.config import CodePredictorConfig
from training.model.network.layers import Transformer


class CodePredictorBackbone(Transformer):
    """Decoder layers plus one embedding table per residual codebook, as wide as the talker."""

    def __init__(self, config: CodePredictorConfig, talker_width: int) -> None:
        super().__init__(config)
        self.codec_embedding = nn.ModuleList(
            nn.Embedding(config.vocab_size, talker_width) for _ in range(config.num_code_groups - 1)
        )


class CodePredictor(nn.Module):
    """A decoder over the depth of one frame.

    Its sequence has no time axis: position 0 holds the talker's hidden state one step *before* the frame,
    position 1 the embedding of codebook 0, position i the embedding of codebook i-1. Head i-1 reads
    position i and predicts codebook i; position 0 predicts nothing.
    """

    def __init__(self, config: CodePredictorConfig, talker_width: int) -> None:
        super().__init__()
        self.config = config
        self.model = CodePredictorBackbone(config, talker_width)
        self.lm_head = nn.ModuleList(
            nn.Linear(config.hidden_size, config.vocab_size, bias=False) for _ in range(config.num_code_groups - 1)
        )
        # The 1.7B talker is wider than its code predictor; the 0.6B one is not and has no projection.
        self.small_to_mtp_projection: nn.Module = (
            nn.Linear(talker_width, config.hidden_size) if talker_width != config.hidden_size else nn.Identity()
        )

    def embed_residual(self, codes_NQ: Tensor) -> Tensor:
        """Embeddings (N, R, D) of codebooks 1..Q-1 of each frame, each from its own table."""
        codes_R = codes_NQ[..., 1:].unbind(dim=-1)
        tables = self.model.codec_embedding
        return torch.stack([table(codes) for table, codes in zip(tables, codes_R, strict=True)], dim=-2)

    def sum_residual(self, codes: Tensor) -> Tensor:
        """Sum over codebooks 1..Q-1 of their embeddings, (..., Q) to (..., D), without stacking them first."""
        codes_R = codes[..., 1:].unbind(dim=-1)
        total: Tensor = self.model.codec_embedding[0](codes_R[0])
        for table, codes_of_one in zip(list(self.model.codec_embedding)[1:], codes_R[1:], strict=True):
            total = total + table(codes_of_one)
        return total

    def forward(self, talker_state_ND: Tensor, first_embedding_ND: Tensor, codes_NQ: Tensor) -> Tensor:
        """Teacher-forced logits of every residual codebook of N frames.

        Args:
            talker_state_ND: talker hidden state at the position before each frame.
            first_embedding_ND: codebook-0 embedding of each frame, from the talker's own table.
            codes_NQ: the frames themselves; the last codebook is only ever a label.

        Returns:
            (N, R, V): row i predicts codebook i + 1.
        """
        # Codebook 0 enters through the talker's vocabulary, so its place in `codes_NQ` is skipped here.
        residual_NRD = self.embed_residual(codes_NQ)[:, :-1]
        inputs = torch.cat((talker_state_ND.unsqueeze(1), first_embedding_ND.unsqueeze(1), residual_NRD), dim=1)
        hidden = self.model(self.small_to_mtp_projection(inputs))[:, 1:]
        logits_R = [head(state) for head, state in zip(self.lm_head, hidden.unbind(dim=1), strict=True)]
        return torch.stack(logits_R, dim=1)
