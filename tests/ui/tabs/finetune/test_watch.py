"""Losses are read once, and anew where a resumed run has gone back."""

from __future__ import annotations

from types import SimpleNamespace

from backend.runs.storage.records import MetricRecord
from ui.tabs.finetune.watch import LossHistory


class Store:
    """Steps by number, and from where on they were asked for."""

    def __init__(self) -> None:
        self.losses: dict[int, float] = {}
        self.asked: list[int] = []

    def metrics(self, run_id: str, after_step: int) -> list[MetricRecord]:
        self.asked.append(after_step)
        return [
            MetricRecord(step=step, attempt=1, measures={"talker_loss": loss})
            for step, loss in sorted(self.losses.items())
            if step > after_step
        ]


def read(history: LossHistory, store: Store, *, attempt: int = 1) -> list[float]:
    run = SimpleNamespace(id="r", attempt=attempt, step=max(store.losses, default=0))
    return [one.measures["talker_loss"] for one in history.read(store, run)]


def test_only_what_is_new_is_read():
    history, store = LossHistory(), Store()
    store.losses = {1: 5.0, 2: 4.0}
    assert read(history, store) == [5.0, 4.0]
    store.losses[3] = 3.0
    assert read(history, store) == [5.0, 4.0, 3.0]
    assert store.asked == [0, 2]


def test_steps_that_are_done_again_are_read_again():
    history, store = LossHistory(), Store()
    store.losses = {1: 5.0, 2: 4.0, 3: 3.0}
    read(history, store)
    store.losses = {1: 5.0, 2: 3.5}
    assert read(history, store, attempt=2) == [5.0, 3.5]
