"""README and docs are true: links lead somewhere, paths exist, commands and settings are those of the code."""

from __future__ import annotations

import argparse
import re
import shlex
import tomllib
from pathlib import Path

import pytest

import app
from backend.commands.parser import COMMANDS, build_parser
from backend.provenance.statement import VERSION
from backend.settings import PREFIX, Settings
from backend.store.home import Home
from backend.voices.registry import Voices
from training.model.project import PROJECT_FOLDER

DOCUMENTS = [PROJECT_FOLDER / "README.md", *sorted((PROJECT_FOLDER / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")
PATH = re.compile(r"`((?:ui|backend|training|assets|tests|docs)/[\w./-]+)`")

FENCED = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:[A-Z_]+=\S+ )*(?:\.venv/bin/python )?app\.py (\S.*)$")


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


def commands_of(document: Path) -> list[list[str]]:
    """What a person may copy into a terminal: the words after `app.py`."""
    blocks = FENCED.findall(document.read_text(encoding="utf-8"))
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(found[1], comments=True) for line in lines if (found := COMMAND.match(line))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=identifier)
def test_commands_to_copy_have_options_that_there_are(document: Path):
    for words in commands_of(document):
        chosen = next((word for word in words if word in COMMANDS), None)
        build_parser(Settings(), chosen).parse_args(words)


def test_the_api_example_speaks_with_a_voice_that_the_readme_makes(tmp_path, monkeypatch, capsys):
    """It named a voice that a new installation did not have, and was answered with 404."""
    monkeypatch.setenv("ENCORE_HOME", str(tmp_path))
    monkeypatch.chdir(PROJECT_FOLDER)
    text = DOCUMENTS[0].read_text(encoding="utf-8")
    (name,) = re.findall(r'voice="(\w+)"', text)
    assert text.index("voices add") < text.index("from openai import")
    assert text.index("pip install openai") < text.index("from openai import")
    (making,) = [words for words in commands_of(DOCUMENTS[0]) if words[:2] == ["voices", "add"]]
    assert app.main(making) == 0, capsys.readouterr().err
    assert Voices(Home(tmp_path)).get(name).name == name


def test_readme_says_which_commands_can_be_told_the_model():
    said = re.search(r"with `--model` of (.*?)\.\n", DOCUMENTS[0].read_text(encoding="utf-8"), re.DOTALL)
    assert said is not None
    named = set(re.findall(r"`([a-z ]+)`", said[1]))
    able = {name for name in COMMANDS if "--model" in option_strings(build_parser(Settings(), name))}
    assert {name.split()[0] for name in named} == able


def option_strings(parser: argparse.ArgumentParser) -> set[str]:
    """All options of a parser and of the parsers of its commands."""
    found = set()
    for action in parser._actions:
        found.update(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            found.update(*map(option_strings, action.choices.values()))
    return found


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
