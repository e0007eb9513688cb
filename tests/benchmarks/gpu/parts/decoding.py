"""How fast one stream is decoded, beside the reference package and faster-qwen3-tts where they are installed."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.process import MeasuredProcess
from tests.benchmarks.report import Party, Round, table
from tests.benchmarks.shapes import read_shapes

PROMPT_ROWS = 60
REFERENCE, FASTER = "qwen-tts", "faster-qwen3-tts"
MODULES = {REFERENCE: "qwen_tts", FASTER: "faster_qwen3_tts"}
_REFERENCE_SCRIPT = Path(__file__).parents[2] / "reference_decode.py"
# Of the time there is, so that the last round ends before its end.
_SHARE_OF_TIME = 0.8


def measure(setup: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rounds in turns until the time is nearly over; a party that fails is named and takes no part any more."""
    ends = time.monotonic() + _SHARE_OF_TIME * setup["seconds"]
    parties = start_parties(setup)
    abouts: dict[str, dict[str, Any]] = {}
    rounds: dict[str, list[Round]] = {name: [] for name in parties}
    failed: dict[str, str] = {}
    for name in list(parties):
        try:
            abouts[name] = parties[name].ready()
        except RuntimeError as error:
            failed[name] = str(error)
            del parties[name]
    # The first one warms up.
    for number in range(setup["max_rounds"] + 1):
        for name in list(parties):
            try:
                answer = parties[name].ask({})
            except RuntimeError as error:
                failed[name] = str(error)
                del parties[name]
                continue
            if number:
                rounds[name].append(answer)
        if number:
            yield sum_up(abouts, rounds, failed)
        if not parties or time.monotonic() > ends:
            break
    if not any(rounds.values()):
        yield {"failed": failed}
    for process in parties.values():
        process.close()


def start_parties(setup: dict[str, Any]) -> dict[str, MeasuredProcess]:
    """Our precisions, and the packages that this Python or the one that was named has."""
    shapes = read_shapes(setup["shapes"])
    shared = {
        "model": shapes.model,
        "threads": setup["threads"],
        "device": setup["device"],
        "frames": setup["frames"],
        "prompt_rows": PROMPT_ROWS,
    }
    commands = {}
    for name, module in MODULES.items():
        python = setup["pythons"][name] or (sys.executable if importlib.util.find_spec(module) else None)
        if python:
            commands[name] = ([python, str(_REFERENCE_SCRIPT)], {**shared, "package": name})
    for precision in setup["precisions"]:
        ours = {**shared, "speech_tokenizer": shapes.speech_tokenizer, "precision": precision}
        commands[precision] = ([sys.executable, "-m", "tests.benchmarks.frame_worker"], ours)
    return {name: MeasuredProcess(name, command, what, setup["threads"]) for name, (command, what) in commands.items()}


def sum_up(abouts: dict[str, dict[str, Any]], rounds: dict[str, list[Round]], failed: dict[str, str]) -> dict[str, Any]:
    """What was found, as numbers and as a table."""
    milliseconds = next((about["frame_milliseconds"] for about in abouts.values() if "codec" in about), 80.0)
    measured = {name: Party(_name(name, abouts[name]), many, milliseconds) for name, many in rounds.items() if many}
    reference = measured.get(REFERENCE)
    others = [party for name, party in measured.items() if name != REFERENCE]
    return {
        "about": abouts,
        "rounds": rounds,
        "failed": failed,
        "real_time_factor": {name: party.real_time_factors for name, party in measured.items()},
        "first_audio_ms": {name: party.per_round("first_audio") for name, party in measured.items()},
        "table": table(others, reference, PROMPT_ROWS) if others else "",
    }


def _name(name: str, about: dict[str, Any]) -> str:
    return f"{name}, codec {about['codec']}" if "codec" in about else f"{name} {about['package']}, {about['dtype']}"
