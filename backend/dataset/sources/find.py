"""The recordings of a job: found, identified by content, with the texts that came with them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from backend.dataset.clips.build_job import BuildJob
from backend.dataset.sources.intake import IntakeLimits, RecordingFile, expand
from backend.dataset.storage.workspace import DatasetWorkspace
from backend.store.errors import ArtifactError
from backend.voices.consent import hash_of_file
from training.model.owner import Owner

_UNPACKED_FOLDER = "cache/unpacked"


@dataclass(frozen=True, kw_only=True)
class SourceRecording:
    """A recording to build from.

    Attributes:
        recording_id: hash of the file's content.
        name: what it is called in sentences.
        given_text: the text that came with it, if any.
        given_style: how it is said, if that came with the text.
    """

    recording_id: str
    path: str
    name: str
    given_text: str | None
    given_style: str = ""


@dataclass(frozen=True, kw_only=True)
class FoundRecording:
    """Something that was given as a recording: one to build from, or the reason why it cannot be.

    Attributes:
        given: the path in the job that it was found under.
        content: hash of its content; empty where it cannot be read.
    """

    name: str
    source: SourceRecording | None = None
    problem: str = ""
    given: str = ""
    content: str = ""


@contextmanager
def open_sources(job: BuildJob, workspace: DatasetWorkspace) -> Iterator[list[FoundRecording]]:
    """All recordings of a job, in the order given; archives are unpacked for as long as the block lasts.

    Raises:
        ArtifactError: there is no room to unpack.
    """
    # Below the home and not in a temporary folder, because workers on other machines have to read it.
    unpacked = workspace.home / _UNPACKED_FOLDER
    try:
        unpacked.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(
            prefix=f"{Owner.this_process().tag}.", dir=unpacked, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise ArtifactError(
            f"{unpacked} cannot be used: {error.strerror}. Set ENCORE_HOME to another folder."
        ) from error
    with folder as work_folder:
        intake = expand(
            [Path(path) for path in job.recordings],
            Path(work_folder),
            transcripts=[Path(path) for path in job.transcripts],
            limits=IntakeLimits(decoding=job.decoding),
        )
        found: list[FoundRecording] = []
        name_by_id: dict[str, str] = {}
        for recording in intake.recordings:
            identified = _identify(recording, name_by_id)
            found.append(replace(identified, given=str(recording.given or recording.path)))
        yield found + [FoundRecording(name=problem.name, problem=problem.reason) for problem in intake.problems]


def keep_originals(sources: Sequence[SourceRecording], workspace: DatasetWorkspace) -> None:
    """Keep the files as they were given, named by their content, with the endings of their names.

    Raises:
        ArtifactError: there is no room for them.
    """
    for source in sources:
        path = Path(source.path)
        if not workspace.artifacts.path(source.recording_id, path.suffix).is_file():
            workspace.artifacts.keep_copy(path, path.suffix)


def _identify(recording: RecordingFile, name_by_id: dict[str, str]) -> FoundRecording:
    path, name, given = recording.path, recording.name, recording.transcript
    try:
        recording_id = hash_of_file(path)
    except OSError as error:
        return FoundRecording(name=name, problem=f"{name} cannot be read ({error.strerror}). Check the file.")
    if recording_id in name_by_id:
        problem = f"{name} is the same file as {name_by_id[recording_id]}."
        return FoundRecording(name=name, problem=problem, content=recording_id)
    name_by_id[recording_id] = name
    source = SourceRecording(
        recording_id=recording_id,
        path=str(path),
        name=name,
        given_text=given.text if given else None,
        given_style=given.style if given else "",
    )
    return FoundRecording(name=name, source=source, content=recording_id)
