"""`app.py check`: what recordings say of themselves: signed, written in their tags, or marked in the sound.

The exit status is 0 if each of them carries a mark of Encore, 1 if one does not, and 2 if one cannot be checked.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from backend.audio.limits import recording_decoding
from backend.commands.options.check import MAX_HOURS
from backend.commands.progress import Progress
from backend.errors import RecordingError
from backend.provenance.check import Checker
from backend.provenance.verdict import Verdict
from backend.settings import Settings
from backend.store.home import Home
from backend.takes.take import Take
from backend.takes.takes import Takes
from backend.watermark.installation import installation_key

_MAX_BYTES = 8 * 10**9


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Check each; a file that cannot be checked does not keep the others from being checked."""
    home = Home(settings.home_folder)
    checker, takes = Checker(home.folder, settings.signing_cert, installation_key(home)), Takes(home)
    limits = recording_decoding(max_seconds=MAX_HOURS * 3600.0, max_bytes=_MAX_BYTES)
    status = 0
    for path in arguments.files:
        try:
            with Progress(unit="s") as bar:
                verdict = checker.check(path, limits=limits, progress=partial(_show, bar, path.name))
        except RecordingError as error:
            status = 2
            if arguments.json:
                print(json.dumps({"file": str(path), "error": str(error)}))
            else:
                print(f"encore: {error}", file=sys.stderr)
            continue
        take = takes.of_verdict(verdict)
        status = max(status, 0 if verdict.is_made_by_encore else 1)
        if arguments.json:
            print(json.dumps(as_json(path, verdict, take)))
        else:
            print("\n".join((f"{path}:", *(f"  {line}" for line in (*verdict.lines, *take_lines(take))))))
    return status


def as_json(path: Path, verdict: Verdict, take: Take | None) -> dict[str, Any]:  # Any: JSON
    """One file's line."""
    found = verdict.model_dump(mode="json", exclude={"name"})
    said = {"is_made_by_encore": verdict.is_made_by_encore, "says": verdict.lines}
    return {"file": str(path), **said, **found, "take": None if take is None else take.id}


def take_lines(take: Take | None) -> tuple[str, ...]:
    """Which of this installation's takes it is, for the person who runs it."""
    if take is None:
        return ()
    return (f"It is take {take.id} of {take.made_at:%Y-%m-%d %H:%M} UTC, {take.voice}: {take.text[:80]!r}",)


def _show(bar: Progress, name: str, what: str, done: float, total: float | None) -> None:
    bar.show(f"{name}: {what}", done, total)
