"""`app.py voices`: the voices there are; making, giving away, receiving and removing them."""

from __future__ import annotations

import argparse
import sys

from backend.commands.checks import check_recordings
from backend.commands.options.shared import consent_of
from backend.commands.tenant_home import home_of
from backend.commands.trash import conclude_deletion
from backend.settings import Settings
from backend.voices.errors import VoiceFileInvalid
from backend.voices.registry import Voices
from backend.voices.styles import in_words


def run_list(arguments: argparse.Namespace, settings: Settings) -> int:
    """One line per voice."""
    voices = _open(arguments, settings).list()
    for voice in voices:
        print(
            f"{voice.name}\t{voice.kind}\t{voice.language}\t{voice.created_at:%Y-%m-%d}\t"
            f"consent: {voice.consent.statement} by {voice.consent.who}"
            + (f"\tstyles: {in_words(voice.styles)}" if voice.styles else "")
        )
    if not voices:
        print("There are no voices yet. Make one with `app.py voices add`.", file=sys.stderr)
    return 0


def run_add(arguments: argparse.Namespace, settings: Settings) -> int:
    """Make a zero-shot voice."""
    check_recordings(arguments.recording)
    voice = _open(arguments, settings).create_zero_shot(
        arguments.name,
        arguments.recording,
        consent=consent_of(arguments),
        model=arguments.model,
        transcript=arguments.transcript,
        language=arguments.language,
        accept_synthetic=arguments.accept_synthetic,
    )
    how = "kept with its transcript" if voice.transcript else "kept without a transcript, cloned from its sound alone"
    print(f"{voice.name}: {how}. Speak with it: app.py say --voice {voice.name!r} --text ...")
    return 0


def run_export(arguments: argparse.Namespace, settings: Settings) -> int:
    """Write a voice file."""
    print(_open(arguments, settings).export(arguments.name, arguments.output))
    return 0


def run_import(arguments: argparse.Namespace, settings: Settings) -> int:
    """Read a voice file."""
    if not arguments.file.is_file():
        raise VoiceFileInvalid(f"{arguments.file} is not a file. Choose one that `app.py voices export` has written.")
    voice = _open(arguments, settings).import_(arguments.file, arguments.name)
    print(f"{voice.name}: {voice.kind}, consent: {voice.consent.statement} by {voice.consent.who}")
    return 0


def run_rename(arguments: argparse.Namespace, settings: Settings) -> int:
    """Change a voice's name."""
    print(_open(arguments, settings).rename(arguments.name, arguments.new_name).name)
    return 0


def run_delete(arguments: argparse.Namespace, settings: Settings) -> int:
    """Remove a voice."""
    home = home_of(arguments, settings)
    return conclude_deletion(home, Voices(home).delete(arguments.name), for_good=arguments.for_good)


def _open(arguments: argparse.Namespace, settings: Settings) -> Voices:
    return Voices(home_of(arguments, settings))
