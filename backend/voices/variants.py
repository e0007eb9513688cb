"""The checkpoints or the adapter of a fine-tuned voice: linked where the file system allows it, copied otherwise."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from backend.voices.errors import VoiceError
from backend.voices.voice import ADAPTER_FOLDER, VARIANT_FOLDERS, Variant
from training.model.checkpoint.adapter_folder import read_adapter_header
from training.model.checkpoint.names import ADAPTER_FILE
from training.model.checkpoint.reading import CONFIG_FILE, read_config, read_json_object
from training.model.checkpoint.writing import ADAPTER_CONFIG_FILE, PROVENANCE_FILE
from training.model.config import ModelConfig

# Exports may hold reports and logs beside the checkpoint; only what a model is loaded from becomes part of a voice.
_CHECKPOINT_FILE = re.compile(
    r"(speech_tokenizer/)?(model(-\d{5}-of-\d{5})?\.safetensors|merges\.txt|(model\.safetensors\.index|config"
    r"|configuration|generation_config|preprocessor_config|vocab|tokenizer_config|tokenizer|special_tokens_map"
    r"|added_tokens)\.json)"
)
ADAPTER_FILES = (ADAPTER_CONFIG_FILE, ADAPTER_FILE, PROVENANCE_FILE)


def is_checkpoint_file(relative: str) -> bool:
    """Whether a model is loaded from this file, given its path in a checkpoint folder."""
    return _CHECKPOINT_FILE.fullmatch(relative) is not None


def copy_variants(checkpoints: Mapping[Variant, Path], folder: Path, speaker: str | None = None) -> None:
    """Link or copy checkpoint folders into a voice's folder.

    Args:
        checkpoints: folders in the public format.
        folder: of the voice.
        speaker: who of a checkpoint's speakers the voice is: the copy knows only that name, and shares the weights.

    Raises:
        VoiceError: a variant is not the kind of checkpoint it should be, or does not have that speaker.
        ModelError: a folder is not a checkpoint.
    """
    for variant, source in checkpoints.items():
        if variant not in VARIANT_FOLDERS:
            raise VoiceError(f"There is no variant {variant!r} of a voice; there are {', '.join(VARIANT_FOLDERS)}.")
        config = read_config(source)
        alone = _with_one_speaker(config, speaker) if variant == "custom_voice" and speaker is not None else config
        check_variant(variant, alone)
        for path in sorted(source.rglob("*")):
            relative = path.relative_to(source)
            if path.is_file() and is_checkpoint_file(relative.as_posix()):
                _link_or_copy(path, folder / variant / relative)
        if alone != config:
            _write_config(source, folder / variant, alone)


def _with_one_speaker(config: ModelConfig, speaker: str) -> ModelConfig:
    talker = config.talker
    if speaker not in talker.spk_id:
        raise VoiceError(f"The checkpoint has no speaker {speaker[:40]!r}. Export the run again.")
    only = {speaker: talker.spk_id[speaker]}
    dialect = {name: value for name, value in talker.spk_is_dialect.items() if name in only}
    return replace(config, talker=replace(talker, spk_id=only, spk_is_dialect=dialect))


def _write_config(source: Path, folder: Path, config: ModelConfig) -> None:
    """Replace the link to a configuration; what else it says stays as it is."""
    fields = json.loads((source / CONFIG_FILE).read_text(encoding="utf-8"))
    talker = config.talker
    fields["talker_config"] |= {"spk_id": dict(talker.spk_id), "spk_is_dialect": dict(talker.spk_is_dialect)}
    (folder / CONFIG_FILE).unlink()
    (folder / CONFIG_FILE).write_text(json.dumps(fields, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def copy_adapter(source: Path, folder: Path, speaker: str | None = None) -> None:
    """Link or copy an adapter into a voice's folder.

    Args:
        source: the adapter's folder.
        folder: of the voice.
        speaker: who of its speakers the voice is: the copy names only that one, and shares the weights.

    Raises:
        VoiceError: nothing says which model it belongs to, or it has no speaker, or not that one.
        ModelError: the folder is not an adapter.
    """
    check_adapter(source)
    for name in ADAPTER_FILES:
        if (source / name).is_file():
            _link_or_copy(source / name, folder / ADAPTER_FOLDER / name)
    speakers = read_adapter_header(source).speakers
    if speaker is None or speakers.keys() == {speaker}:
        return
    if speaker not in speakers:
        raise VoiceError(f"The checkpoint has no speaker {speaker[:40]!r}. Export the run again.")
    note = read_json_object(source / PROVENANCE_FILE)
    for others in ("speaker_embedding", "speaker_embeddings"):
        note.pop(others, None)
    note |= {"speaker": speaker, "speaker_row": speakers[speaker], "speakers": {speaker: speakers[speaker]}}
    copied = folder / ADAPTER_FOLDER / PROVENANCE_FILE
    copied.unlink()
    copied.write_text(json.dumps(note, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def check_adapter(folder: Path) -> None:
    """Refuse an adapter that no voice can speak with. Raises VoiceError; ModelError if it is none."""
    header = read_adapter_header(folder)
    if header.base_digest is None or not header.speakers:
        lacks = "a speaker" if header.base_digest is not None else "the hash of the model that it belongs to"
        raise VoiceError(f"The adapter lacks {lacks}, so that no voice can speak with it. Export the run again.")


def check_variant(variant: Variant, config: ModelConfig) -> None:
    """Refuse a checkpoint that is not of the kind its place in a voice requires. Raises VoiceError."""
    if config.tts_model_type != variant:
        raise VoiceError(
            f"A voice's {variant} checkpoint says of itself that it is a {config.tts_model_type[:40]} one. "
            "Export the run again."
        )
    if variant == "custom_voice" and len(config.talker.spk_id) != 1:
        raise VoiceError(
            f"A fine-tuned voice's checkpoint has one speaker; this one has {len(config.talker.spk_id)}. "
            "Export the run again."
        )


def _link_or_copy(source: Path, destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), destination)
    except OSError:
        # Another file system, or one without links.
        shutil.copy2(source, destination)
