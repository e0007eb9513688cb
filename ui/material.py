"""From what a session was given to a build of a dataset, for the tabs that make one."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from backend.dataset.clips.build_job import BuildJob, SourceConsent, check_name
from backend.dataset.sources.material import Material
from backend.dataset.sources.sidecars import SIDECAR_SUFFIXES
from backend.dataset.storage.workspace import uploads_folder
from backend.errors import SettingsError
from backend.voices.consent import Consent, hash_of_file
from backend.voices.samples import get_sample
from ui.context import PageContext
from ui.fields import FormIncomplete
from ui.source import Reference, Source
from ui.words.words import say

MAX_ACTORS = 256


def gather_material(
    references: Sequence[Reference], source: Source | None, transcript: str = "", files: Sequence[str] = ()
) -> Material:
    """What the voice that is chosen on the Speak tab is made of, and the files that were added to it."""
    added = [Path(path) for path in files]
    texts = [path for path in added if path.suffix.lower() in SIDECAR_SUFFIXES]
    own = _recordings_of(references, source)
    return Material(
        recordings=(*own, *(path for path in added if path not in texts)),
        transcripts=tuple(texts),
        transcript=transcript.strip() if len(own) == 1 else "",
        sample=source.sample if source is not None and source.kind == "sample" else "",
    )


def names_given(references: Sequence[Reference], source: Source | None) -> list[str]:
    """What the Speak tab has, as people read it; nothing where a dataset cannot be made of it."""
    if source is None or source.kind == "recording":
        return [reference.name for reference in references]
    return [source.name] if gather_material(references, source).is_given else []


def voice_name(source: Source | None) -> str:
    """What a dataset of it may be called after."""
    return (source.sample or source.name) if source is not None else ""


def plan_build(
    context: PageContext,
    material: Material,
    *,
    name: str,
    language: str = "auto",
    whisper: str = "",
    num_actors: int | None = None,
    stated: Mapping[str, Consent] = MappingProxyType({}),
    consent: Consent | None = None,
) -> BuildJob:
    """Describe the build; its recordings are put where they outlive the page.

    Each recording has the consent that was `stated` for its content, a sample its own, and others `consent`.

    Raises:
        EncoreError: there is nothing to prepare, or the name cannot be used.
    """
    if not material.is_given:
        raise FormIncomplete(say("data.nothing_given"))
    name = check_name(name.strip())
    # A folder of its own: what was uploaded before belongs to a dataset, or to one in the trash.
    recordings, texts = material.keep(uploads_folder(context.settings.home_folder, name) / uuid.uuid4().hex[:8])
    loaded = context.studio.loaded
    job = BuildJob.parse(
        name,
        recordings,
        model=loaded.name if loaded is not None else context.settings.model,
        whisper=whisper.strip() or None,
        language=language,
        transcripts=texts,
        num_actors=num_actors,
        device=context.settings.device,
    )
    known = [stated.get(hash_of_file(path)) for path in recordings[: len(material.recordings)]]
    if material.sample:
        known += [get_sample(material.sample).consent()] * (len(recordings) - len(known))
    consents = tuple(
        SourceConsent(paths=(path,), consent=one)
        for path, one in zip(job.recordings, known, strict=True)
        if one is not None
    )
    return job.model_copy(update={"consents": consents}).agreed_by(consent)


def without_unused(job: BuildJob, kept: BuildJob) -> BuildJob:
    """The job; copies of recordings that were `kept` for it and that it does without are removed."""
    for path in {*kept.recordings, *kept.transcripts} - {*job.recordings, *job.transcripts}:
        Path(path).unlink(missing_ok=True)
    return job


def is_part_of(material: Material, job: BuildJob) -> bool:
    """Whether a dataset is made of this already."""
    there = {Path(path) for path in job.recordings}
    contents = {hash_of_file(path) for path in there if path.is_file()}
    if material.sample:
        return any(path.stem.startswith(f"{material.sample}-") for path in there)
    return all(hash_of_file(path) in contents for path in material.recordings)


def parse_actors(written: str) -> int | None:
    """The number of parallel workers in a text field, None if it is empty. Raises SettingsError."""
    digits = written.strip()
    if not digits:
        return None
    if not (digits.isascii() and digits.isdecimal()) or int(digits) > MAX_ACTORS:
        raise SettingsError(say("data.actors_wrong", written=digits[:20], most=MAX_ACTORS))
    return int(digits)


def _recordings_of(references: Sequence[Reference], source: Source | None) -> tuple[Path, ...]:
    """Recordings that were uploaded are another voice's once a sample or a voice of the library is chosen."""
    if source is None or source.kind == "recording":
        return tuple(reference.path for reference in references)
    return (source.stored_recording,) if source.stored_recording is not None else ()
