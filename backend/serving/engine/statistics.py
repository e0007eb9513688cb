"""What an engine has done and is doing, as numbers for metrics and for scaling."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(kw_only=True)
class EngineStatistics:
    """Counts kept by an engine's thread; `Engine.statistics` hands out copies. The `num_..._total` only ever grow.

    Attributes:
        num_slots: takes that can be spoken at once.
        num_active: takes being spoken.
        num_waiting: takes without a slot.
        max_waiting: beyond which new ones are refused.
        num_frames_total: frames made.
        num_steps_total: steps of the batch; frames per step is how full it was.
        num_takes_total: takes asked for and accepted.
        num_finished_total: takes that came to their end.
        num_cancelled_total: takes that were cancelled.
        num_failed_total: takes that ended by a fault.
        num_refused_total: takes refused because the queue was full.
        num_underruns_total: chunks of live takes that came after the player had run dry.
        num_adapters: adapters in memory.
        num_adapter_loads_total: how often one was read.
        busy_seconds_total: time in which there was something to do.
    """

    num_slots: int = 0
    num_active: int = 0
    num_waiting: int = 0
    max_waiting: int = 0
    num_frames_total: int = 0
    num_steps_total: int = 0
    num_takes_total: int = 0
    num_finished_total: int = 0
    num_cancelled_total: int = 0
    num_failed_total: int = 0
    num_refused_total: int = 0
    num_underruns_total: int = 0
    num_adapters: int = 0
    num_adapter_loads_total: int = 0
    busy_seconds_total: float = 0.0
