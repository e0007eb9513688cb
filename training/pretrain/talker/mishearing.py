"""Frames of the past partly exchanged, so that a talker learns to go on from mistakes.

In training a talker reads what was said, in use what it has said itself, and it has never seen its own mistakes: one
wrong code leads to the next ("exposure bias", Bengio et al. 2015). Here some codes that it reads are those of other
frames in the batch, often by other speakers. What it is to predict stays, so it learns to come back to text and voice.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from training.model.network.talker_input import TalkerInput


def misheard(inputs: TalkerInput, share: float, random: torch.Generator) -> TalkerInput | None:
    """A batch's inputs with some codes of every row exchanged; None if `share` is zero.

    Args:
        inputs: (B, T) positions.
        share: of the codes in the row with the most; rows have any share up to it, evenly.
        random: CPU generator.
    """
    if not share:
        return None
    device = inputs.codec_ids.device
    # Of shape (B, T, codebooks), as what follows.
    codes = inputs.with_first_codebook()
    of_row = share * torch.rand(len(codes), 1, 1, generator=random)
    is_exchanged = (torch.rand(codes.shape, generator=random) < of_row).to(device) & inputs.is_frame.unsqueeze(-1)
    frames = codes[inputs.is_frame]
    places = torch.randint(len(frames), codes.shape, generator=random).to(device)
    others = frames.gather(0, places.flatten(0, 1)).view_as(codes)
    codes = codes.where(~is_exchanged, others)
    return replace(inputs, codec_ids=codes[..., 0], residual_codes=codes[..., 1:])
