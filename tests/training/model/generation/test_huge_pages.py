from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.model.generation.huge_pages import MIN_BYTES, filled_stretches, use_huge_pages

HUGE_PAGE = 2 * 2**20
START = 0x7F0000000000


def listing(size, in_memory, *, rights="rw-p", inode=0, name=""):
    """One stretch as Linux lists it."""
    return [
        f"{START:x}-{START + size:x} {rights} 00000000 00:00 {inode} {name}".rstrip() + " ",
        f"Size:           {size // 1024:8} kB",
        f"Rss:            {in_memory // 1024:8} kB",
        "VmFlags: rd wr mr mw me ac sd ",
    ]


@given(size=st.integers(0, 64).map(lambda pages: pages * 2**19 + 4096), filled=st.floats(0, 1))
def test_stretches_are_whole_huge_pages_of_large_memory_that_is_in_use(size, filled):
    in_memory = int(size * filled)
    found = list(filled_stretches(listing(size, in_memory)))
    for start, end in found:
        assert START <= start < end <= START + size
        assert start % HUGE_PAGE == end % HUGE_PAGE == 0
        assert end - start >= MIN_BYTES
        assert in_memory >= 0.9 * size - 1024
    if size >= MIN_BYTES + 2 * HUGE_PAGE and filled == 1:
        assert found


@pytest.mark.parametrize(
    "what",
    [
        {"in_memory": 2**20},  # a thread's stack
        {"inode": 260131, "name": "/usr/lib/libtorch_cpu.so"},
        {"rights": "r--p"},
        {"rights": "rw-s"},
        {"name": "[stack]"},
    ],
    ids=lambda what: next(iter(what)),
)
def test_other_memory_stays_as_it_is(what):
    size = 64 * HUGE_PAGE
    assert list(filled_stretches(listing(size, size)))
    assert list(filled_stretches(listing(size, size, name="[heap]")))
    assert not list(filled_stretches(listing(**{"size": size, "in_memory": size, **what})))


def test_what_is_moved_stays_the_same_and_takes_no_more_memory():
    numbers = torch.arange(32 * 2**20, dtype=torch.int32)
    before = memory_in_use()
    moved = use_huge_pages()
    if not moved:
        pytest.skip("this system has no huge pages to give")
    assert torch.equal(numbers, torch.arange(32 * 2**20, dtype=torch.int32))
    assert memory_in_use() - before < 0.2 * numbers.nbytes + 200 * 2**20
    assert moved >= HUGE_PAGE


def test_a_system_without_a_list_of_its_memory_is_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert use_huge_pages() == 0


def memory_in_use():
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.is_file() else 0
