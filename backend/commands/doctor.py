"""`app.py doctor`: say what this machine can do, and what to do where it cannot."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from backend.settings import Settings

if TYPE_CHECKING:
    from backend.doctor.finding import Finding


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    """Register the command and its options."""
    parser = commands.add_parser("doctor", help="check this machine, with a remedy for what is missing")
    parser.set_defaults(run=lambda arguments: report(settings))


def report(settings: Settings) -> int:
    """Print every finding; 1 when something is broken."""
    # Imported here: torch takes seconds, and the other commands' --help needs none of it.
    from backend.doctor.checks import examine  # noqa: PLC0415 - see above

    findings = examine(settings)
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
