"""constraints.txt names a version of everything that is asked for, within the ranges of the requirements."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[1]


def read_requirements(name: str) -> list[Requirement]:
    """The lines of a requirements file that name a package."""
    lines = (PROJECT / name).read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in map(str.strip, lines) if line and line[0] not in "#-"]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-tracing.txt", "requirements-dev.txt"])
def test_every_requirement_has_a_tested_version_within_its_range(name: str) -> None:
    tested = {canonicalize_name(line.name): next(iter(line.specifier)) for line in read_requirements("constraints.txt")}
    for requirement in read_requirements(name):
        constraint = tested.get(canonicalize_name(requirement.name))
        assert constraint is not None, f"run `make constraints`: {requirement.name} is not in constraints.txt"
        assert constraint.operator == "=="
        assert requirement.specifier.contains(constraint.version), f"{requirement} against {constraint}"
