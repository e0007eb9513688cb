"""How fast a run learns at each of its steps."""

from __future__ import annotations

import math


def learning_rate_share(step: int, *, num_steps: int, num_warmup_steps: int, final_share: float) -> float:
    """Of the peak: linear warm-up, then half a cosine down to `final_share` at the last step."""
    if step < num_warmup_steps:
        return (step + 1) / num_warmup_steps
    progress = (step - num_warmup_steps) / max(1, num_steps - num_warmup_steps)
    return final_share + (1 - final_share) * (1 + math.cos(math.pi * min(1.0, progress))) / 2
