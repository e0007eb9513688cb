"""A dataset that the tiny reference checkpoint can be trained on within seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from backend.audio.writing import write_wav
from tests.golden import GOLDEN_CHECKPOINT
from training.data.code_rows import AUDIO_FOLDER, ROWS_FILE, CodeRow, DatasetCard, write_card, write_code_rows
from training.model.codec.speech_tokenizer import tokenizer_fingerprint
from training.model.prompt.length import FRAMES_PER_SECOND
from training.model.voice_model import VoiceModel

NUM_CODEBOOKS = 16
CODEBOOK_SIZE = 64


def write_small_dataset(
    folder: Path, *, num_clips: int = 12, num_held_out: int = 2, seed: int = 3, styles: Sequence[str] = ("",)
) -> Path:
    """Random codes with texts and embeddings, and a WAV for each clip; `folder` must not exist."""
    model = VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu")
    width = model.config.talker.hidden_size
    generator = np.random.default_rng(seed)
    rows = [
        CodeRow(
            clip_id=f"{number:032x}",
            text=f"Sentence number {number} is said here.",
            language="auto",
            seconds=(num_frames := int(generator.integers(13, 25))) / FRAMES_PER_SECOND,
            codes=generator.integers(0, CODEBOOK_SIZE, num_frames * NUM_CODEBOOKS).tolist(),
            speaker_embedding=(generator.standard_normal(width) * 0.1).astype(np.float32).tolist(),
            held_out=number < num_held_out,
            style=styles[number % len(styles)],
        )
        for number in range(num_clips)
    ]
    (folder / AUDIO_FOLDER).mkdir(parents=True)
    for row in rows:
        times = np.arange(round(row.seconds * 24_000)) / 24_000
        tone = 0.2 * np.sin(2 * np.pi * 180 * times) * (1 + np.sin(2 * np.pi * 3 * times)) / 2
        write_wav(folder / AUDIO_FOLDER / f"{row.clip_id}.wav", tone.astype(np.float32), 24_000)
    write_code_rows(folder / ROWS_FILE, rows)
    card = DatasetCard(
        name=folder.name,
        language="auto",
        model=str(GOLDEN_CHECKPOINT),
        tokenizer_fingerprint=tokenizer_fingerprint(model.speech_tokenizer),
        num_codebooks=NUM_CODEBOOKS,
        reference_clip_id=rows[0].clip_id if rows else "",
        digest=f"{num_clips}-{num_held_out}-{seed}",
    )
    write_card(folder, card)
    return folder
