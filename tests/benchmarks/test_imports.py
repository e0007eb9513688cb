"""Benchmarks are seldom run: what they import is looked for here, so that a change elsewhere does not break them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

MODULES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith(("test_", "_")))


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(f"tests.benchmarks.{name}")


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_reads_only_options_that_it_has(name: str) -> None:
    tree = ast.parse((Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8"))
    made = {option for node in ast.walk(tree) for option in _options_of(node)}
    read = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "options"
    }
    assert not made or read <= made


def _options_of(node: ast.AST) -> Iterator[str]:
    """The attributes that a call of `add_argument` makes."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
        yield from (
            str(each.value.value)
            for each in node.keywords
            if each.arg == "dest" and isinstance(each.value, ast.Constant)
        )
        names = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
        yield from (name.lstrip("-").replace("-", "_") for name in names)
