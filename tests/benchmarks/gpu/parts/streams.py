"""How many listeners one GPU serves at once, and how soon they hear the first sound."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from tests.benchmarks.process import MeasuredProcess
from tests.benchmarks.serving_report import Load, percentile

_SHARE_OF_TIME = 0.8
_MAX_ROUNDS = 3
CACHE_STEPS = 1024


def measure(setup: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each number of streams by an engine with as many slots; few streams first, and each within its share of time."""
    began, rows, failed = time.monotonic(), [], {}
    for place, streams in enumerate(setup["streams"]):
        ends = began + _SHARE_OF_TIME * setup["seconds"] * (place + 1) / len(setup["streams"])
        try:
            rows.append(_serve(setup, streams, ends))
        except RuntimeError as error:
            failed[str(streams)] = str(error)
        yield {"streams": rows, "failed": failed}


def _serve(setup: dict[str, Any], streams: int, ends: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.benchmarks.serving_worker"]
    what = {
        "party": "engine",
        "checkpoint": None,
        "shapes": setup["shapes"],
        "precision": setup["precisions"][0],
        "device": setup["device"],
        "threads": setup["threads"],
        "slots": streams,
        "cache": CACHE_STEPS if setup["max_frames"] > 10 else 128,
        "max_frames": setup["max_frames"],
    }
    process = MeasuredProcess(f"engine with {streams} slots", command, what, setup["threads"])
    try:
        started = time.monotonic()
        about = process.ready()
        seconds_to_ready = time.monotonic() - started
        process.ask({"streams": streams, "takes": 1, "round": 0})
        loads = []
        for number in range(1, min(_MAX_ROUNDS, setup["max_rounds"]) + 1):
            loads.append(Load(**process.ask({"streams": streams, "takes": setup["takes"], "round": number})))
            if time.monotonic() > ends:
                break
    finally:
        process.close()
    return sum_up(streams, loads, {**about, "seconds_to_ready": seconds_to_ready})


def sum_up(streams: int, loads: list[Load], about: dict[str, Any]) -> dict[str, Any]:
    """One line of the table: medians over the rounds, and the first audio of all takes."""
    firsts = [seconds for load in loads for seconds in load.first_audio_seconds]
    return {
        "streams": streams,
        "rounds": len(loads),
        "takes": sum(load.num_takes for load in loads),
        "sound_per_second": statistics.median(load.throughput for load in loads),
        "takes_per_second": statistics.median(load.num_takes / load.wall_seconds for load in loads),
        "first_audio_ms": 1000 * statistics.median(firsts),
        "first_audio_p95_ms": 1000 * percentile(firsts, 0.95),
        "underruns": sum(load.num_underruns for load in loads),
        "max_pause_ms": 1000 * max(load.max_pause_seconds for load in loads),
        "peak_gib": max(load.peak_bytes for load in loads) / 2**30,
        **about,
    }
