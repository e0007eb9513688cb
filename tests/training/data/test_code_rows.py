"""Datasets on disk: what is written is read, and what is damaged is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from training.data.code_rows import (
    CARD_FILE,
    CodeRow,
    DatasetCard,
    TrainingDataError,
    codes_of,
    read_card,
    read_code_rows,
    write_card,
    write_code_rows,
)

ROW = CodeRow(
    clip_id="a",
    text="Hello.",
    language="auto",
    seconds=0.5,
    codes=list(range(32)),
    speaker_embedding=[0.5, -0.25],
    held_out=False,
)
CARD = DatasetCard(
    name="mine",
    language="auto",
    model="mini",
    tokenizer_fingerprint="f",
    num_codebooks=16,
    reference_clip_id="a",
    digest="d",
)


def test_rows_survive_the_file(tmp_path: Path) -> None:
    write_code_rows(tmp_path / "rows.parquet", [ROW])
    assert read_code_rows(tmp_path / "rows.parquet") == [ROW]


def test_rows_of_earlier_versions_have_no_style(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write_code_rows(path, [replace(ROW, style="calm")])
    pq.write_table(pq.read_table(path).drop_columns("style"), path)
    assert read_code_rows(path) == [ROW]


def test_codes_come_back_frame_by_frame() -> None:
    assert codes_of(ROW, 16)[1].tolist() == list(range(16, 32))


def test_half_a_frame_is_refused() -> None:
    with pytest.raises(TrainingDataError, match="not a whole number of frames"):
        codes_of(ROW, 15)


@pytest.mark.parametrize("content", [b"", b"PAR1 nothing PAR1"], ids=["empty", "garbage"])
def test_damaged_rows_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.parquet").write_bytes(content)
    with pytest.raises(TrainingDataError, match="Build the dataset again"):
        read_code_rows(tmp_path / "rows.parquet")


def test_the_card_survives_the_file(tmp_path: Path) -> None:
    write_card(tmp_path, CARD)
    assert read_card(tmp_path) == CARD


def test_a_folder_without_card_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(TrainingDataError, match="holds no dataset"):
        read_card(tmp_path)


def test_a_card_with_unknown_fields_is_refused(tmp_path: Path) -> None:
    (tmp_path / CARD_FILE).write_text('{"name": "mine"}', encoding="utf-8")
    with pytest.raises(TrainingDataError, match="cannot be read"):
        read_card(tmp_path)
