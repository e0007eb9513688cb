"""`app.py doctor`: what this machine can do and what to do where it cannot; and whether what is kept is intact."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import TYPE_CHECKING

from backend.commands.progress import Progress
from backend.settings import Settings
from backend.store.copies import DatabaseCopies, made_at

if TYPE_CHECKING:
    from backend.doctor.finding import Finding


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """What the options ask for; EncoreError carries anything a person can put right."""
    if arguments.restore_database:
        return restore_database(settings)
    return verify_home(settings) if arguments.verify else report(settings, as_json=arguments.json)


def restore_database(settings: Settings) -> int:
    """Go back to the newest good copy of the database, and say what became of the present one."""
    copies = DatabaseCopies(settings.home_folder)
    copy, aside = copies.restore()
    when = made_at(copy)
    assert when is not None, "only copies are restored"
    print(f"The database is now as it was on {when.astimezone():%Y-%m-%d at %H:%M}.")
    if aside is not None:
        print(f"The one before is set aside as {aside}.")
    return 0


def verify_home(settings: Settings) -> int:
    """Print a table of what is kept and whether it is what was written; 1 when something is damaged."""
    from backend.doctor.verify import CLIPS, Condition, verify  # noqa: PLC0415 - see `report`

    with Progress(unit="B") as progress:
        found = list(verify(settings.home_folder, lambda what, num_bytes: progress.show(f"Reading {what}", num_bytes)))
    # Clips by the hundreds of folders: only those that matter.
    shown = [one for one in found if one.kind != CLIPS or one.condition is Condition.DAMAGED]
    kinds, names = (max((len(getattr(one, column)) for one in shown), default=0) for column in ("kind", "name"))
    for one in shown:
        damage = f": {', '.join(one.damage[:3])}{' and more' if one.damage[3:] else ''}" if one.damage else ""
        print(f"{one.kind:<{kinds}}  {one.name:<{names}}  {one.condition}{damage}")
    counts = Counter(one.condition for one in found)
    print(", ".join(f"{counts[condition]} {condition}" for condition in Condition) + f" in {settings.home_folder}")
    return int(counts[Condition.DAMAGED] > 0)


def report(settings: Settings, *, as_json: bool = False) -> int:
    """Print every finding, for people or for programs; 1 when something is broken."""
    # Imported here: torch takes seconds, and the other commands' --help needs none of it.
    from backend.doctor.checks import examine  # noqa: PLC0415 - see above

    findings = examine(settings)
    if as_json:
        print(json.dumps({"findings": [finding.model_dump(mode="json") for finding in findings]}))
    else:
        print("\n".join(describe(findings)))
    return int(any(finding.level == "broken" for finding in findings))


def describe(findings: list[Finding]) -> list[str]:
    """The report's lines: a mark, a name, what was found; the remedy under it."""
    marks = {"good": "ok", "limited": "--", "broken": "!!"}
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{marks[finding.level]}  {finding.name:<{width}}  {finding.found}")
        if finding.remedy:
            lines.append(f"    {'':<{width}}  {finding.remedy}")
    return lines
