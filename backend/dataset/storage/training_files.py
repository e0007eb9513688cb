"""The files of a dataset as training reads them, and as other tools do; written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.stage_results import WAV_SUFFIX, EncoderFacts
from backend.dataset.clips.views import ClipRow, transcribers_of
from backend.dataset.errors import DatasetEmpty
from backend.dataset.storage.lock import DATASETS_FOLDER
from backend.dataset.storage.workspace import DatasetWorkspace
from backend.errors import OutputInvalid
from backend.store.errors import ArtifactError
from training.data.code_rows import AUDIO_FOLDER, ROWS_FILE, CodeRow, DatasetCard, write_card, write_code_rows
from training.model.checkpoint.atomic_folder import create_folder
from training.model.checkpoint.hashes import write_hashes

EXPORT_LIST = "train_raw.jsonl"
"""The name that the public fine-tuning scripts use for it."""

_HELD_OUT_LIST = "held_out_raw.jsonl"


def dataset_folder(home: Path, name: str) -> Path:
    """Where the files of a dataset are."""
    return home / DATASETS_FOLDER / name


def write_dataset(
    workspace: DatasetWorkspace, job: BuildJob, encoder: EncoderFacts, clips: Sequence[ClipRow]
) -> DatasetCard:
    """Write the clips that may be trained on, in the place of what was there before.

    Raises:
        DatasetEmpty: no clip may.
        ArtifactError: the disk is full, or a clip is gone.
    """
    usable = list({clip.clip_id: clip for clip in clips if clip.is_usable}.values())
    if not usable:
        raise DatasetEmpty(_why_nothing(clips))
    rows = [_code_row(workspace, job, clip) for clip in usable]
    card = DatasetCard(
        name=job.name,
        language=job.language,
        model=encoder.model,
        tokenizer_fingerprint=encoder.fingerprint,
        num_codebooks=encoder.num_codebooks,
        reference_clip_id=next(clip.clip_id for clip in usable if clip.is_reference),
        digest=_digest(rows),
        transcribers=transcribers_of(clips),
    )
    try:
        with create_folder(dataset_folder(workspace.home, job.name), replace=True) as folder:
            write_code_rows(folder / ROWS_FILE, rows)
            write_card(folder, card)
            # Clips are named by their content, which serves as well.
            write_hashes(folder)
            (folder / AUDIO_FOLDER).mkdir()
            for row in rows:
                _place(workspace.wav(row.clip_id), folder / AUDIO_FOLDER / f"{row.clip_id}{WAV_SUFFIX}")
    except OSError as error:
        raise ArtifactError(
            f"The dataset {job.name} could not be written: {error.strerror}. Free some space and try again."
        ) from error
    return card


def export_dataset(clips: Sequence[ClipRow], folder: Path) -> int:
    """Write WAV files and JSONL lists with `audio`, `text`, `ref_audio`, and `style` where a clip has one.

    Paths in the lists are relative to `folder`, so it can be copied to a machine with a GPU; the public fine-tuning
    scripts have to be started in this folder.

    Returns:
        The number of clips.

    Raises:
        OutputInvalid: `folder` holds something already, or cannot be written.
        DatasetEmpty: no clip may be trained on.
    """
    usable = list({clip.clip_id: clip for clip in clips if _is_exported(clip)}.values())
    if not usable:
        raise DatasetEmpty(_why_nothing(clips))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputInvalid(f"{folder} is not empty. Name a new folder to export to.")
    reference = next((clip for clip in usable if clip.is_reference), usable[0])
    try:
        (folder / AUDIO_FOLDER).mkdir(parents=True, exist_ok=True)
        for clip in usable:
            shutil.copyfile(clip.audio, folder / _audio_name(clip))
        for name, held_out in ((EXPORT_LIST, False), (_HELD_OUT_LIST, True)):
            lines = [_export_line(clip, reference) for clip in usable if clip.held_out == held_out]
            if lines:
                (folder / name).write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise OutputInvalid(f"{folder} cannot be written: {error.strerror}. Name another folder.") from error
    return len(usable)


def _is_exported(clip: ClipRow) -> bool:
    """The reading tool makes its own codes, so a clip whose cut was just moved is exported, too."""
    return not clip.verdict.is_left_out and bool(clip.details.text)


def _code_row(workspace: DatasetWorkspace, job: BuildJob, clip: ClipRow) -> CodeRow:
    assert clip.details.tensors_id is not None, "only tokenized clips are usable"
    encoded = workspace.read_encoded(clip.details.tensors_id)
    return CodeRow(
        clip_id=clip.clip_id,
        text=clip.details.text,
        language=job.language,
        seconds=clip.seconds,
        codes=encoded.codes.reshape(-1).tolist(),
        speaker_embedding=encoded.speaker_embedding.tolist(),
        held_out=clip.held_out,
        style=clip.style,
    )


def _digest(rows: Sequence[CodeRow]) -> str:
    hashed = hashlib.sha256()
    for row in rows:
        # What earlier versions did not know counts only where it is there: the same data keeps its digest.
        known = {name: value for name, value in vars(row).items() if name != "style" or value}
        hashed.update(json.dumps(known, sort_keys=True, default=list).encode())
    return hashed.hexdigest()


def _place(source: Path, destination: Path) -> None:
    """The same bytes under a second name; artefacts never change, so they need no second copy."""
    try:
        os.link(source, destination)
    except OSError:
        shutil.copyfile(source, destination)


def _audio_name(clip: ClipRow) -> str:
    return f"{AUDIO_FOLDER}/{clip.clip_id}{WAV_SUFFIX}"


def _export_line(clip: ClipRow, reference: ClipRow) -> str:
    line = {"audio": _audio_name(clip), "text": clip.details.text, "ref_audio": _audio_name(reference)}
    return json.dumps(line | ({"style": clip.style} if clip.style else {}), ensure_ascii=False) + "\n"


def _why_nothing(clips: Sequence[ClipRow]) -> str:
    if not clips:
        return "No clip could be cut from any recording."
    if all(clip.verdict is Verdict.NEEDS_TEXT for clip in clips):
        return (
            f"None of the {len(clips)} clips has a text, and nothing listened. Type what is said in them on the Data "
            "page, add texts, or name a Whisper model; then build again."
        )
    first = next((result.sentence for clip in clips for result in clip.details.gates if result.sentence), "")
    return (
        f"None of the {len(clips)} clips can be trained on. The first one: {first or 'it is rejected.'} "
        "Overrule them one by one, or record again."
    )
