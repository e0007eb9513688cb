"""README and docs are true: links lead somewhere, paths exist, commands and settings are those of the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from backend.commands.parser import COMMANDS
from backend.provenance.statement import VERSION
from backend.settings import PREFIX, Settings
from training.model.project import PROJECT_FOLDER

DOCUMENTS = [PROJECT_FOLDER / "README.md", *sorted((PROJECT_FOLDER / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")
PATH = re.compile(r"`((?:ui|backend|training|assets|tests|docs)/[\w./-]+)`")


def identifier(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("document", DOCUMENTS, ids=identifier)
def test_links_and_paths_exist(document: Path):
    text = document.read_text(encoding="utf-8")
    targets = [document.parent / target for target, _ in LINK.findall(text)]
    targets += [PROJECT_FOLDER / path for path in PATH.findall(text)]
    assert [str(target) for target in targets if not target.exists()] == []


def test_every_document_is_linked_from_the_readme():
    readme = DOCUMENTS[0].read_text(encoding="utf-8")
    assert [page.name for page in DOCUMENTS[1:] if f"docs/{page.name}" not in readme] == []


def test_readme_lists_every_command():
    readme = DOCUMENTS[0].read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"`app.py {name}" not in readme] == []


def test_settings_are_documented():
    documented = set(re.findall(rf"`({PREFIX}[A-Z_]+)`", (PROJECT_FOLDER / "docs" / "command-line.md").read_text()))
    assert documented == {PREFIX + name.upper() for name in Settings.model_fields}


def test_the_tree_in_the_architecture_page_is_the_tree():
    text = (PROJECT_FOLDER / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = text.split("```")[1]
    folders: list[str] = []
    missing = []
    for line in tree.strip().splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        names = next(word for word in line.split("  ")[depth:] if word.strip()).split()
        for name in names:
            if name.endswith("/") and len(names) == 1:
                folders[depth:] = [name]
            path = PROJECT_FOLDER / "".join(folders[:depth]) / name
            if not path.exists():
                missing.append(str(path))
    assert missing == []


def test_takes_state_the_version_of_the_project():
    project = tomllib.loads((PROJECT_FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == VERSION
