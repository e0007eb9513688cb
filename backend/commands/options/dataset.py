"""Build a training set from recordings, inspect it, and export it for other tools."""

from __future__ import annotations

import argparse
from pathlib import Path

from backend.commands.options.shared import add_consent_options, add_for_good_option, whole_number
from backend.settings import Settings
from training.model.device_names import DEVICE_HELP


def add_options(parser: argparse.ArgumentParser, settings: Settings) -> None:
    """Describe the command's options."""
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_build(subcommands, settings)
    show = subcommands.add_parser("show", help="list clips with verdicts and reasons")
    show.add_argument("name", metavar="NAME", nargs="?", help="without a name, all datasets are listed")
    show.set_defaults(action="dataset.run_show")
    export = subcommands.add_parser("export", help="write WAV and JSONL for other fine-tuning tools")
    export.add_argument("name", metavar="NAME")
    export.add_argument("folder", type=Path, metavar="DIR", help="a new folder")
    export.set_defaults(action="dataset.run_export")
    style = subcommands.add_parser("style", help="say how clips are spoken: calm, excited, whisper")
    style.add_argument("name", metavar="NAME")
    style.add_argument("word", metavar="WORD", help='one word of yours; "" for none')
    which = style.add_mutually_exclusive_group(required=True)
    which.add_argument("--clips", nargs="+", metavar="KEY", help="of these clips, by their keys in `dataset show`")
    which.add_argument("--recording", metavar="PATTERN", help='of clips from recordings like this: "excited/*.wav"')
    which.add_argument("--all", action="store_true", help="of all clips")
    style.set_defaults(action="dataset.run_style")
    apply = subcommands.add_parser("apply", help="bring the training files up to date with changed clips")
    apply.add_argument("name", metavar="NAME")
    apply.set_defaults(action="dataset.run_apply")
    fetch = subcommands.add_parser("fetch", help="bring a dataset here that another home has in the object storage")
    fetch.add_argument("name", metavar="NAME", nargs="?", help="without a name, all that are stored are listed")
    fetch.add_argument("--from", dest="owner", default="", metavar="HOME", help="where several homes have the name")
    fetch.set_defaults(action="dataset.run_fetch")
    delete = subcommands.add_parser("delete", help="remove a dataset with what was uploaded for it")
    delete.add_argument("name", metavar="NAME")
    add_for_good_option(delete)
    delete.set_defaults(action="dataset.run_delete")


def _add_build(subcommands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    build = subcommands.add_parser("build", help="cut, check, transcribe and tokenize recordings")
    build.add_argument("recordings", type=Path, nargs="+", metavar="RECORDINGS", help="files, folders or zip archives")
    build.add_argument("--name", required=True, help="of the dataset: letters, digits, - and _")
    build.add_argument(
        "--model",
        default=settings.model,
        help="the model to encode for: mini, a checkpoint folder or a hub id (default: %(default)s)",
    )
    build.add_argument(
        "--whisper", help="the transcriber: a Whisper model by name or path, or none (default: automatic)"
    )
    build.add_argument("--language", default="auto", help="spoken in the recordings (default: %(default)s)")
    build.add_argument(
        "--transcripts",
        type=Path,
        nargs="+",
        default=[],
        metavar="PATH",
        help="text files or folders apart from the recordings",
    )
    build.add_argument("--device", default=settings.device, help=f"{DEVICE_HELP} (default: %(default)s)")
    build.add_argument(
        "--workers", type=whole_number(0), metavar="N", help="parallel model copies in Ray; 0 builds without Ray"
    )
    build.add_argument("--keep-originals", action="store_true", help="keep copies of the original files, too")
    build.add_argument(
        "--max-hours",
        "--longest-hours",
        dest="max_hours",
        type=float,
        default=2.0,
        help="per recording (default: %(default)s)",
    )
    build.add_argument(
        "--max-megabytes",
        "--largest-megabytes",
        dest="max_megabytes",
        type=float,
        default=500.0,
        help="per recording (default: %(default)s)",
    )
    existing = build.add_mutually_exclusive_group()
    existing.add_argument("--add", action="store_true", help="to the dataset of this name, with all that was edited")
    existing.add_argument("--replace", action="store_true", help="put the dataset of this name into the trash first")
    add_consent_options(build)
    build.set_defaults(action="dataset.run_build")
