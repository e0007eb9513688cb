"""Consent on the command line: the same two options wherever a voice is cloned or trained."""

from __future__ import annotations

import argparse

from backend.voices.consent import STATEMENTS, Consent
from backend.voices.errors import ConsentMissing


def add_consent_options(parser: argparse.ArgumentParser) -> None:
    """Options that `consent_of` and `required_consent_of` read."""
    parser.add_argument("--consent", choices=tuple(STATEMENTS), help="who agreed that the voice is cloned")
    parser.add_argument("--consent-by", metavar="NAME", help="name of the person who says so")


def consent_of(arguments: argparse.Namespace) -> Consent | None:
    """What the options say; None where they say nothing, and whoever needs it says what is missing.

    Raises:
        ConsentMissing: they say half of it.
    """
    if arguments.consent is None and arguments.consent_by is None:
        return None
    if arguments.consent is None:
        raise ConsentMissing(f"--consent-by needs --consent, one of: {', '.join(STATEMENTS)}.")
    return Consent.give(arguments.consent_by or "", arguments.consent)


def required_consent_of(arguments: argparse.Namespace) -> Consent:
    """What the options say. Raises ConsentMissing with the options that are to be given."""
    consent = consent_of(arguments)
    if consent is None:
        raise ConsentMissing(
            "A voice is cloned only with the consent of the person who speaks. Give --consent-by NAME and --consent, "
            f"one of: {', '.join(STATEMENTS)}."
        )
    return consent
