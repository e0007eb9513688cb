"""Which device computes, and why a better one does not: with devices that say they are there, as PyTorch's would."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from training.model import device as devices
from training.model.device import DeviceSelection, Unused, device_line, num_gpus, select_device
from training.model.device_memory import cgroup_bytes_left
from training.model.device_names import DEVICES
from training.model.errors import ModelError
from training.model.pci_gpus import AMD, INTEL, NVIDIA, gpu_vendors
from training.model.voice_model import choose_precision


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without a GPU, whatever this one has."""
    for module in (torch.cuda, torch.xpu, torch.backends.mps):
        monkeypatch.setattr(module, "is_available", lambda: False)
    monkeypatch.setattr(devices, "gpu_vendors", frozenset)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    return monkeypatch


def give_cuda(machine, *, capability=(9, 0), compiled=("sm_80", "sm_90"), free=80_000_000_000, count=1):
    machine.setattr(torch.cuda, "is_available", lambda: True)
    machine.setattr(torch.cuda, "device_count", lambda: count)
    machine.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
    machine.setattr(torch.cuda, "get_device_name", lambda *_: "Some GPU")
    machine.setattr(torch.cuda, "get_arch_list", lambda: list(compiled))
    machine.setattr(torch.cuda, "mem_get_info", lambda *_: (free, 80_000_000_000))


def give(machine, kind):
    give_cuda(machine) if kind == "cuda" else machine.setattr(
        {"xpu": torch.xpu, "mps": torch.backends.mps}[kind], "is_available", lambda: True
    )


@pytest.mark.parametrize(
    ("there", "chosen"),
    [((), "cpu"), (("mps",), "mps"), (("xpu",), "xpu"), (("cuda",), "cuda"), (("xpu", "cuda"), "cuda")],
)
def test_auto_takes_the_best_device_that_works(machine, there, chosen):
    for kind in there:
        give(machine, kind)
    assert select_device("auto") == DeviceSelection(device=torch.device(chosen))


@pytest.mark.parametrize("name", [name for name in DEVICES if name not in ("auto", "cpu")])
def test_a_device_that_is_not_there_is_refused_by_name_with_what_to_do(machine, name):
    with pytest.raises(ModelError, match="Use --device cpu"):
        select_device(name)
    give(machine, name)
    assert select_device(name).device.type == name


@pytest.mark.parametrize(
    ("vendor", "build", "reason", "remedy"),
    [
        (NVIDIA, {}, "built without CUDA", "make start without TORCH_INDEX"),
        (NVIDIA, {"cuda": "13.0"}, "its driver does not answer", "nvidia-smi"),
        (AMD, {}, "built without ROCm", "ROCm build"),
        (AMD, {"hip": "7.0"}, "ROCm does not find it", "rocminfo"),
        (INTEL, {}, "built without XPU", "XPU build"),
    ],
)
def test_a_gpu_that_is_plugged_in_and_not_used_is_said_with_the_remedy(machine, vendor, build, reason, remedy):
    machine.setattr(devices, "gpu_vendors", lambda: frozenset({vendor}))
    for name, version in build.items():
        machine.setattr(torch.version, name, version)
    (unused,) = select_device("auto").unused
    assert reason in unused.reason
    assert remedy in unused.remedy
    assert unused.reason in device_line("auto")
    with pytest.raises(ModelError, match=reason):
        select_device(unused.device)


def test_gpus_that_were_hidden_on_purpose_are_not_taken_for_a_broken_driver(machine):
    machine.setattr(devices, "gpu_vendors", lambda: frozenset({NVIDIA}))
    machine.setenv("CUDA_VISIBLE_DEVICES", "")
    assert select_device("auto").unused[0].reason == "CUDA_VISIBLE_DEVICES hides the GPUs."


@pytest.mark.parametrize(
    ("capability", "compiled", "works"),
    [
        ((9, 0), ("sm_80", "sm_90"), True),
        ((8, 6), ("sm_80", "sm_90"), True),
        ((8, 0), ("sm_86",), False),
        ((6, 1), ("sm_75", "sm_80"), False),
        ((12, 0), ("sm_90",), False),
        ((12, 0), ("sm_90", "compute_90"), True),
        ((9, 0), ("sm_90a",), True),
        ((9, 0), (), True),
    ],
)
def test_a_gpu_this_pytorch_was_not_compiled_for_is_passed_over(machine, capability, compiled, works):
    give_cuda(machine, capability=capability, compiled=compiled)
    selection = select_device("auto")
    assert selection.device.type == ("cuda" if works else "cpu")
    assert num_gpus() == int(works)
    if not works:
        assert f"no code for Some GPU (sm_{capability[0]}{capability[1]})" in selection.unused[0].reason


def test_an_amd_gpu_is_known_by_its_own_name(machine):
    give_cuda(machine, compiled=("gfx90a", "gfx942"))
    machine.setattr(torch.version, "hip", "7.0")
    for name, chosen in (("gfx942:sramecc+", "cuda"), ("gfx1036", "cpu")):
        named = SimpleNamespace(gcnArchName=name)
        machine.setattr(torch.cuda, "get_device_properties", lambda *_, named=named: named)
        assert select_device("auto").device.type == chosen


def test_a_gpu_without_room_is_passed_over_only_by_auto(machine):
    give_cuda(machine, free=1_000_000_000)
    selection = select_device("auto", lambda device: 2_500_000_000)
    assert selection.device.type == "cpu"
    assert selection.unused == (
        Unused(
            device="cuda",
            reason="Some GPU has 1.0 GB free, and 2.5 GB are needed.",
            remedy="Close what else uses it, or use a smaller model.",
        ),
    )
    assert select_device("cuda", lambda device: 2_500_000_000).device.type == "cuda"


def test_a_gpu_beyond_the_last_is_refused(machine):
    give_cuda(machine, count=2)
    assert select_device("cuda:1").device == torch.device("cuda", 1)
    with pytest.raises(ModelError, match="The last one is cuda:1"):
        select_device("cuda:2")


def test_precisions_are_those_that_a_device_computes_without_emulation(machine):
    machine.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert choose_precision("auto", torch.device("cuda"), 10**9) == "fp32"
    machine.setattr(torch.xpu, "is_bf16_supported", lambda: True)
    assert choose_precision("auto", torch.device("xpu"), 10**9) == "bf16"
    assert choose_precision("auto", torch.device("mps"), 10**9) == "fp32"
    for macos_14, is_accepted in ((True, True), (False, False)):
        machine.setattr(torch.backends.mps, "is_macos_or_newer", lambda *_, answer=macos_14: answer)
        if is_accepted:
            assert choose_precision("bf16", torch.device("mps"), 10**9) == "bf16"
        else:
            with pytest.raises(ModelError, match="bf16"):
                choose_precision("bf16", torch.device("mps"), 10**9)


def test_gpus_are_found_on_the_bus_without_a_driver(tmp_path: Path):
    cards = {
        "0000:01:00.0": ("0x030000", "0x10de"),
        "0000:02:00.0": ("0x030200", "0x1002"),
        "0000:00:02.0": ("0x030000", "0x8086"),  # graphics in the processor
        "0000:03:00.0": ("0x020000", "0x10de"),  # no display controller
    }
    for name, (kind, vendor) in cards.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "class").write_text(f"{kind}\n")
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
    (tmp_path / "0000:09:00.0").mkdir()
    assert gpu_vendors(tmp_path) == {NVIDIA, AMD}
    assert gpu_vendors(tmp_path / "nowhere") == frozenset()


def test_a_container_has_what_its_smallest_group_leaves(tmp_path: Path):
    own = tmp_path / "own"
    own.write_text("0::/outer/inner\n")
    for group, limit, used in (("outer", "1000", 300), ("outer/inner", "max", 200)):
        folder = tmp_path / "root" / group
        folder.mkdir(parents=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text("anon 5\ninactive_file 100\n")
    assert cgroup_bytes_left(own, tmp_path / "root") == 800
    (tmp_path / "root" / "outer" / "memory.max").write_text("max\n")
    assert cgroup_bytes_left(own, tmp_path / "root") is None
    assert cgroup_bytes_left(tmp_path / "missing", tmp_path / "root") is None
