"""Benchmarks are seldom run: what they import is looked for here, so that a change elsewhere does not break them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

MODULES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith(("test_", "_")))


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(f"tests.benchmarks.{name}")
