"""What the options of a command name can be run."""

from __future__ import annotations

import argparse
import importlib

import pytest

import app
from backend.commands.parser import COMMANDS
from backend.settings import Settings


@pytest.mark.parametrize("command", COMMANDS)
def test_every_action_is_a_function(command):
    parser = argparse.ArgumentParser()
    importlib.import_module(f"backend.commands.options.{command}").add_options(parser, Settings())
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for verb in [*nested[0].choices.values()] if nested else [parser]:
        module, _, function = verb.get_default("action").partition(".")
        assert callable(getattr(importlib.import_module(f"backend.commands.{module}"), function))


@pytest.mark.parametrize(
    ("given", "minimum"),
    [
        (("dataset", "build", "a.wav", "--name", "a", "--workers", "-1"), 0),
        (("dataset", "build", "a.wav", "--name", "a", "--workers", "two"), 0),
        (("finetune", "a", "--workers", "0"), 1),
        (("finetune", "a", "--min-workers", "0"), 1),
        (("finetune", "a", "--max-failures", "-1"), 0),
        (("finetune", "a", "--lora-rank", "0"), 1),
        (("serve", "--num-slots", "0"), 1),
        (("serve", "--num-ingresses", "0"), 1),
        (("serve", "--max-characters", "0"), 1),
    ],
)
def test_a_number_that_cannot_be_is_refused_under_the_name_it_was_given(given, minimum, capsys):
    """`--workers -1` was refused as num_actors, `--workers 0` of a fine-tune as num_workers."""
    with pytest.raises(SystemExit) as ended:
        app.main(list(given))
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    option, value = given[-2:]
    assert option in line
    assert f"{value!r} is not a whole number from {minimum} up" in line
