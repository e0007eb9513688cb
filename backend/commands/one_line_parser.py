"""A parser whose errors are one line: what is wrong, the nearest option if there is one, and where all are listed."""

from __future__ import annotations

import argparse
import difflib
import itertools
import sys
from typing import Any, NoReturn


class OneLineParser(argparse.ArgumentParser):
    """As argparse's; the parsers of its commands are of this kind, too."""

    _given: tuple[str, ...] = ()

    # Any: argparse has overloads for namespaces of other types, which nobody here needs.
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is not known in the parser that it was meant for: argparse leaves it to the outermost one."""
        self._given = tuple(sys.argv[1:] if args is None else args)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Say it without the usage, which `--help` shows, and end with status 2."""
        # What lacks an option because it is misspelt would otherwise be told to give it.
        sentence = self._misspelt() or f"{message.rstrip('.')}.{self._near_choice(message)}"
        print(f"encore: {sentence} `{self.prog} --help` lists the options.", file=sys.stderr)
        sys.exit(2)

    def _misspelt(self) -> str:
        """The first option that there is not, in a sentence; empty if there are all."""
        words: Any = self._given
        if self._subparsers is not None:
            # What follows the name of a command are the command's.
            words = itertools.takewhile(lambda word: word.startswith("-"), words)
        known = [option for action in self._actions for option in action.option_strings if option.startswith("--")]
        for word in itertools.takewhile(lambda word: word != "--", words):
            name = word.partition("=")[0]
            # Beginnings of options stand for them.
            if name.startswith("--") and " " not in name and not any(option.startswith(name) for option in known):
                near = difflib.get_close_matches(name, known, 1)
                return f"there is no option {name}." + (f" Did you mean {near[0]}?" if near else "")
        return ""

    def _near_choice(self, message: str) -> str:
        """A sentence with the choice that a refused one is nearest to, if one is."""
        words = itertools.chain.from_iterable((word, word.partition("=")[2]) for word in self._given)
        refused = next((word for word in words if word and f"invalid choice: {word!r}" in message), "")
        choices = (choice for action in self._actions for choice in action.choices or () if refused)
        near = difflib.get_close_matches(refused, map(str, choices), 1)
        return f" Did you mean {near[0]}?" if near else ""
