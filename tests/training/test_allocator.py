"""A worker keeps the memory that its next step takes again."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from training.allocator import ENVIRONMENT

# glibc tells how much it has fetched for single blocks, which go back when they are freed, and how much it holds.
# Left to itself it keeps no block above thirty-two megabytes.
STEPS = """
import ctypes, json, sys
import torch
from training.allocator import keep_freed_memory
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "held", "free", "fast", "blocks", "in_blocks", "most", "fast_bytes", "used", "unused", "at_the_end")]
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
if sys.argv[1] == "told":
    keep_freed_memory()
before = libc.mallinfo2()
activations = torch.ones(10 * 2**20)
during = libc.mallinfo2()
del activations
after = libc.mallinfo2()
print(json.dumps({"fetched": during.in_blocks - before.in_blocks, "returned": during.held - after.held}))
"""


def told_by(program: str, *arguments: str, **variables: str) -> dict[str, int]:
    """What a process of its own has printed, in bytes."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told")
@pytest.mark.parametrize(("how", "variables"), [("told", {}), ("untold", ENVIRONMENT)])
def test_what_a_step_frees_stays_for_the_next(how, variables) -> None:
    assert told_by(STEPS, how, **variables) == {"fetched": 0, "returned": 0}


# Holes below what each thread still holds, as after as many streams. In a process of its own: in one that has run other
# tests, the blocks fall into the holes that those have left.
THREADS = """
import json
from concurrent.futures import ThreadPoolExecutor
from training.allocator import freed_memory, return_freed_memory
kept = []
def make_holes(_):
    blocks = [b"x" * 50_000 for _ in range(400)]
    kept.append(blocks[-1])
before = freed_memory()
with ThreadPoolExecutor(4) as threads:
    list(threads.map(make_holes, range(4)))
    after = freed_memory()
    return_freed_memory()
    print(json.dumps({"freed": after - before, "returned": after - freed_memory()}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc tells")
def test_what_threads_have_freed_can_be_returned() -> None:
    told = told_by(THREADS)
    assert told["freed"] > 8_000_000
    assert told["returned"] > told["freed"] / 2
