"""Zero-shot, adapters and full fine-tunes of the same clips, as a table: what each gains, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from backend.runs.method_table import MethodRow
from ui.html.messages import NOTHING
from ui.html.templates import render
from ui.html.words import preset_name, size_in_words, time_in_words
from ui.words.words import say


def methods_html(rows: Sequence[MethodRow], run_id: str = "") -> Markup:
    """The table, with one run marked as the one that is looked at; nothing without rows."""
    if not rows:
        return NOTHING
    names = ("methods.likeness", "methods.wrong", "methods.time", "methods.memory", "methods.size")
    titles = [say(name) for name in names]
    shown = [
        {"name": _name(row), "is_this": row.run is not None and row.run.id == run_id, "cells": _cells(row, titles)}
        for row in rows
    ]
    return render("methods", "table", title=say("methods.title"), titles=titles, rows=shown, say=say)


def _name(row: MethodRow) -> str:
    """What was trained, and how thoroughly."""
    if row.run is None:
        return say("tune.zero_shot")
    job = row.run.job
    method = say("tune.method_full") if job.lora is None else say("methods.adapter", rank=job.lora_rank)
    return f"{method}, {preset_name(row.run.preset)}"


def _cells(row: MethodRow, titles: Sequence[str]) -> list[tuple[str, str]]:
    wrong = row.scores.character_error if row.scores is not None else None
    values = [
        "-" if row.likeness is None else f"{row.likeness:.2f}",
        "-" if wrong is None else f"{wrong:.0%}",
        "-" if row.seconds is None else time_in_words(row.seconds),
        "-" if row.state_bytes is None else size_in_words(row.state_bytes),
        "-" if row.size_bytes is None else size_in_words(row.size_bytes),
    ]
    return list(zip(titles, values, strict=True))
