# Shape letters: B row, T step, D talker width, Q codebook, V code vocabulary.
"""The code predictor for decoding: codebooks 1..Q-1 of one frame of every row, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.model.config import ModelConfig
from training.model.generation.adapter import AdaptedRows
from training.model.generation.step_transformer import StepTransformer
from training.model.network.packed_linear import COMPUTE_DTYPE, RowLinear, is_batch_invariant, pack
from training.model.network.talker import Talker
from training.model.precision import Precision

DrawCode = Callable[[Tensor, int], Tensor]
"""Draws a code for each row from logits (B, V) of a codebook, whose number is given; int64 (B,)."""


class ResidualDecoder:
    """Decodes a frame's codebooks for up to `num_rows` rows at once, with packed weights and a cache of its own."""

    def __init__(
        self, talker: Talker, config: ModelConfig, *, precision: Precision, num_rows: int, consume: bool = False
    ) -> None:
        """Pack the code predictor's weights; with `consume` its layers are emptied, to hold them only once."""
        predictor = talker.code_predictor
        self._dtype = COMPUTE_DTYPE[precision]
        heads: list[nn.Linear] = list(predictor.lm_head)  # type: ignore[arg-type]
        self._heads = [pack([head], precision, num_rows) for head in heads]
        self._first_table = talker.model.codec_embedding.weight.detach()
        self._tables = [table.weight.detach() for table in predictor.model.codec_embedding]  # type: ignore[operator]
        self._project: RowLinear = lambda x: x
        linears = [*self._heads]
        if isinstance(predictor.small_to_mtp_projection, nn.Linear):
            self._project = pack([predictor.small_to_mtp_projection], precision, num_rows)
            linears.append(self._project)
        self._depth = StepTransformer(
            predictor.model, config.code_predictor, precision=precision, num_slots=num_rows,
            cache_length=config.talker.num_code_groups, consume=consume,
        )  # fmt: skip
        self.is_batch_invariant = is_batch_invariant(linears) and self._depth.is_batch_invariant
        """See `StepTransformer`."""

    @property
    def num_weight_bytes(self) -> int:
        """Of the packed layers."""
        return self._depth.num_weight_bytes

    @property
    def caches(self) -> list[Tensor]:
        """Keys and values of each layer."""
        return self._depth.caches

    def decode(
        self,
        hidden_BD: Tensor,
        first_code_B: Tensor,
        draw: DrawCode,
        *,
        first_adapted: Sequence[AdaptedRows] = (),
        adapted: Sequence[AdaptedRows] = (),
        keep: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """A frame of each row: two steps at once, then one per codebook.

        Args:
            hidden_BD: the talker's state before the frame.
            first_code_B: codebook 0 of the frame.
            draw: chooses each of the other codes.
            first_adapted, adapted: rows with adapters in the first two steps, and in each later one.
            keep: cache what the calls have in common; false while a graph is captured.

        Returns:
            Codes (B, Q), and the sum of their embeddings (B, D), which the talker reads next.
        """
        codes = [first_code_B]
        first_BD = F.embedding(first_code_B, self._first_table)
        x_BTD = self._project(torch.stack((hidden_BD, first_BD.to(self._dtype)), dim=1))
        hidden_BD = self._depth.begin_together(x_BTD, first_adapted)[:, 1]
        embedded: list[Tensor] = []
        for codebook, (head, table_VD) in enumerate(zip(self._heads, self._tables, strict=True), start=1):
            code_B = draw(head(hidden_BD).float(), codebook)
            codes.append(code_B)
            embedded.append(table_VD.index_select(0, code_B))
            if codebook < len(self._heads):
                x_BD = self._project(embedded[-1].to(self._dtype))
                hidden_BD = self._depth.step_together(x_BD, codebook + 1, adapted, keep=keep)
        return torch.stack(codes, dim=1), first_BD + sum(embedded[1:], embedded[0])
