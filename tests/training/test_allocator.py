"""A worker keeps the memory that its next step takes again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from training.allocator import ENVIRONMENT, freed_memory, return_freed_memory

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


@contextmanager
def freed_by_threads() -> Iterator[int]:
    """What several threads leave behind, as after as many streams: holes below what each still holds; in bytes."""

    def make_holes(kept: list[bytes]) -> None:
        blocks = [b"x" * 50_000 for _ in range(400)]
        kept.append(blocks[-1])

    kept: list[bytes] = []
    # Or the blocks fall into holes that other tests have left, and nothing is added.
    return_freed_memory()
    before = freed_memory()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(make_holes, [kept] * 4))
        yield freed_memory() - before


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc tells")
def test_what_threads_have_freed_can_be_returned() -> None:
    with freed_by_threads() as freed:
        after = freed_memory()
        return_freed_memory()
        assert freed > 8_000_000
        assert after - freed_memory() > freed / 2
