"""`app.py voices`: the voices there are; making, giving away, receiving and removing them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from backend.commands.options import add_consent_options, add_synthetic_option, consent_of
from backend.commands.trash import add_for_good_option, conclude_deletion
from backend.settings import Settings
from backend.store.home import Home
from backend.voices.registry import Voices


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    """Describe the command's options."""
    parser = commands.add_parser(
        "voices", help="list, add, export, import, rename or delete voices", description=__doc__
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_verb(verbs, "list", "list the voices", run_list, settings)
    _add_add(verbs, settings)
    export = _add_verb(verbs, "export", "write a voice with its consent to one file", run_export, settings)
    export.add_argument("name", metavar="NAME")
    export.add_argument("--output", type=Path, default=Path(), metavar="PATH", help="file or folder (default: here)")
    received = _add_verb(verbs, "import", "make a voice of a file somebody exported", run_import, settings)
    received.add_argument("file", type=Path, metavar="FILE")
    received.add_argument("--name", help="what to call it here (default: its own name)")
    rename = _add_verb(verbs, "rename", "call a voice something else", run_rename, settings)
    rename.add_argument("name", metavar="NAME")
    rename.add_argument("new_name", metavar="NEW")
    delete = _add_verb(verbs, "delete", "remove a voice, its recording and its consent", run_delete, settings)
    delete.add_argument("name", metavar="NAME")
    add_for_good_option(delete)


def run_list(_: argparse.Namespace, settings: Settings) -> int:
    """One line per voice."""
    voices = _open(settings).list()
    for voice in voices:
        print(
            f"{voice.name}\t{voice.kind}\t{voice.language}\t{voice.created_at:%Y-%m-%d}\t"
            f"consent: {voice.consent.statement} by {voice.consent.who}"
        )
    if not voices:
        print("There are no voices yet. Make one with `app.py voices add`.", file=sys.stderr)
    return 0


def run_add(arguments: argparse.Namespace, settings: Settings) -> int:
    """Make a zero-shot voice."""
    voice = _open(settings).create_zero_shot(
        arguments.name,
        arguments.recording,
        consent=consent_of(arguments),
        model=arguments.model,
        transcript=arguments.transcript,
        language=arguments.language,
        accept_synthetic=arguments.accept_synthetic,
    )
    how = "in context" if voice.transcript else "from the speaker embedding"
    print(f"{voice.name}: cloned {how}. Speak with it: app.py say --voice {voice.name!r} --text ...")
    return 0


def run_export(arguments: argparse.Namespace, settings: Settings) -> int:
    """Write a voice file."""
    print(_open(settings).export(arguments.name, arguments.output))
    return 0


def run_import(arguments: argparse.Namespace, settings: Settings) -> int:
    """Read a voice file."""
    voice = _open(settings).import_(arguments.file, arguments.name)
    print(f"{voice.name}: {voice.kind}, consent: {voice.consent.statement} by {voice.consent.who}")
    return 0


def run_rename(arguments: argparse.Namespace, settings: Settings) -> int:
    """Change a voice's name."""
    print(_open(settings).rename(arguments.name, arguments.new_name).name)
    return 0


def run_delete(arguments: argparse.Namespace, settings: Settings) -> int:
    """Remove a voice."""
    return conclude_deletion(settings, _open(settings).delete(arguments.name), for_good=arguments.for_good)


def _add_add(verbs: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    parser = _add_verb(verbs, "add", "clone a voice from recordings", run_add, settings)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--recording", type=Path, nargs="+", required=True, metavar="FILE", help="1 s to 5 min in all")
    parser.add_argument(
        "--transcript", metavar="TEXT", help="what the recordings say, word for word: clones in context"
    )
    parser.add_argument("--language", default="auto", help="language of the voice (default: auto)")
    parser.add_argument("--model", default=settings.model, help="base model it is meant for (default: %(default)s)")
    add_synthetic_option(parser, "clone also from")
    add_consent_options(parser)


def _add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, run: object, settings: Settings
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=summary, description=summary)
    assert callable(run)
    parser.set_defaults(run=lambda arguments: run(arguments, settings))
    return parser


def _open(settings: Settings) -> Voices:
    return Voices(Home(settings.home_folder))
