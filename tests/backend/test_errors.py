"""The exception tree that is drawn in `backend/errors.py` is the one of the code."""

from __future__ import annotations

import ast
from collections import defaultdict

import backend.errors
from training.model.project import PROJECT_FOLDER

ROOT = "EncoreError"


def children_by_parent() -> dict[str, list[str]]:
    """Every class below the root, from the source alone: base class -> its subclasses by name."""
    parents: dict[str, list[str]] = {}
    for package in ("training", "backend", "ui"):
        for path in (PROJECT_FOLDER / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    parents[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]

    def is_ours(name: str) -> bool:
        return name == ROOT or any(map(is_ours, parents.get(name, ())))

    children = defaultdict(list)
    for name in sorted(parents):
        for base in parents[name]:
            if is_ours(base):
                children[base].append(name)
                break
    return children


def draw(name: str, children: dict[str, list[str]], indent: str = "") -> list[str]:
    lines = []
    for position, child in enumerate(children.get(name, [])):
        is_last = position == len(children[name]) - 1
        lines.append(f"{indent}{'└──' if is_last else '├──'} {child}")
        lines += draw(child, children, indent + ("    " if is_last else "│   "))
    return lines


def test_the_tree_is_drawn_as_it_is():
    tree = "\n".join([ROOT, *draw(ROOT, children_by_parent())])
    assert tree in (backend.errors.__doc__ or ""), tree
