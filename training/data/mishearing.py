# Shape letters: B batch, T step, N example, F frame, Q codebook.
"""Frames of the past partly exchanged, so that a talker learns to go on from mistakes.

In training a talker reads what was said, in use what it has said itself, and it has never seen its own mistakes: one
wrong code leads to the next ("exposure bias", Bengio et al. 2015). Here some codes that it reads are those of other
frames in the batch. What it is to predict stays, so it learns to come back to text and voice.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from training.data.example import TrainingBatch


def misheard(batch: TrainingBatch, share: float, random: torch.Generator) -> TrainingBatch:
    """A batch of which the talker hears some codes exchanged; as it is if `share` is zero.

    Args:
        batch: on the device of `random`, or any other.
        share: of the codes in the example with the most; examples have any share up to it, evenly.
        random: CPU generator.
    """
    if not share:
        return batch
    inputs, packing = batch.inputs, batch.packing
    device = inputs.codec_ids.device
    codes_BTQ = inputs.with_first_codebook()
    of_example_N1 = share * torch.rand(len(batch.speaker_ND), 1, generator=random)
    of_position = of_example_N1.unsqueeze(1) if packing is None else packing.spread(of_example_N1)
    is_exchanged_BTQ = (torch.rand(codes_BTQ.shape, generator=random) < of_position).to(device)
    is_exchanged_BTQ &= inputs.is_frame.unsqueeze(-1)
    frames_FQ = codes_BTQ[inputs.is_frame]
    places = torch.randint(len(frames_FQ), codes_BTQ.shape, generator=random).to(device)
    others_BTQ = frames_FQ.gather(0, places.flatten(0, 1)).view_as(codes_BTQ)
    codes_BTQ = codes_BTQ.where(~is_exchanged_BTQ, others_BTQ)
    return replace(batch, heard=replace(inputs, codec_ids=codes_BTQ[..., 0], residual_codes=codes_BTQ[..., 1:]))
