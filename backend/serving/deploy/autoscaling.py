"""How many replicas should speak, by what they say of themselves: slots in use, and chunks that came too late.

Ray Serve copies this module into its controller, so it imports nothing else of Encore.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext

SLOTS_IN_USE, LATE_CHUNKS = "slots_in_use", "late_chunks"
"""What a replica reports: takes that speak or wait for a slot, and chunks that players had to wait for since the last
report."""

FULL_SHARE = 0.8
"""Of the slots. Beyond it there is time for another replica, which has to load a model, before anybody waits."""


def wanted_replicas(
    *,
    num_replicas: int,
    num_slots: int,
    num_queued: float,
    slots_in_use: Mapping[str, float],
    late_chunks: Mapping[str, float],
) -> float:
    """How many replicas there should be.

    Args:
        num_replicas: that run now.
        num_slots: of each.
        num_queued: requests that no replica has taken yet.
        slots_in_use: of each replica, by its name.
        late_chunks: the same.
    """
    wanted = (sum(slots_in_use.values()) + num_queued) / (FULL_SHARE * num_slots)
    # Where a take has a replica to itself and comes too late all the same, another one does not help.
    is_crowded = any(late > 0 and slots_in_use.get(replica, 0.0) > 1 for replica, late in late_chunks.items())
    return max(wanted, num_replicas + 1) if is_crowded else wanted


class SlotPolicy:
    """A policy for Serve's autoscaler, which bounds what it says and waits until it has said so for long enough."""

    def __init__(self, num_slots: int) -> None:
        """Scale replicas with so many slots each."""
        self._num_slots = num_slots

    def __call__(self, context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
        """How many there should be, and nothing to remember."""
        metrics = context.aggregated_metrics or {}
        return wanted_replicas(
            num_replicas=context.current_num_replicas,
            num_slots=self._num_slots,
            num_queued=context.total_queued_requests or 0.0,
            slots_in_use={str(replica): value for replica, value in metrics.get(SLOTS_IN_USE, {}).items()},
            late_chunks={str(replica): value for replica, value in metrics.get(LATE_CHUNKS, {}).items()},
        ), {}
