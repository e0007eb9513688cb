"""Which GPUs are plugged into this machine, whether or not PyTorch or a driver knows them."""

from __future__ import annotations

from pathlib import Path

NVIDIA, AMD, INTEL = "NVIDIA", "AMD", "Intel"

_VENDORS = {"0x10de": NVIDIA, "0x1002": AMD, "0x8086": INTEL}
_DISPLAY_CONTROLLER = "0x03"
_INTEGRATED = "0000:00:"
"""Where Intel's processors have their graphics, which is no reason to install anything."""

DEVICES_FOLDER = Path("/sys/bus/pci/devices")


def gpu_vendors(folder: Path = DEVICES_FOLDER) -> frozenset[str]:
    """The makers of this machine's GPUs; none where the system does not say, which only Linux does."""
    found = set()
    for device in folder.iterdir() if folder.is_dir() else ():
        try:
            kind, number = ((device / name).read_text(encoding="ascii").strip() for name in ("class", "vendor"))
        except (OSError, UnicodeDecodeError):
            continue
        vendor = _VENDORS.get(number)
        is_integrated = vendor == INTEL and device.name.startswith(_INTEGRATED)
        if vendor is not None and kind.startswith(_DISPLAY_CONTROLLER) and not is_integrated:
            found.add(vendor)
    return frozenset(found)
