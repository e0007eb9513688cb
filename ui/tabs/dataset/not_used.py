"""Which recordings of a dataset were not used, or not wholly, and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from backend.dataset.clips.views import RecordingView
from ui.html.templates import render
from ui.words.sentences import translated
from ui.words.words import say, say_count

_MAX_LISTED = 20


def files_not_used_html(recordings: Sequence[RecordingView]) -> Markup:
    """How many files came to nothing, with the reason for each; nothing where all were used."""
    reasons = reasons_of_files(recordings)
    if not reasons:
        return Markup()
    title = say_count(len(reasons), "data.file_not_used", "data.num_files_not_used")
    return render("dataset", "not_used", title=title, reasons=shortened(reasons), is_open=True)


def reasons_of_files(recordings: Sequence[RecordingView]) -> list[str]:
    """A sentence for each file that came to nothing, which names it."""
    return [_reason(recording) for recording in recordings if recording.problem]


def reasons_of_stretches(recordings: Sequence[RecordingView]) -> list[str]:
    """The same for each stretch of the others that is in no clip."""
    return [
        f"{Path(recording.name).name}, {_stretch(lost.span.start_seconds, lost.span.end_seconds)}: "
        f"{translated(lost.problem)}"
        for recording in recordings
        for lost in recording.details.lost
    ]


def shortened(reasons: Sequence[str]) -> list[str]:
    """As many as can be read, and how many there are beside them."""
    more = len(reasons) - _MAX_LISTED
    return [*reasons[:_MAX_LISTED], *([say("data.num_more", number=more)] if more > 0 else [])]


def _reason(recording: RecordingView) -> str:
    """Problems of a file name it, problems of its sound do not."""
    name = Path(recording.name).name
    said = translated(recording.problem)
    return said if name in said else f"{name}: {said}"


def _stretch(start: float, end: float) -> str:
    return say("data.from_to", start=f"{start:.1f}", end=f"{end:.1f}")
