"""Activation checkpointing: layers forget what they computed and compute it again for the backward pass."""

from __future__ import annotations

from functools import partial

from torch.utils.checkpoint import checkpoint

from training.model.network.talker import Talker


def recompute_layers(talker: Talker) -> None:
    """Make every decoder layer keep its input only.

    It replaces `forward` on the instances, inside whatever hooks a strategy puts on the layers: gathered weights are
    there when a layer computes again, and parameters keep their names.
    """
    for layer in (*talker.model.layers, *talker.code_predictor.model.layers):
        # An instance attribute that shadows the method, which type checkers do not like to see assigned.
        vars(layer)["forward"] = partial(checkpoint, layer.forward, use_reentrant=False)
