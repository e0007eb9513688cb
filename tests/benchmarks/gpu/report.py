"""The results of the GPU benchmark as Markdown, however many of its parts there are yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

HOW_TO_READ = """\
Weights are random, because speed does not depend on them. First audio of one stream is prefill, one frame and its
codec; of many, it counts from asking, by listeners who play what comes and then ask for the next sentence of up to
4.8 s. A fine-tune trains all weights on random codes in packed micro-batches; its operations are those of forward and
backward pass that `training/estimate.py` counts, without attention scores. Planned memory is what
`training/memory_plan.py` says before a run; communication and fragmentation come on top of it."""


def write_report(results: dict[str, Any]) -> str:
    """All of it; parts that were left out or failed say why."""
    what = "rehearsed on a processor, which says nothing about speed" if results["rehearsed"] else "measured"
    lines = [
        f"# GPU benchmark, {results['began'].split()[0]}, {what}",
        "",
        f"`python -m tests.benchmarks.gpu --minutes {results['minutes']:g}`, "
        f"revision {results['revision'] or 'unknown'}, begun {results['began']} UTC",
        "",
        "- " + ", ".join(f"{name} {version}" for name, version in results["packages"].items()),
        *(f"- {line}" for line in results["missing"]),
        "",
        HOW_TO_READ,
    ]
    for name, part in results["parts"].items():
        lines += ["", f"## {part['title']}", "", f"{name}: {part['state']}, {part['seconds']:.0f} s"]
        if part["why"]:
            lines += ["", *(f"    {line}" for line in part["why"].splitlines())]
        if part["found"]:
            show = SECTIONS[name.split("-")[0]]
            lines += ["", *show(part["found"], results)]
    return "\n".join(lines)


def _machine(found: dict[str, Any], results: dict[str, Any]) -> list[str]:
    lines = [f"- {line}" for line in found["lines"]]
    for gpu in found.get("gpus", []):
        lines.append(f"- {gpu['name']}, {gpu['gib']} GiB, compute capability {gpu['capability']}")
    if "cuda" in found:
        lines.append(f"- CUDA {found['cuda']}, cuDNN {found['cudnn']}")
    if "measured_tflops" in found:
        lines.append(f"- {found['measured_tflops']:.3g} TFLOP/s in {found['of']}")
    return lines


def _tests(found: dict[str, Any], results: dict[str, Any]) -> list[str]:
    lines = [", ".join(f"{number} {word}" for word, number in found["counts"].items()) or "None ran."]
    return [*lines, *(f"    {line}" for line in found["said"].splitlines())]


def _decode(found: dict[str, Any], results: dict[str, Any]) -> list[str]:
    lines = found.get("table", "").splitlines()
    return [*lines, *_failures(found)]


def _streams(found: dict[str, Any], results: dict[str, Any]) -> list[str]:
    lines = [
        "| streams | takes | sound, s/s | takes/s | first audio, ms: median, p95 | underruns | longest pause, ms "
        "| peak, GiB | ready after, s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["streams"]:
        lines.append(
            f"| {row['streams']} | {row['takes']} | {row['sound_per_second']:.1f} | {row['takes_per_second']:.2f} | "
            f"{row['first_audio_ms']:.0f}, {row['first_audio_p95_ms']:.0f} | {row['underruns']} | "
            f"{row['max_pause_ms']:.0f} | {row['peak_gib']:.2f} | {row['seconds_to_ready']:.1f} |"
        )
    return [*lines, *_failures(found)]


def _finetune(found: dict[str, Any], results: dict[str, Any]) -> list[str]:
    lines = [
        f"{found['workers']} workers, {found['strategy']}, {found['precision']}, micro-batches of "
        f"{found['micro_batch_tokens']} tokens, {found['layers']} layers",
        "",
        "| | |",
        "|---|---|",
        f"| planned memory (of it state) | {found['planned_gib']:.2f} GiB ({found['planned_state_gib']:.2f}) |",
    ]
    if "steps" not in found:
        return [*lines, "", "It ended before its first steps."]
    lines += [
        f"| measured memory (of it state) | {found['measured_gib']:.2f} GiB ({found['measured_state_gib']:.2f}) |",
        f"| steps measured | {found['steps']} |",
        f"| seconds per step | {found['seconds_per_step']:.3f} |",
        f"| tokens per second | {found['tokens_per_second']:.0f} |",
        f"| frames per second | {found['frames_per_second']:.0f} |",
        f"| TFLOP/s on each GPU | {found['tflops_per_gpu']:.3g}{_shares(found['tflops_per_gpu'], results)} |",
    ]
    return lines


def _shares(tflops: float, results: dict[str, Any]) -> str:
    machine = results["parts"].get("machine", {}).get("found", {})
    peaks = {"of the data sheet's": machine.get("data_sheet_tflops"), "of measured": machine.get("measured_tflops")}
    shares = [f"{tflops / peak:.1%} {of} {peak:.3g}" for of, peak in peaks.items() if peak]
    return f" ({', '.join(shares)})" if shares else ""


def _pretrain(found: dict[str, Any], results: dict[str, Any]) -> list[str]:
    lines = ["| stage | steps measured | steps per second | peak, GiB |", "|---|---|---|---|"]
    for stage, row in found.items():
        peak = f"{row['peak_gib']:.2f}" if row["peak_gib"] is not None else ""
        lines.append(f"| {stage} | {row['steps']} | {row['steps_per_second']:.2f} | {peak} |")
    return lines


def _failures(found: dict[str, Any]) -> list[str]:
    lines = []
    for name, why in found.get("failed", {}).items():
        lines += ["", f"{name} failed:", "", *(f"    {line}" for line in why.splitlines()[-8:])]
    return lines


SECTIONS: Mapping[str, Callable[[dict[str, Any], dict[str, Any]], list[str]]] = MappingProxyType(
    {
        "machine": _machine,
        "tests": _tests,
        "decode": _decode,
        "streams": _streams,
        "finetune": _finetune,
        "pretrain": _pretrain,
    }
)
