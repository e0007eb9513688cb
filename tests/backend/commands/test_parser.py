"""What the options of a command name can be run."""

from __future__ import annotations

import argparse
import importlib

import pytest

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
