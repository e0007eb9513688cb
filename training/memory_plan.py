"""Computes each worker's memory from the shapes of the network; nothing is allocated.

State that stays between steps (weights, gradients, optimizer) is exact. Activations are an estimate: the tensors that
the backward pass of `training/model/network/layers.py` keeps, counted by hand, for the largest micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import torch

from training.job import Offload, Strategy
from training.model.config import ModelConfig, TransformerConfig
from training.model.lora_config import LoraConfig
from training.model.network.lora import put_adapter
from training.model.network.talker import Talker
from training.strategies.learner import StateBytes
from training.workers import hybrid_group_size

_FLOAT, _MOMENTS = 4, 8

# DeepSpeed's own: weights that come from a disk have five buffers, master weights, moments and gradients four, of a
# size that holds a group of so many elements.
_WEIGHT_BUFFERS, _OPTIMIZER_BUFFERS, _GROUP_ELEMENTS = 5, 4, 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Tensors:
    """Sizes of the network's parameters.

    Attributes:
        trained: rows along the first axis and elements per row, of each trained tensor.
        frozen: the same of each frozen tensor.
        max_layer: elements of the largest unit that is gathered at once, apart from the root's.
        root: elements of the root's unit.
        max_gradients: trained elements of the root's unit and of the largest other one.
        talker_layers: elements of the talker's layers without an adapter, by which the precision is chosen.
        text_embedding: elements of the text embedding if it is frozen, else 0.
    """

    trained: tuple[tuple[int, int], ...]
    frozen: tuple[tuple[int, int], ...]
    max_layer: int
    root: int
    max_gradients: int
    talker_layers: int
    text_embedding: int

    @property
    def num_trained(self) -> int:
        """Number of trained elements."""
        return sum(rows * width for rows, width in self.trained)

    @property
    def num_frozen(self) -> int:
        """Number of frozen elements."""
        return sum(rows * width for rows, width in self.frozen)

    @property
    def num_computed(self) -> int:
        """Number of elements that are multiplied with, and not only looked up: all but a frozen text embedding."""
        return self.num_trained + self.num_frozen - self.text_embedding

    @property
    def by_decay(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Elements of each trained tensor: of matrices, and of gains and biases, which have no weight decay."""
        matrices = tuple(rows * width for rows, width in self.trained if width > 1)
        return matrices, tuple(rows for rows, width in self.trained if width == 1)


@dataclass(frozen=True, kw_only=True)
class WorkerMemory:
    """Bytes on the worker that holds most.

    Attributes:
        state: kept from step to step.
        gathered: copies of weights in the dtype of the arithmetic while they are used.
        activations: of the largest micro-batch; an estimate.
        main: state that a GPU offloads to the main memory, or that passes through it on its way to a disk.
    """

    state: StateBytes
    gathered: int
    activations: int
    main: int = 0

    @property
    def total(self) -> int:
        """All of it on the device; buffers for communication and fragmentation come on top."""
        return self.state.total + self.gathered + self.activations


def network_tensors(
    config: ModelConfig, *, train_text_embedding: bool = False, lora: LoraConfig | None = None
) -> Tensors:
    """Sizes of a talker with its code predictor and perhaps an adapter, from its configuration."""
    with torch.device("meta"):
        talker = Talker(config.talker, config.code_predictor)
    talker_layers = sum(parameter.numel() for parameter in talker.model.layers.parameters())
    if lora is not None:
        put_adapter(talker, lora)
    text_embedding = talker.model.text_embedding
    text_embedding.requires_grad_(train_text_embedding)
    sizes = {
        name: (parameter.shape[0], parameter.numel() // parameter.shape[0], parameter.requires_grad)
        for name, parameter in talker.named_parameters()
    }
    layers = (*talker.model.layers, *talker.code_predictor.model.layers)
    per_layer = [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers]
    gradients = [sum(p.numel() for p in layer.parameters() if p.requires_grad) for layer in layers]
    trained = tuple((rows, width) for rows, width, is_trained in sizes.values() if is_trained)
    frozen = tuple((rows, width) for rows, width, is_trained in sizes.values() if not is_trained)
    # Frozen, it is a unit of its own.
    apart = text_embedding.weight.numel() if not text_embedding.weight.requires_grad else 0
    return Tensors(
        trained=trained,
        frozen=frozen,
        max_layer=max(*per_layer, apart),
        root=sum(rows * width for rows, width, _ in sizes.values()) - sum(per_layer) - apart,
        max_gradients=sum(rows * width for rows, width in trained) - sum(gradients) + max(gradients),
        talker_layers=talker_layers,
        text_embedding=apart,
    )


def worker_memory(
    config: ModelConfig,
    strategy: Strategy,
    num_workers: int,
    *,
    compute_bytes: int = 2,
    frozen_bytes: int = _FLOAT,
    micro_batch_tokens: int = 1024,
    code_predictor_fraction: float = 1.0,
    activation_checkpointing: bool = False,
    train_text_embedding: bool = False,
    workers_per_machine: int | None = None,
    offload: Offload = "none",
    on_gpu: bool = True,
    tensors: Tensors | None = None,
) -> WorkerMemory:
    """Memory of the worker that holds most; `compute_bytes` is 2 for bf16 and 4 for fp32, `frozen_bytes` likewise.

    Pass the network's `tensors` to reuse them for several plans. What is offloaded is in the main memory, which is that
    of the worker's device unless it is `on_gpu`.
    """
    tensors = tensors or network_tensors(config, train_text_embedding=train_text_embedding)
    layout = _Layout(tensors, num_workers, compute_bytes, frozen_bytes, workers_per_machine or num_workers)
    state, gathered = _LAYOUT_BY_STRATEGY[strategy](layout)
    kept, moved = _offloaded(layout, strategy, state, offload)
    return WorkerMemory(
        state=kept if on_gpu else _sum(kept, moved),
        gathered=gathered,
        main=moved.total if on_gpu else 0,
        activations=activation_bytes(
            config,
            micro_batch_tokens=micro_batch_tokens,
            compute_bytes=compute_bytes,
            code_predictor_fraction=code_predictor_fraction,
            activation_checkpointing=activation_checkpointing,
        ),
    )


def activation_bytes(
    config: ModelConfig,
    *,
    micro_batch_tokens: int,
    compute_bytes: int,
    code_predictor_fraction: float = 1.0,
    activation_checkpointing: bool = False,
) -> int:
    """What a micro-batch's backward pass keeps of its forward pass, if three in four tokens are frames."""
    num_frames = micro_batch_tokens * 3 // 4
    num_predicted = max(1, round(num_frames * code_predictor_fraction))
    depth = config.talker.num_code_groups
    talker = micro_batch_tokens * _stack_bytes(config.talker, compute_bytes, recompute=activation_checkpointing)
    num_inputs = num_predicted * (depth + 1)
    predictor = num_inputs * _stack_bytes(config.code_predictor, compute_bytes, recompute=activation_checkpointing)
    # Logits in the dtype of the arithmetic, in float32, and their softmax.
    per_logit = compute_bytes + 2 * _FLOAT
    logits = num_frames * config.talker.vocab_size + num_predicted * (depth - 1) * config.code_predictor.vocab_size
    return talker + predictor + logits * per_logit


_NOTHING = StateBytes(parameters=0, gradients=0, optimizer=0)


@dataclass(frozen=True)
class _Layout:
    tensors: Tensors
    num_workers: int
    compute_bytes: int
    frozen_bytes: int
    workers_per_machine: int

    def state(self, trained: int, frozen: int) -> StateBytes:
        """Of a worker with so many elements, where PyTorch keeps them."""
        parameters = _FLOAT * trained + self.frozen_bytes * frozen
        return StateBytes(parameters=parameters, gradients=_FLOAT * trained, optimizer=_MOMENTS * trained)


def _whole(layout: _Layout) -> tuple[StateBytes, int]:
    trained, frozen = layout.tensors.num_trained, layout.tensors.num_frozen
    # Autocast keeps a copy of each weight matrix in float32 until the end of the forward pass, or of the backward pass.
    copied = trained if layout.frozen_bytes == layout.compute_bytes else layout.tensors.num_computed
    copies = layout.compute_bytes * copied if layout.compute_bytes < _FLOAT else 0
    return layout.state(trained, frozen), copies


def _fsdp2(layout: _Layout, *, reshard: bool = True, hybrid: bool = False) -> tuple[StateBytes, int]:
    if layout.num_workers == 1:
        return _whole(layout)
    tensors = layout.tensors
    parts = hybrid_group_size(layout.num_workers, layout.workers_per_machine) if hybrid else layout.num_workers
    trained, frozen = _shard(tensors.trained, parts), _shard(tensors.frozen, parts)
    # The next layer is gathered while one is running; without resharding all of them stay.
    in_use = tensors.root + 2 * tensors.max_layer if reshard else tensors.num_trained + tensors.num_frozen
    # A layer's gradients are whole until they have been summed over the workers.
    return layout.state(trained, frozen), layout.compute_bytes * in_use + _FLOAT * tensors.max_gradients


def _zero(layout: _Layout, *, stage: int) -> tuple[StateBytes, int]:
    tensors, parts = layout.tensors, layout.num_workers
    weights = tensors.num_trained + tensors.num_frozen
    part = sum(_zero_part(sizes, parts) for sizes in tensors.by_decay)
    gradients = tensors.num_trained if stage == 1 else _zero_gradients(tensors, parts)
    if stage == 3:
        # Stage 3 divides each tensor separately.
        part = gradients = sum(-(-rows * width // parts) for rows, width in tensors.trained)
        weights = part + sum(-(-rows * width // parts) for rows, width in tensors.frozen)
    state = StateBytes(
        parameters=layout.compute_bytes * weights,
        gradients=layout.compute_bytes * gradients,
        # Master weights are kept in addition, even if both are float32.
        optimizer=(_FLOAT + _MOMENTS) * part,
    )
    return state, layout.compute_bytes * (tensors.root + 2 * tensors.max_layer) if stage == 3 else 0


def _offloaded(
    layout: _Layout, strategy: Strategy, state: StateBytes, offload: Offload
) -> tuple[StateBytes, StateBytes]:
    """What of a worker's state stays where it computes, and what is in the main memory instead."""
    if strategy.startswith("fsdp2") and offload == "cpu" and layout.num_workers > 1:
        return _NOTHING, state
    if strategy == "zero3" and offload != "none":
        return _NOTHING, _zero3_moved(layout, state, offload)
    if strategy in ("zero1", "zero2") and offload == "cpu":
        # Gradients are summed in the dtype of the arithmetic where the optimizer is, whose own are float32; and
        # updated weights are cast there. Without sharded gradients they are also whole on the device until then.
        part = state.optimizer // (_FLOAT + _MOMENTS)
        summed = layout.compute_bytes * _zero_gradients(layout.tensors, layout.num_workers)
        gradients = state.gradients if strategy == "zero1" else 0
        return (
            StateBytes(parameters=state.parameters, gradients=gradients, optimizer=0),
            StateBytes(
                parameters=layout.compute_bytes * part,
                gradients=_FLOAT * part + summed,
                optimizer=state.optimizer,
            ),
        )
    return state, _NOTHING


def _zero3_moved(layout: _Layout, state: StateBytes, offload: Offload) -> StateBytes:
    part = state.optimizer // (_FLOAT + _MOMENTS)
    if offload == "cpu":
        # The optimizer's own gradients are float32.
        return replace(state, gradients=state.gradients + _FLOAT * part)
    group = min(part, _GROUP_ELEMENTS)
    largest = max(rows * width for rows, width in (*layout.tensors.trained, *layout.tensors.frozen))
    return StateBytes(
        parameters=_WEIGHT_BUFFERS * layout.compute_bytes * -(-largest // layout.num_workers),
        gradients=state.gradients + _FLOAT * group,
        optimizer=_OPTIMIZER_BUFFERS * _FLOAT * group,
    )


def _sum(one: StateBytes, other: StateBytes) -> StateBytes:
    return StateBytes(
        parameters=one.parameters + other.parameters,
        gradients=one.gradients + other.gradients,
        optimizer=one.optimizer + other.optimizer,
    )


def _zero_part(sizes: Sequence[int], parts: int) -> int:
    """Elements of one worker's part of tensors that DeepSpeed concatenates; it aligns parts to two elements."""
    return 2 * -(-sum(sizes) // (2 * parts))


def _zero_gradients(tensors: Tensors, parts: int) -> int:
    """Elements on the worker that holds most at stage 2: a tensor that spans several parts is kept whole by each."""
    held = [0] * parts
    for sizes in tensors.by_decay:
        part, begin = _zero_part(sizes, parts), 0
        for size in sizes:
            for rank in range(begin // part, (begin + size - 1) // part + 1):
                held[rank] += size
            begin += size
    return max(held)


_LAYOUT_BY_STRATEGY: Mapping[Strategy, Callable[[_Layout], tuple[StateBytes, int]]] = MappingProxyType(
    {
        "ddp": _whole,
        "fsdp2": _fsdp2,
        "fsdp2-no-reshard": partial(_fsdp2, reshard=False),
        "fsdp2-hybrid": partial(_fsdp2, hybrid=True),
        "zero1": partial(_zero, stage=1),
        "zero2": partial(_zero, stage=2),
        "zero3": partial(_zero, stage=3),
    }
)


def _shard(sizes: Iterable[tuple[int, int]], parts: int) -> int:
    """Elements on the first worker: FSDP2 divides each tensor along its first axis, and the first part is largest."""
    return sum(-(-rows // parts) * width for rows, width in sizes)


def _stack_bytes(config: TransformerConfig, compute_bytes: int, *, recompute: bool) -> int:
    """Bytes per token, over all layers."""
    width, c = config.hidden_size, compute_bytes
    query, key = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    # A norm keeps its input in float32 and its rounded output, which the next linear layers keep as well.
    norms = 2 * (_FLOAT + 2 * c) * width + (_FLOAT + c) * (query + key)
    attention = c * (query + key) + c * (query + 2 * key) + 2 * c * query
    feed_forward = 4 * c * config.intermediate_size
    one = norms + attention + feed_forward
    # Each checkpointed layer keeps its input, and one layer at a time keeps everything.
    return config.num_hidden_layers * c * width + one if recompute else config.num_hidden_layers * one
