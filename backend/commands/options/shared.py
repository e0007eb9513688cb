"""Options that several commands share, and what is read from them."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from backend.errors import SettingsError
from backend.settings import Settings
from backend.voices.consent import STATEMENTS, Consent
from training.model.device_names import DEVICE_HELP
from training.model.seed import parse_seed


def add_model_options(parser: argparse.ArgumentParser, settings: Settings) -> None:
    """Options of every command that loads a model."""
    add_model_option(parser, settings)
    precisions = ("auto", "fp32", "bf16", "int8")
    parser.add_argument(
        "--precision", default=settings.precision, choices=precisions, help="of the weights (default: %(default)s)"
    )
    parser.add_argument("--device", default=settings.device, help=f"{DEVICE_HELP} (default: %(default)s)")


def add_model_option(parser: argparse.ArgumentParser, settings: Settings, purpose: str = "") -> None:
    """Which model; `purpose` stands before the explanation."""
    parser.add_argument(
        "--model",
        default=settings.model,
        help=f"{purpose}mini, a checkpoint folder or a hub id (default: %(default)s)",
    )


def add_seed_option(parser: argparse.ArgumentParser) -> None:
    """The seed of a take; None when it is not given."""
    parser.add_argument("--seed", type=parse_seed, help="decides the take; without one a runaway take is tried again")


def add_statement_options(parser: argparse.ArgumentParser) -> None:
    """What the signed statement in the file tells only where it is asked to."""
    parser.add_argument("--name-speaker", action="store_true", help="the file also says, signed, whose voice it is")
    parser.add_argument("--name-text", action="store_true", help="the file also says, signed, what is spoken")


def add_consent_options(parser: argparse.ArgumentParser) -> None:
    """Options that `consent_of` reads."""
    parser.add_argument("--consent", choices=tuple(STATEMENTS), help="who agreed that the voice is cloned")
    parser.add_argument("--consent-by", metavar="NAME", help="name of the person who says so")


def add_for_good_option(parser: argparse.ArgumentParser) -> None:
    """The option of every command that deletes."""
    parser.add_argument("--for-good", action="store_true", help="at once; without it, it can be restored for a day")


def add_tenant_option(parser: argparse.ArgumentParser) -> None:
    """The option that `home_of` reads."""
    parser.add_argument(
        "--tenant", help="work with what belongs to a tenant of the API (see `keys`) instead of your own"
    )


def consent_of(arguments: argparse.Namespace) -> Consent:
    """The consent that the options give. Raises ConsentMissing with the options to add."""
    how = "Give --consent-by NAME and --consent, one of"
    return Consent.from_form(arguments.consent, arguments.consent_by, how=how)


def optional_consent_of(arguments: argparse.Namespace) -> Consent | None:
    """The same, None where neither option is given. Raises ConsentMissing where only one is."""
    return consent_of(arguments) if arguments.consent or arguments.consent_by else None


def add_synthetic_option(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Whether recordings that Encore made may be used."""
    parser.add_argument("--accept-synthetic", action="store_true", help=f"{purpose} recordings that Encore made")


def whole_number(minimum: int) -> Callable[[str], int]:
    """Reads an option's whole number, so that what is wrong is said under the option's name."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = minimum - 1
        if number < minimum:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {minimum} up")
        return number

    return parse


def parse_port(text: str) -> int:
    """A port as it is typed; 0 is any that is free. Raises SettingsError."""
    if not (text.isascii() and text.isdecimal() and int(text[:9]) < 2**16):
        raise SettingsError(f"{text[:40]!r} is not a port. Use a whole number from 0 to {2**16 - 1}.")
    return int(text)
