"""Speaker embeddings blended with another speaker's, so that a talker listens to the reference that it continues.

In training the embedding says who speaks, since every speaker of the corpus has one of their own, and the reference's
codes add little. The embedding of a voice that the corpus does not have lies between those known, and the talker would
speak like its neighbours. Where embeddings cannot be relied on, the voice has to be taken from the codes.
"""

from __future__ import annotations

import torch
from torch import Tensor


def blended(speakers: Tensor, share: float, random: torch.Generator) -> Tensor:
    """The embeddings of a batch, some of them partly another row's.

    Args:
        speakers: (rows, width), one embedding for each row.
        share: of the rows, on average; in these, anything from none to all of the embedding is the other row's.
        random: CPU generator.
    """
    num_rows = len(speakers)
    if not share or num_rows < 2:
        return speakers
    is_blended = torch.rand(num_rows, 1, generator=random) < share
    part = torch.where(is_blended, torch.rand(num_rows, 1, generator=random), 0.0)
    distance = int(torch.randint(1, num_rows, (), generator=random))
    return torch.lerp(speakers, speakers.roll(distance, 0), part.to(speakers))
