# Shape letters: N row, R rank, I input width, O output width, D talker width.
"""Low-rank adapters beside the packed layers of a running batch: each take brings its own, or none.

The projections that read one input are fused into one product, so an adapter is too: its first matrices stand side by
side, and what each of its second ones adds goes to that projection's part of the result. A take's rows are multiplied
on their own, so that they do not depend on what else is in the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from training.model.checkpoint.adapter_folder import AdapterHeader, read_adapter
from training.model.checkpoint.digest import checkpoint_digest
from training.model.errors import CheckpointError
from training.model.network.layers import DecoderLayer, Transformer
from training.model.network.lora import check_adapter_shapes, matrices_of
from training.model.voice_model import VoiceModel

_DENSE_ELEMENTS = 131_072
"""Second matrices with fewer elements together are one, with zeros where a part does not read a rank: for the embedded
model a call costs more than the zeros."""


class LowRankChange:
    """What an adapter adds to one fused product."""

    def __init__(self, parts: Sequence[tuple[Tensor, Tensor] | None], widths: Sequence[int], scale: float) -> None:
        """Fuse the matrices (R, I) and (O, R) of layers that read the same input; those without have None.

        Args:
            parts: one per layer, in the order of their outputs; not all None.
            widths: outputs of each layer.
            scale: factor of each product.
        """
        self.down_IR = torch.cat([part[0] for part in parts if part is not None]).t().contiguous()
        self.ups: list[tuple[slice, slice, Tensor]] = []
        """Which outputs, read from which ranks, by which matrix (R, O)."""
        rank = output = 0
        for part, width in zip(parts, widths, strict=True):
            if part is not None:
                ranks = slice(rank, rank := rank + part[1].shape[1])
                self.ups.append((slice(output, output + width), ranks, (scale * part[1]).t().contiguous()))
            output += width
        if len(self.ups) > 1 and output * rank < _DENSE_ELEMENTS:
            dense_RO = self.down_IR.new_zeros(rank, output)
            for outputs, ranks, up_RO in self.ups:
                dense_RO[ranks, outputs] = up_RO
            self.ups = [(slice(0, output), slice(0, rank), dense_RO)]

    @property
    def num_bytes(self) -> int:
        """Of its matrices."""
        return self.down_IR.nbytes + sum(up_RO.nbytes for _, _, up_RO in self.ups)

    def add_to(self, out_NO: Tensor, x_NI: Tensor) -> None:
        """Add what it makes of the input of a product to that product's result, in place."""
        low_NR = (x_NI if x_NI.dtype is self.down_IR.dtype else x_NI.to(self.down_IR.dtype)) @ self.down_IR
        for outputs, ranks, up_RO in self.ups:
            part_NO = out_NO[:, outputs]
            if out_NO.dtype is up_RO.dtype:
                part_NO.addmm_(low_NR[:, ranks], up_RO)
            else:
                part_NO.add_(low_NR[:, ranks] @ up_RO)


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerAdapter:
    """The adapter of one decoder layer, by the layer's fused products; None where it changes nothing."""

    qkv: LowRankChange | None
    out: LowRankChange | None
    gate_up: LowRankChange | None
    down: LowRankChange | None

    @property
    def num_bytes(self) -> int:
        """Of all its matrices."""
        return sum(change.num_bytes for change in vars(self).values() if change is not None)


AdaptedRows = Sequence[tuple[slice, LayerAdapter]]
"""Which rows of a call pass through which adapter; rows that are in none are the base model's."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Adapter:
    """A voice's adapter, ready to be added to a batch of its base model's takes.

    Attributes:
        talker: one per layer of the talker; empty if none is adapted.
        code_predictor: the same of the code predictor.
        speakers: its speakers' embeddings (D,) by name.
    """

    talker: Sequence[LayerAdapter]
    code_predictor: Sequence[LayerAdapter]
    speakers: Mapping[str, Tensor]

    @classmethod
    def pack(
        cls,
        weights: Mapping[str, Tensor],
        scale: float,
        talker: nn.Module,
        *,
        device: torch.device | str = "cpu",
        speakers: Mapping[str, Tensor] | None = None,
    ) -> Adapter:
        """Fuse the matrices of an adapter as the batch fuses the layers they belong to.

        Args:
            weights: by the names that they have in the adapted talker.
            scale: factor of each product.
            talker: its base; its layers may have been emptied.
            device: where the batch is.
            speakers: embeddings (D,) by name.

        Raises:
            CheckpointError: it does not fit the talker.
        """
        check_adapter_shapes({name: tuple(tensor.shape) for name, tensor in weights.items()}, talker)
        on_device = {name: tensor.to(device=device, dtype=torch.float32) for name, tensor in weights.items()}
        return cls(
            talker=_pack_stack(on_device, scale, talker, "model"),
            code_predictor=_pack_stack(on_device, scale, talker, "code_predictor.model"),
            speakers=dict(speakers or {}),
        )

    @property
    def num_bytes(self) -> int:
        """Of all its matrices."""
        return sum(layer.num_bytes for layer in (*self.talker, *self.code_predictor))


def load_adapter(folder: Path, model: VoiceModel) -> Adapter:
    """Read an adapter and make it ready for batches of its base model.

    Raises:
        CheckpointError: it is damaged, or belongs to another model than this one.
    """
    stored = read_adapter(folder)
    require_base_of(stored.header, model.folder)
    width = model.config.talker.hidden_size
    if any(row_D.shape != (width,) for row_D in stored.rows.values()):
        raise CheckpointError(f"The speakers of {folder} have other sizes than this model's. Use its own base model.")
    speakers = {name: stored.rows[row] for name, row in stored.header.speakers.items()}
    return Adapter.pack(stored.weights, stored.header.scale, model.talker, device=model.device, speakers=speakers)


def require_base_of(header: AdapterHeader, base: Path) -> None:
    """Refuse to put an adapter onto another model than the one it was trained on. Raises CheckpointError."""
    loaded = checkpoint_digest(base)
    if header.base_digest is not None and loaded == header.base_digest:
        return
    needed = header.base_name or "the model that it was trained from"
    digest = header.base_digest[:12] if header.base_digest is not None else "unknown"
    # The embedded model has no public name, and comes with each version of Encore.
    advice = (
        f"Load {header.base_name} to speak with it."
        if header.base_name
        else "Load that model to speak with it; if it was the embedded model of an earlier version, fine-tune it again."
    )
    raise CheckpointError(
        f"This voice is an adapter of {needed} (weights {digest}), and {base.name} is another model "
        f"(weights {(loaded or 'unknown')[:12]}). {advice}"
    )


def arrange(adapters: Mapping[int, Sequence[LayerAdapter]], steps: int) -> Sequence[AdaptedRows]:
    """For each layer of a stack, the rows of slots that have an adapter.

    Args:
        adapters: by slot, one per layer.
        steps: rows of each slot in a call.
    """
    adapted = [(slice(slot * steps, (slot + 1) * steps), layers) for slot, layers in adapters.items() if layers]
    if not adapted:
        return ()
    return [[(rows, layers[index]) for rows, layers in adapted] for index in range(len(adapted[0][1]))]


def _pack_stack(weights: Mapping[str, Tensor], scale: float, talker: nn.Module, name: str) -> list[LayerAdapter]:
    if not any(tensor.startswith(f"{name}.layers.") for tensor in weights):
        return []
    stack = talker.get_submodule(name)
    assert isinstance(stack, Transformer)
    packed = []
    for index, layer in enumerate(stack.layers):
        assert isinstance(layer, DecoderLayer)
        attention, mlp = (f"{name}.layers.{index}.{part}" for part in ("self_attn", "mlp"))

        def fuse(*names: str) -> LowRankChange | None:
            """The change of layers that read the same input."""
            parts = [matrices_of(weights, one) for one in names]
            linears = [talker.get_submodule(one) for one in names]
            widths = [linear.out_features for linear in linears if isinstance(linear, nn.Linear)]
            return LowRankChange(parts, widths, scale) if any(part is not None for part in parts) else None

        packed.append(
            LayerAdapter(
                qkv=fuse(*(f"{attention}.{one}_proj" for one in "qkv")),
                out=fuse(f"{attention}.o_proj"),
                gate_up=fuse(*(f"{mlp}.{one}_proj" for one in ("gate", "up"))),
                down=fuse(f"{mlp}.down_proj"),
            )
        )
    return packed
