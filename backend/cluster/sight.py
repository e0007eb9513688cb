"""Which machines of a cluster see the folders of this one, and a last word to each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

_ANSWER_SECONDS = 120.0
"""A machine first unpacks the code that is shipped to it."""

_Answer = TypeVar("_Answer")


def unseen_paths(paths: Sequence[Path]) -> list[list[Path]]:
    """For each machine of the connected cluster that works, those of these paths that are not there for it."""
    names = [str(path) for path in paths]
    return [[Path(name) for name in missing] for missing in on_every_machine(_missing, names)]


def on_every_machine(work: Callable[..., _Answer], *arguments: object) -> list[_Answer]:
    """Call a function once on each machine that has processors; the answers of those that answer, in no order."""
    import ray  # noqa: PLC0415 - takes a second, which only a cluster is worth
    from ray.exceptions import RayError  # noqa: PLC0415
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Any: Ray describes them so
    there = [node["NodeID"] for node in nodes if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    task: Any = ray.remote(num_cpus=0)(work)  # Any: Ray's types count arguments
    asked = [
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(*arguments)
        for node in there
    ]
    answers: list[_Answer] = []
    for answer in ray.wait(asked, num_returns=len(asked), timeout=_ANSWER_SECONDS)[0] if asked else []:
        try:
            answers.append(ray.get(answer))
        except RayError:  # a machine that has just been lost works no more
            continue
    return answers


def _missing(names: Sequence[str]) -> list[str]:
    return [name for name in names if not Path(name).exists()]
