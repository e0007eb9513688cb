"""The exception tree that is drawn in `backend/errors.py` is the one of the code."""

from __future__ import annotations

import ast
import pickle
from collections import defaultdict

import pytest

import backend.errors
from backend.errors import AudioWriteFailed, RecordingTooShort
from backend.runs.errors import RunNotFound
from backend.serving.api.errors import ApiError
from backend.serving.errors import EngineBusy, HomeUnavailable
from backend.tenants.errors import QuotaExceeded
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


@pytest.mark.parametrize(
    "error",
    [
        AudioWriteFailed("a.wav", problem="the disk is full"),
        ApiError(418, "No.", code="teapot"),
        EngineBusy("All are busy.", retry_after_seconds=2.5),
        HomeUnavailable(),
        QuotaExceeded("Too many.", retry_after_seconds=1.5),
        RecordingTooShort("a.wav", seconds=1.0, min_seconds=3.0),
        RunNotFound("7"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_arrives_in_another_process_as_it_is(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
