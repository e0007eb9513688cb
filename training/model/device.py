"""Chooses the device to compute on, and says why a better one is not used; loads no network."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch

from training.model.device_memory import free_bytes
from training.model.errors import ModelError
from training.model.pci_gpus import AMD, INTEL, NVIDIA, gpu_vendors

GPUS = ("cuda", "xpu", "mps")
"""From the best to the least, where a machine has several kinds."""

_KINDS = ("cpu", *GPUS)
_GB = 1e9
_GET_STARTED = "see pytorch.org/get-started"


@dataclass(frozen=True, kw_only=True)
class Unused:
    """A GPU that is here and does not compute.

    Attributes:
        device: what PyTorch would call it.
        reason: why, one sentence.
        remedy: what to do about it, one sentence.
    """

    device: str
    reason: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class DeviceSelection:
    """What computes.

    Attributes:
        device: the one that was chosen.
        unused: better ones that are here.
    """

    device: torch.device
    unused: tuple[Unused, ...] = ()

    @property
    def in_words(self) -> str:
        """One line for the start of a program."""
        better = "".join(f" {one.reason} {one.remedy}" for one in self.unused)
        return f"Device: {self.device}, {device_name(self.device)}.{better}"


def choose_device(name: str) -> torch.device:
    """The device of this name; `auto` is the best one that works here. Raises ModelError, see `select_device`."""
    return select_device(name).device


def select_device(name: str, needs: Callable[[torch.device], int] | None = None) -> DeviceSelection:
    """The device of this name, or with `auto` the best one that works here.

    Args:
        name: auto, cpu, cuda, mps, xpu, or a GPU with its number such as cuda:1.
        needs: bytes that are needed on a device; with `auto` a GPU with less memory free is passed over.

    Raises:
        ModelError: an unknown device, or one that does not work here.
    """
    if name != "auto":
        return DeviceSelection(device=_named(name))
    unused: list[Unused] = []
    for kind in GPUS:
        problem = _problem_of(kind)
        if problem is None:
            device = torch.device(kind)
            problem = _lack_of_memory(device, needs(device)) if needs is not None else None
            if problem is None:
                return DeviceSelection(device=device, unused=tuple(unused))
        if isinstance(problem, Unused):
            unused.append(problem)
    return DeviceSelection(device=torch.device("cpu"), unused=tuple(unused))


def device_line(name: str) -> str:
    """One line for the start of a program: what computes, or why the device that was asked for cannot."""
    try:
        return select_device(name).in_words
    except ModelError as error:
        return f"Device: {error}"


def num_gpus() -> int:
    """How many GPUs work here; Apple's is left out, because it cannot train together with others."""
    return next((_count(kind) for kind in ("cuda", "xpu") if _problem_of(kind) is None), 0)


def device_name(device: torch.device) -> str:
    """What the device is called by its maker, or how many cores the processor has."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    if device.type == "xpu":
        return str(torch.xpu.get_device_name(device))
    if device.type == "mps":
        return f"Apple GPU of {platform.machine()}"
    cores = os.cpu_count() or 1
    return f"{cores} processor core{'s' if cores > 1 else ''}"


def _named(name: str) -> torch.device:
    known = "Use auto, cpu, cuda, mps or xpu."
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelError(f"There is no device {name!r}. {known}") from error
    if device.type not in _KINDS:
        raise ModelError(f"The device {name!r} is not supported. {known}")
    if device.type == "cpu":
        return device
    problem = _problem_of(device.type)
    if isinstance(problem, Unused):
        raise ModelError(f"{problem.reason} {problem.remedy} Or use --device cpu.")
    if problem is not None:
        raise ModelError(problem)
    if device.index is not None and device.index >= _count(device.type):
        raise ModelError(f"There is no device {name!r}. The last one is {device.type}:{_count(device.type) - 1}.")
    return device


def _count(kind: str) -> int:
    counts = {"cuda": torch.cuda.device_count, "xpu": torch.xpu.device_count}
    return int(counts[kind]()) if kind in counts else 1


def _problem_of(kind: str) -> Unused | str | None:
    """Why a kind of GPU is not used here although there is one; a plain sentence where there is none; else None."""
    return {"cuda": _cuda_problem, "xpu": _xpu_problem, "mps": _mps_problem}[kind]()


def _cuda_problem() -> Unused | str | None:
    if torch.cuda.is_available():
        return _lack_of_code()
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1", "NoDevFiles"):
        return Unused(
            device="cuda", reason="CUDA_VISIBLE_DEVICES hides the GPUs.", remedy="Unset it to compute on them."
        )
    vendors = gpu_vendors()
    if NVIDIA in vendors and torch.version.cuda is None:
        return Unused(
            device="cuda",
            reason="There is an NVIDIA GPU, but this PyTorch is built without CUDA.",
            remedy="Install PyTorch's CUDA build: make clean, then make start without TORCH_INDEX.",
        )
    if NVIDIA in vendors:
        return Unused(
            device="cuda",
            reason="There is an NVIDIA GPU, but its driver does not answer.",
            remedy="Install or update NVIDIA's driver until nvidia-smi lists the GPU.",
        )
    if AMD in vendors and torch.version.hip is None:
        return Unused(
            device="cuda",
            reason="There is an AMD GPU, but this PyTorch is built without ROCm.",
            remedy=f"Install PyTorch's ROCm build, {_GET_STARTED}.",
        )
    if AMD in vendors:
        return Unused(
            device="cuda",
            reason="There is an AMD GPU, but ROCm does not find it.",
            remedy="Install AMD's driver until rocminfo lists the GPU.",
        )
    return "No CUDA device was found. Use --device cpu, or check the driver with nvidia-smi."


def _xpu_problem() -> Unused | str | None:
    if torch.xpu.is_available():
        return None
    if INTEL not in gpu_vendors():
        return "No Intel GPU was found. Use --device cpu."
    if torch.xpu._is_compiled():
        return Unused(
            device="xpu",
            reason="There is an Intel GPU, but its driver does not answer.",
            remedy="Install Intel's driver until xpu-smi lists the GPU.",
        )
    return Unused(
        device="xpu",
        reason="There is an Intel GPU, but this PyTorch is built without XPU.",
        remedy=f"Install PyTorch's XPU build, {_GET_STARTED}.",
    )


def _mps_problem() -> Unused | str | None:
    if torch.backends.mps.is_available():
        return None
    if sys.platform != "darwin" or platform.machine() != "arm64":
        return "No Apple GPU was found. Use --device cpu."
    if torch.backends.mps.is_built():
        return Unused(
            device="mps",
            reason="There is an Apple GPU, but this macOS has no Metal for it.",
            remedy="Update to macOS 14 or newer.",
        )
    return Unused(
        device="mps",
        reason="There is an Apple GPU, but this PyTorch is built without Metal.",
        remedy=f"Install PyTorch for Apple's processors, {_GET_STARTED}.",
    )


def _lack_of_code() -> Unused | None:
    """A GPU that this build of PyTorch was not compiled for: the first operation on it would fail."""
    architecture = _architecture()
    if _has_code(architecture, torch.cuda.get_arch_list()):
        return None
    return Unused(
        device="cuda",
        reason=f"This PyTorch has no code for {torch.cuda.get_device_name()} ({architecture}).",
        remedy=f"Install a build of PyTorch that has it, {_GET_STARTED}.",
    )


def _architecture() -> str:
    """As compilers name it: sm_90 for CUDA, gfx942 for ROCm."""
    if torch.version.hip is not None:
        return str(torch.cuda.get_device_properties(0).gcnArchName).partition(":")[0]
    major, minor = torch.cuda.get_device_capability(0)
    return f"sm_{major}{minor}"


def _has_code(architecture: str, compiled: list[str]) -> bool:
    """Whether code for one of these architectures runs on this one.

    CUDA's runs on its own major version, from its minor version on; `compute_*` is compiled anew for any later one.
    """
    if not compiled or architecture in compiled:
        return True
    if not architecture.startswith("sm_"):
        return False
    number = int(architecture.removeprefix("sm_"))
    for one in compiled:
        found = re.match(r"(sm|compute)_(\d+)", one)
        if found is None:
            continue
        kind, other = found[1], int(found[2])
        if other <= number and (kind == "compute" or other // 10 == number // 10):
            return True
    return False


def _lack_of_memory(device: torch.device, needed: int) -> Unused | None:
    free = free_bytes(device)
    if free >= needed:
        return None
    return Unused(
        device=str(device),
        reason=f"{device_name(device)} has {free / _GB:.1f} GB free, and {needed / _GB:.1f} GB are needed.",
        remedy="Close what else uses it, or use a smaller model.",
    )


def supports_bf16(device: torch.device) -> bool:
    """Whether bfloat16 is faster than float32 on the device."""
    if device.type == "cuda":
        # GPUs before Ampere emulate it.
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "xpu":
        return bool(torch.xpu.is_bf16_supported())
    if device.type == "cpu":
        # Emulated bfloat16 (AVX2, plain AVX-512) is slower than float32.
        # PyTorch's own kernels may be held to AVX2 (ATEN_CPU_CAPABILITY) on a processor that could do more: its
        # attention then fails in bfloat16 where the processor has AMX.
        has_kernels = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
        return has_kernels and bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return False
