"""`app.py dataset`: build a training set from recordings, inspect it, and export it for other tools."""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backend.commands.checks import check_device, check_model, check_recordings, check_whisper
from backend.commands.loading import loading
from backend.commands.options.shared import optional_consent_of
from backend.commands.progress import Progress
from backend.commands.trash import conclude_deletion
from backend.dataset.failed_build import removed_if_empty
from backend.errors import EncoreError, SettingsError
from backend.settings import Settings
from backend.store.home import Home
from backend.voices.consent import Consent

if TYPE_CHECKING:
    from backend.dataset.clips.views import BuildProgress, ClipRow, DatasetView
    from backend.dataset.datasets import Datasets

_POLL_SECONDS = 1.0
_MAX_TEXT_LENGTH = 48


def run_build(arguments: argparse.Namespace, settings: Settings) -> int:
    """Build, with a progress line; Ctrl-C stops it, and the same command resumes it."""
    # Imported here: it takes a second to load, which no other command needs.
    from backend.dataset.clips.build_job import BuildJob  # noqa: PLC0415 - see above
    from backend.dataset.errors import DatasetEmpty  # noqa: PLC0415

    check_recordings([*arguments.recordings, *arguments.transcripts])
    check_whisper(arguments.whisper)
    check_device(arguments.device)
    check_model(arguments.model)
    datasets = _datasets(settings)
    job = BuildJob.parse(
        arguments.name,
        arguments.recordings,
        model=arguments.model,
        whisper=arguments.whisper,
        language=arguments.language,
        transcripts=arguments.transcripts,
        num_actors=arguments.workers,
        device=arguments.device,
        keeps_originals=arguments.keep_originals,
        max_hours=arguments.max_hours,
        max_megabytes=arguments.max_megabytes,
    ).agreed_by(optional_consent_of(arguments))
    if arguments.add:
        job = datasets.added_to(job.name, job)
    with removed_if_empty(Home(settings.home_folder), datasets, job.name):
        try:
            with _shown_progress(datasets, job.name):
                view = datasets.build(job, replaces=arguments.replace)
        except DatasetEmpty:
            # The error says that nothing is left, and should not say it twice; why, differs from file to file.
            print(describe(datasets.show(job.name).model_copy(update={"problem": ""}), with_clips=False))
            raise
    print(describe(view, with_clips=False))
    keep_in_storage(settings)
    return 0


def run_show(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print one dataset, or the names of all."""
    datasets = _datasets(settings)
    if arguments.name is None:
        print("\n".join(datasets.list()) or "There are no datasets. Build one with `app.py dataset build`.")
        return 0
    print(describe(datasets.show(arguments.name), with_clips=True))
    print("\n".join(describe_consents(datasets.consents(arguments.name).values())))
    return 0


def run_export(arguments: argparse.Namespace, settings: Settings) -> int:
    """Write the files."""
    num_clips = _datasets(settings).export(arguments.name, arguments.folder)
    print(f"{arguments.folder}: {num_clips} clips with their texts, listed in train_raw.jsonl")
    print("Paths in the list are relative: start other tools in that folder.")
    return 0


def run_style(arguments: argparse.Namespace, settings: Settings) -> int:
    """Say how clips are spoken, and bring the training files up to date."""
    from backend.dataset.errors import EditInvalid  # noqa: PLC0415 - seconds to load

    datasets = _datasets(settings)
    clips = datasets.show(arguments.name).clips
    keys = arguments.clips or [clip.key for clip in clips]
    if arguments.recording is not None:
        keys = [clip.key for clip in clips if _is_from(clip, arguments.recording)]
    if not keys:
        raise EditInvalid(
            f"No clip of {arguments.name} is from a recording like {arguments.recording!r}. "
            f"`app.py dataset show {arguments.name}` lists them."
        )
    datasets.set_styles(arguments.name, dict.fromkeys(keys, arguments.word))
    if not datasets.rows_are_current(arguments.name):
        datasets.rebuild_rows(arguments.name)
    print("\n".join(_style_lines(datasets.show(arguments.name))) or "styles: none")
    keep_in_storage(settings)
    return 0


def run_apply(arguments: argparse.Namespace, settings: Settings) -> int:
    """Bring the training files up to date with what was changed on the page."""
    datasets = _datasets(settings)
    if not datasets.rows_are_current(arguments.name):
        datasets.rebuild_rows(arguments.name)
    print(describe(datasets.show(arguments.name), with_clips=False))
    keep_in_storage(settings)
    return 0


def _is_from(clip: ClipRow, pattern: str) -> bool:
    """Whether a pattern of the shell matches the name of a clip's recording, or the end of it."""
    name = clip.details.recording_name
    return fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(name, f"*/{pattern}")


def run_fetch(arguments: argparse.Namespace, settings: Settings) -> int:
    """Bring a stored dataset here, or list those that are stored."""
    from backend.dataset.fetch_stored import fetch_stored, find_stored, list_stored  # noqa: PLC0415 - seconds to load
    from training.storage.objects import open_store  # noqa: PLC0415

    store = open_store(settings.storage)
    if store is None:
        raise SettingsError("Nothing is stored: ENCORE_STORAGE is not set. Set it to the storage of the other home.")
    if arguments.name is None:
        listed = [f"{one.name}, of the home {one.owner}" for one in list_stored(store)]
        print("\n".join(listed) or f"There are no datasets at {store.location}.")
        return 0
    wanted = find_stored(store, arguments.name, arguments.owner)
    num_files = fetch_stored(Home(settings.home_folder), store, wanted)
    print(f"{wanted.name}: {num_files} files fetched")
    return 0


def run_delete(arguments: argparse.Namespace, settings: Settings) -> int:
    """Remove a dataset that no run is learning from."""
    # Those there are, before what looks for runs that learn from it is loaded.
    _datasets(settings).job(arguments.name)
    with loading():
        from backend.studio import Studio  # noqa: PLC0415 - seconds to load

    deleted = Studio(settings).delete_dataset(arguments.name)
    return conclude_deletion(Home(settings.home_folder), deleted, for_good=arguments.for_good)


def describe(view: DatasetView, *, with_clips: bool) -> str:
    """A dataset as text: recordings that were left out, clips if wanted, totals in minutes."""
    from backend.dataset.clips.gates import Verdict  # noqa: PLC0415 - seconds to load

    lines = [f"note: {view.notice}"] if view.notice else []
    for recording in view.recordings:
        if recording.problem:
            # Problems of a file name it, problems of its sound do not.
            about = "" if recording.problem.startswith(_shown(recording.name)) else f"{_shown(recording.name)}: "
            lines.append(f"left out: {about}{recording.problem}")
    for recording in view.recordings:
        if recording.details.made_by_encore:
            lines.append(
                f"note: {_shown(recording.name)} was made by Encore; training on it asks for --accept-synthetic"
            )
        for lost in recording.details.lost:
            span = lost.span
            lines.append(
                f"left out: {_shown(recording.name)}, {_moment(span.start_seconds)} to {_moment(span.end_seconds)}: "
                f"{lost.problem}"
            )
    listed = [clip for clip in view.clips if with_clips or clip.reasons]
    for name, clips in itertools.groupby(listed, key=lambda clip: clip.details.recording_name):
        lines += [f"{_shown(name)}:", *(line for clip in clips for line in _clip_lines(clip))]
    lines += [
        f"{verdict.value}: {view.count(verdict)} clips, {view.minutes(verdict):.1f} minutes" for verdict in Verdict
    ]
    lines += _style_lines(view)
    if view.transcribers:
        lines.append(f"heard by: {', '.join(view.transcribers)}")
    if view.reference is not None:
        lines.append(f"reference: {view.reference.key}, {view.reference.seconds:.1f} s: {view.reference.text}")
    state = f"{view.name}: {view.state.value}" + (f". {view.problem}" if view.problem else "")
    if view.digest is not None:
        stale = f" (changed since: `app.py dataset apply {view.name}` applies the changes)"
        state += f", {view.folder}" + ("" if view.rows_are_current else stale)
    return "\n".join([*lines, state])


def describe_consents(consents: Iterable[Consent | None]) -> list[str]:
    """Who agreed to the cloning of how many recordings, a line each; and for how many nobody has yet."""
    listed = list(consents)
    given = {(one.who, one.statement, one.given_at) for one in listed if one is not None}
    lines = [
        f"consent: {statement} by {who}, {at:%Y-%m-%d}, for "
        f"{sum(one is not None and (one.who, one.statement, one.given_at) == (who, statement, at) for one in listed)}"
        f" of {len(listed)} recordings"
        for who, statement, at in sorted(given)
    ]
    if num_missing := listed.count(None):
        lines.append(f"consent: none yet for {num_missing} of {len(listed)} recordings; a fine-tune asks for it")
    return lines


def _style_lines(view: DatasetView) -> list[str]:
    """How many clips have each style; nothing where none has one."""
    styles = view.styles
    if not any(styles):
        return []
    return ["styles: " + ", ".join(f"{style or 'none'} ({number})" for style, number in styles.items())]


def _clip_lines(clip: ClipRow) -> list[str]:
    text = clip.text if len(clip.text) <= _MAX_TEXT_LENGTH else clip.text[: _MAX_TEXT_LENGTH - 1] + "…"
    marks = [mark for mark, applies in (("reference", clip.is_reference), ("held out", clip.held_out)) if applies]
    marks += [f"style {clip.style}"] if clip.style else []
    notes = f" ({', '.join(marks)})" if marks else ""
    begin = _moment(clip.details.current.span.start_seconds)
    head = f"  {clip.key}  {clip.verdict.value:<15}  at {begin:>7}  {clip.seconds:4.1f} s  {text}{notes}"
    return [head, *(f"{'':16}{reason}" for reason in clip.reasons)]


def _moment(seconds: float) -> str:
    """A place in a recording, as players show it."""
    minutes, rest = divmod(round(10 * seconds), 600)
    return f"{minutes}:{rest / 10:04.1f}"


def _shown(name: str) -> str:
    """A file name without control characters, for a terminal."""
    return "".join(character if character.isprintable() else "?" for character in name)


def _datasets(settings: Settings) -> Datasets:
    from backend.dataset.datasets import Datasets  # noqa: PLC0415 - seconds to load

    return Datasets(Home(settings.home_folder))


def keep_in_storage(settings: Settings) -> None:
    """Send what is new to the object storage, if there is one: this may be a machine that is gone tomorrow."""
    from backend.dataset.stored_datasets import StoredDatasets  # noqa: PLC0415 - seconds to load
    from backend.voices.voice_index import owner_of  # noqa: PLC0415
    from training.storage.objects import open_store  # noqa: PLC0415

    if (store := open_store(settings.storage)) is not None:
        home = Home(settings.home_folder)
        try:
            StoredDatasets(home, store, owner_of(home.folder)).sync()
        except (EncoreError, OSError) as error:
            print(f"note: not everything is in the storage. {error} The studio tries it again.", file=sys.stderr)


@contextmanager
def _shown_progress(datasets: Datasets, name: str) -> Iterator[None]:
    """Show how the build in this process is doing, on a terminal only."""
    ended = threading.Event()

    def follow() -> None:
        with Progress(delay_seconds=0) as progress:
            while not ended.wait(_POLL_SECONDS):
                show_build(progress, name, datasets.progress(name))

    thread = threading.Thread(target=follow, daemon=True)
    if sys.stderr.isatty():
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread.is_alive():
            thread.join()


def show_build(progress: Progress, name: str, state: BuildProgress) -> None:
    """Show how a build is doing: the items of all stages as far as they are known, and the newest stage in words."""
    under_way = [stage for stage in state.stages if stage.num_done or stage.num_total]
    what = f"Dataset {name}: {under_way[-1].stage if under_way else state.notice or 'starting'}"
    counts = ", ".join(f"{stage.stage} {stage.num_done}/{stage.num_total or '?'}" for stage in under_way)
    line = f"Dataset {name}: {counts}" if counts else what
    progress.show(what, state.num_done, state.num_total or None, line=line, stage=what)
