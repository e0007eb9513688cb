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


def one_step(how: str, **variables: str) -> dict[str, int]:
    command = [sys.executable, "-c", STEPS, how]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told")
@pytest.mark.parametrize(("how", "variables"), [("told", {}), ("untold", ENVIRONMENT)])
def test_what_a_step_frees_stays_for_the_next(how, variables) -> None:
    assert one_step(how, **variables) == {"fetched": 0, "returned": 0}
