"""How bytes are damaged, and values that no honest client sends."""

from __future__ import annotations

import random
import struct
from pathlib import Path

EXTREMES = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
MAX_BURST = 64

HOSTILE_VALUES: tuple[object, ...] = (
    None, True, -1, 0, 2**31, 2**63, -(2**63), 10**400, 1e308, -0.0, "", " ", "\x00", "\ud800", "../../etc/passwd",
    "/etc/passwd", "a" * 300, "𝔸", "\u202e", "'; DROP TABLE voices; --", "{{7*7}}", "%n%s", [], [[]], {}, {"": None},
    {"id": 3}, [None] * 9, float("nan"), float("inf"),
)  # fmt: skip

UNSAYABLE = ("", " \n\t ", "." * 4096, "\u200b" * 4096, "Hi" + "\u0301" * 4000, "—" * 500, "\ufffe", "a" * 100_000)


def damaged(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Bytes with a fault of a random kind, and what was done to them."""
    kind = rng.choice(("flip", "flip", "cut", "head", "zero", "repeat", "insert", "swap"))
    size = len(content)
    at = rng.randrange(max(1, size))
    long = rng.randint(1, MAX_BURST)
    changed = bytearray(content)
    if kind == "flip":
        for _ in range(rng.randint(1, 20)):
            changed[rng.randrange(size)] ^= rng.randint(1, 255)
    elif kind == "cut":
        del changed[at:]
    elif kind == "head":
        # Sizes and counts stand at the front.
        at = rng.randrange(min(size, 120))
        number = struct.pack(rng.choice("<>") + "I", rng.choice(EXTREMES))
        changed[at : at + len(number)] = number
    elif kind == "zero":
        changed[at : at + long] = bytes(len(changed[at : at + long]))
    elif kind == "repeat":
        changed[at:at] = changed[at : at + 4096]
    elif kind == "insert":
        changed[at:at] = rng.randbytes(long)
    else:
        other = rng.randrange(size)
        changed[at : at + long], changed[other : other + long] = changed[other : other + long], changed[at : at + long]
    return f"{kind} at {at}", bytes(changed)


def flip_in_file(path: Path, rng: random.Random) -> str:
    """Flip some bytes in a row of a file that has any, so that it is another one for certain."""
    content = bytearray(path.read_bytes())
    at = rng.randrange(len(content))
    for place in range(at, min(len(content), at + rng.choice((1, 1, 8, MAX_BURST)))):
        content[place] ^= rng.randint(1, 255)
    path.write_bytes(content)
    return f"{path.name} at {at}"
