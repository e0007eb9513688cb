"""A dataset on disk: the format that dataset builds write and training reads.

NAME/dataset.json     the dataset's card: which model it was built with, and which clip is the voice's reference
NAME/rows.parquet     one row per accepted clip: text, codes, speaker embedding
NAME/audio/ID.wav     the clips themselves, 24 kHz mono PCM16, named by the hash of their content
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from training.model.errors import EncoreError

if TYPE_CHECKING:
    from torch import Tensor

CARD_FILE, ROWS_FILE, AUDIO_FOLDER = "dataset.json", "rows.parquet", "audio"

SCHEMA = pa.schema(
    [
        ("clip_id", pa.string()),
        ("text", pa.string()),
        ("language", pa.string()),
        ("seconds", pa.float32()),
        ("codes", pa.list_(pa.int16())),
        ("speaker_embedding", pa.list_(pa.float32())),
        ("held_out", pa.bool_()),
        ("style", pa.string()),
    ]
)
_DEFAULTS = {"style": ""}
"""Columns that rows of earlier versions lack."""


class TrainingDataError(EncoreError):
    """A dataset is missing, damaged, or was built for another model."""


class DatasetCard(BaseModel):
    """A dataset's description; `dataset.json`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    language: str
    """`auto`, or one of the model's languages."""
    model: str
    """Name of the model whose speech tokenizer and speaker encoder made the rows."""
    tokenizer_fingerprint: str
    """Of the codebooks; a model with other codebooks cannot use the codes."""
    num_codebooks: PositiveInt
    reference_clip_id: str
    """The clip that represents the voice: its speaker embedding, and its audio and text for in-context prompts."""
    digest: str
    """Hash over the rows: the same digest is the same training data."""
    transcribers: tuple[str, ...] = ()
    """Who listened to the clips: wrote their texts down, or compared them with what was heard."""


@dataclass(frozen=True, kw_only=True)
class CodeRow:
    """One clip, ready to train on.

    Attributes:
        clip_id: hash of its audio; names the WAV file.
        text: what is said.
        language: `auto` or a language of the model.
        seconds: length of the audio.
        codes: frame-major codes, frames * codebooks of them; see `codes_of`.
        speaker_embedding: of this clip alone, as wide as the talker.
        held_out: used for evaluation, never for training.
        style: how it is said, in a word of the user's; empty where nothing was said about it.
    """

    clip_id: str
    text: str
    language: str
    seconds: float
    codes: Sequence[int]
    speaker_embedding: Sequence[float]
    held_out: bool
    style: str = ""


def codes_of(row: CodeRow, num_codebooks: int) -> Tensor:
    """A row's codes, int64 (frames, codebooks).

    Raises:
        TrainingDataError: they do not fill whole frames.
    """
    if not row.codes or len(row.codes) % num_codebooks:
        raise TrainingDataError(
            f"Clip {row.clip_id} has {len(row.codes)} codes, which is not a whole number of frames."
        )
    import torch  # noqa: PLC0415 - a second, for those who only look at a dataset

    return torch.tensor(row.codes, dtype=torch.long).view(-1, num_codebooks)


def write_code_rows(path: Path, rows: Iterable[CodeRow]) -> None:
    """Write rows to a Parquet file, which the caller then moves into place."""
    pq.write_table(pa.Table.from_pylist([asdict(row) for row in rows], schema=SCHEMA), path)


def read_code_rows(path: Path) -> list[CodeRow]:
    """All rows of a Parquet file.

    Raises:
        TrainingDataError: it is missing, damaged, or has other columns.
    """
    return rows_of_table(read_rows_table(path))


def read_rows_table(path: Path) -> pa.Table:
    """All rows of a Parquet file as they are stored, to pass on to other processes; see `rows_of_table`.

    Raises:
        TrainingDataError: it is missing, damaged, or has other columns.
    """
    try:
        table = pq.read_table(path)
    except FileNotFoundError as error:
        raise TrainingDataError(f"{path} is missing. Build the dataset again.") from error
    except (OSError, pa.ArrowException) as error:
        raise TrainingDataError(f"{path} cannot be read: {str(error).rstrip('.')}. Build the dataset again.") from error
    for name, value in _DEFAULTS.items():
        if name not in table.column_names:
            column = pa.array([value] * table.num_rows, type=SCHEMA.field(name).type)
            table = table.append_column(name, column)
    if missing := set(SCHEMA.names) - set(table.column_names):
        raise TrainingDataError(f"{path} has no column {', '.join(sorted(missing))}. Build the dataset again.")
    return table.select(SCHEMA.names).cast(SCHEMA)


def rows_of_table(table: pa.Table) -> list[CodeRow]:
    """The rows of a table from `read_rows_table`, also after it was sent through a pipeline."""
    return [CodeRow(**row) for row in table.cast(SCHEMA).to_pylist()]


def write_card(folder: Path, card: DatasetCard) -> None:
    """Write `dataset.json` into a dataset's folder, which the caller then moves into place."""
    (folder / CARD_FILE).write_text(card.model_dump_json(indent=1) + "\n", encoding="utf-8")


def read_card(folder: Path) -> DatasetCard:
    """The description of the dataset in `folder`.

    Raises:
        TrainingDataError: it is missing, or cannot be read.
    """
    path = folder / CARD_FILE
    try:
        return DatasetCard.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise TrainingDataError(f"{folder} holds no dataset. Build one with `app.py dataset build`.") from error
    except (OSError, ValueError, ValidationError) as error:
        raise TrainingDataError(f"{path} cannot be read: {error}. Build the dataset again.") from error
