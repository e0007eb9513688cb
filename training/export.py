"""Exports a run's weights as checkpoints in the public format, which this program and the reference package load.

As `custom_voice` each voice is a named speaker: its embedding becomes a row of the codec vocabulary. As `base` the
speaker encoder comes along, so that the fine-tuned weights can clone from a recording in context. Both are whole
models, with an adapter merged into its base; the adapter by itself is a folder as PEFT writes it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors.torch import load_file
from torch import Tensor

from training.errors import TrainingError
from training.job import ADAPTER_FOLDER, FineTuneJob
from training.model.checkpoint.digest import checkpoint_digest
from training.model.checkpoint.names import SPEECH_TOKENIZER_FOLDER
from training.model.checkpoint.reading import find_weights, load_weights, read_config, read_json_object
from training.model.checkpoint.writing import GENERATION_CONFIG_FILE, PROVENANCE_FILE, save_adapter, save_checkpoint
from training.model.config import ModelConfig
from training.model.generation_defaults import GUIDANCE_SCALE
from training.model.hub.hub import published_name
from training.model.network.lora import is_adapter_weight, merge_adapter, put_adapter, scale_adapter
from training.model.network.speaker_encoder import SpeakerEncoder
from training.model.network.talker import Talker
from training.run_checkpoints import Checkpoint, require_base, require_intact
from training.strategies.learner import WHOLE_WEIGHTS_FILE

Kind = Literal["custom_voice", "base"]
KINDS: tuple[Kind, ...] = get_args(Kind)

EXPORTS_FOLDER = "exports"
PREFERRED_SPEAKER_ROW = 3000
"""Where the public fine-tuning script puts the first speaker."""

_SPEAKER_ROWS = "talker.model.codec_embedding.weight"


@dataclass(frozen=True, kw_only=True)
class FineTunedWeights:
    """The weights to export.

    Attributes:
        job: that trained them.
        step: number of steps done.
        talker: all its weights by the network's names, float32, with the adapter merged if there is one.
        embeddings: of the speakers (S, D), in the order of `job.speakers`.
        adapter: its tensors by the adapted network's names; None where all weights were trained.
        is_base_known: whether the base model is known to be the one that was trained on. Where it may be another one,
            takes are not guided: the weights may not have learnt that.
    """

    job: FineTuneJob
    step: int
    talker: Mapping[str, Tensor]
    embeddings: Tensor
    adapter: Mapping[str, Tensor] | None = None
    is_base_known: bool = True


def export_all(weights: FineTunedWeights, folder: Path, *, replace_existing: bool = False) -> dict[Kind, Path]:
    """Write both kinds of checkpoint, and an adapter by itself where one was trained; returns the checkpoints.

    Raises:
        CheckpointError, TrainingError: as `export_weights`.
    """
    exported: dict[Kind, Path] = {kind: folder / kind for kind in KINDS}
    for kind, destination in exported.items():
        export_weights(weights, destination, kind, replace_existing=replace_existing)
    if weights.adapter is not None:
        export_adapter(weights, folder / ADAPTER_FOLDER, replace_existing=replace_existing)
    return exported


def export_weights(weights: FineTunedWeights, folder: Path, kind: Kind, *, replace_existing: bool = False) -> None:
    """Write a checkpoint folder atomically, with its provenance in `encore.json`.

    Raises:
        CheckpointError: it cannot be written, or a weight is NaN or infinite.
        TrainingError: the base model has no room for a speaker.
    """
    base = weights.job.base_model
    config = read_config(base)
    state = {f"talker.{name}": tensor for name, tensor in kept_weights(weights).items()}
    if kind == "base":
        state |= _speaker_encoder_state(base, config)
    else:
        rows = state[_SPEAKER_ROWS].clone()
        for (name, row), embedding in zip(rows_by_speaker(weights.job).items(), weights.embeddings, strict=True):
            # To the nearest: nothing was learned here, and one embedding has no others to be right on average with.
            rows[row] = embedding.bfloat16().to(rows.dtype)
            config = with_speaker(config, name, row)
        state[_SPEAKER_ROWS] = rows
    save_checkpoint(
        folder,
        config=config,
        state=state,
        speech_tokenizer=base / SPEECH_TOKENIZER_FOLDER,
        text_tokenizer=base,
        generation_config=None if weights.is_base_known else _without_guidance(base),
        notes={PROVENANCE_FILE: provenance(weights, kind)},
        rounds_on_average=True,
        replace=replace_existing,
        hashes=True,
    )


def export_adapter(weights: FineTunedWeights, folder: Path, *, replace_existing: bool = False) -> None:
    """Write an adapter as PEFT does, with each speaker's embedding as a row of the codec vocabulary that it changes.

    Its base is named by the hash of its weights, and by its public name if it has one; no path of this machine is told.

    Raises:
        CheckpointError: it cannot be written, or a weight is NaN or infinite.
        TrainingError: all weights were trained, or the base model has no room for a speaker.
    """
    job = weights.job
    if job.lora is None or weights.adapter is None:
        raise TrainingError(f"The run in {job.output} trained {job.method_in_words}, so it has no adapter. Merge it.")
    rows = rows_by_speaker(job)
    base_digest = checkpoint_digest(job.base_model)
    paths: dict[str, Any] = dict.fromkeys(("dataset", "base_model", "output", "nvme_folder", "deepspeed"), True)
    fields = job.model_dump(mode="json", exclude=paths | {"more_speakers": {"__all__": {"dataset"}}})
    note = provenance(weights, "custom_voice") | {
        "kind": "adapter",
        "job": fields,
        "speaker_row": next(iter(rows.values())),
    }
    save_adapter(
        folder,
        adapter=scale_adapter(weights.adapter, job.interpolation_alpha),
        config=job.lora,
        rows=dict(zip(rows.values(), weights.embeddings, strict=True)),
        base_name=published_name(job.base_model),
        base_digest=base_digest,
        notes={PROVENANCE_FILE: note | {"base_model": published_name(job.base_model), "base_sha256": base_digest}},
        replace=replace_existing,
    )


def kept_weights(weights: FineTunedWeights) -> Mapping[str, Tensor]:
    """Interpolate between the base model's weights and the fine-tuned ones, by the job's `interpolation_alpha`."""
    share = weights.job.interpolation_alpha
    if share == 1:
        return weights.talker
    before = _read_base_talker(weights.job.base_model).state_dict()
    return {name: before[name].lerp(tensor, share) for name, tensor in weights.talker.items()}


def export_checkpoint(
    checkpoint: Checkpoint, embeddings: Tensor, folder: Path, kind: Kind, *, replace_existing: bool = False
) -> None:
    """Export a checkpoint of a run, from any process, during training or later.

    Args:
        checkpoint: see `training.run_checkpoints.list_checkpoints`.
        embeddings: of the run's speakers, `TrainingSet.speakers_SD`.
        folder: destination.
        kind: type of the exported checkpoint.
        replace_existing: replace an older export.

    Raises:
        CheckpointError, TrainingError: as `export_weights`.
    """
    weights = read_weights(checkpoint, embeddings)
    export_weights(weights, folder, kind, replace_existing=replace_existing)


def read_weights(checkpoint: Checkpoint, embeddings: Tensor) -> FineTunedWeights:
    """A checkpoint's trained weights together with the base model's frozen ones, on the CPU.

    Raises:
        ResumeError: the checkpoint is damaged.
        CheckpointError: the base model is.
        TrainingError: the base model is not the one that the checkpoint was trained on.
    """
    require_intact(checkpoint)
    job = checkpoint.job()
    require_base(checkpoint, checkpoint_digest(job.base_model))
    talker = _read_base_talker(job.base_model)
    if job.lora is not None:
        put_adapter(talker, job.lora)
    state = talker.state_dict()
    if job.uses_deepspeed:
        trained = _read_zero(checkpoint.state)
        state |= {name: tensor for name, tensor in trained.items() if name in state}
    else:
        _read_dcp(checkpoint.state, state, job)
    merged = _merged(job, state, step=checkpoint.progress.step, embeddings=embeddings)
    return replace(merged, is_base_known=checkpoint.progress.base_digest is not None)


def with_base(job: FineTuneJob, talker: Mapping[str, Tensor], *, step: int, embeddings: Tensor) -> FineTunedWeights:
    """The weights that a learner holds; an adapter is put onto the base model as it is stored, in full precision.

    Raises:
        CheckpointError: the base model is damaged.
    """
    if job.lora is not None:
        adapter = {name: tensor for name, tensor in talker.items() if is_adapter_weight(name)}
        talker = _read_base_talker(job.base_model).state_dict() | adapter
    return _merged(job, talker, step=step, embeddings=embeddings)


def _merged(job: FineTuneJob, state: Mapping[str, Tensor], *, step: int, embeddings: Tensor) -> FineTunedWeights:
    if job.lora is None:
        return FineTunedWeights(job=job, step=step, talker=state, embeddings=embeddings)
    adapter = {name: tensor for name, tensor in state.items() if is_adapter_weight(name)}
    plain = {name: tensor for name, tensor in state.items() if name not in adapter}
    merged = merge_adapter(plain, adapter, job.lora)
    return FineTunedWeights(job=job, step=step, talker=merged, embeddings=embeddings, adapter=adapter)


def rows_by_speaker(job: FineTuneJob) -> dict[str, int]:
    """The row of the codec vocabulary that each speaker of a job has in exports, by name.

    Raises:
        CheckpointError, ConfigError: the base model is damaged.
        TrainingError: it has too few free rows.
    """
    config, rows = read_config(job.base_model), {}
    for speaker in job.speakers:
        rows[speaker.name] = speaker_row(config)
        config = with_speaker(config, speaker.name, rows[speaker.name])
    return rows


def speaker_row(config: ModelConfig) -> int:
    """An unused row of the codec vocabulary, above the codes themselves.

    Raises:
        TrainingError: all rows are in use.
    """
    talker = config.talker
    ids = {value for name, value in vars(talker).items() if name.startswith("codec_") and isinstance(value, int)}
    taken = ids | set(talker.codec_language_id.values()) | set(talker.spk_id.values())
    lowest = max(config.code_predictor.vocab_size, *ids) + 1
    candidates = [PREFERRED_SPEAKER_ROW, *range(talker.vocab_size - 1, lowest - 1, -1)]
    free = [row for row in candidates if lowest <= row < talker.vocab_size and row not in taken]
    if not free:
        raise TrainingError("The base model has no free row for another speaker. Fine-tune it for fewer at once.")
    return int(free[0])


def with_speaker(config: ModelConfig, name: str, row: int) -> ModelConfig:
    """The configuration with one more named speaker."""
    talker = replace(
        config.talker,
        spk_id={**config.talker.spk_id, name: row},
        spk_is_dialect={**config.talker.spk_is_dialect, name: False},
    )
    return replace(config, talker=talker, tts_model_type="custom_voice")


def provenance(weights: FineTunedWeights, kind: Kind) -> dict[str, Any]:
    """The content of `encore.json`."""
    job, is_named = weights.job, kind == "custom_voice"
    embeddings = [[round(value, 8) for value in embedding.tolist()] for embedding in weights.embeddings]
    return {
        "format": 1,
        "kind": kind,
        # Of the first speaker, for programs that know of one.
        "voice": job.voice,
        "speaker": job.speakers[0].name if is_named else None,
        "speaker_embedding": embeddings[0],
        "speakers": rows_by_speaker(job) if is_named else {},
        "speaker_embeddings": {one.name: values for one, values in zip(job.speakers, embeddings, strict=True)},
        "base_model": str(job.base_model),
        "dataset_digest": job.dataset_digest,
        "step": weights.step,
        "exported_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "job": job.model_dump(mode="json"),
    }


def _without_guidance(base: Path) -> dict[str, Any] | None:
    path = base / GENERATION_CONFIG_FILE
    # Where the file is missing, saving says so.
    raw = dict(read_json_object(path)) if path.is_file() else {}
    return raw if raw.pop(GUIDANCE_SCALE, None) is not None else None


def _read_base_talker(base: Path) -> Talker:
    config = read_config(base)
    with torch.device("meta"):
        talker = Talker(config.talker, config.code_predictor)
    load_weights(talker, find_weights(base), "talker.", dtype=torch.float32, device="cpu")
    return talker


def _speaker_encoder_state(base: Path, config: ModelConfig) -> dict[str, Tensor]:
    if not config.has_speaker_encoder:
        raise TrainingError(f"{base} is a {config.tts_model_type} model without a speaker encoder. Use a Base model.")
    with torch.device("meta"):
        encoder = SpeakerEncoder(config.speaker_encoder)
    load_weights(encoder, find_weights(base), "speaker_encoder.", dtype=torch.float32, device="cpu")
    return {f"speaker_encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}


def _read_dcp(folder: Path, state: dict[str, Tensor], job: FineTuneJob) -> None:
    """Read the trained weights into `state`, in place; frozen ones are not in the checkpoint."""
    wanted = {f"talker.{name}": tensor for name, tensor in state.items() if _is_trained(name, job)}
    with warnings.catch_warnings():
        # It warns that it reads in a single process, which is intended.
        warnings.filterwarnings("ignore", message="torch.distributed is")
        # Takes more than a second, and few of those who import this export a sharded run.
        from torch.distributed.checkpoint.state_dict_loader import load  # noqa: PLC0415 - see above

        load({"model": wanted}, checkpoint_id=folder, no_dist=True)


def _is_trained(name: str, job: FineTuneJob) -> bool:
    if job.lora is not None:
        return is_adapter_weight(name)
    return job.train_text_embedding or not name.startswith("model.text_embedding.")


def _read_zero(folder: Path) -> dict[str, Tensor]:
    if (folder / WHOLE_WEIGHTS_FILE).is_file():
        return load_file(folder / WHOLE_WEIGHTS_FILE)
    from deepspeed.utils.zero_to_fp32 import (  # noqa: PLC0415 - takes seconds, and few need it
        get_fp32_state_dict_from_zero_checkpoint,
    )

    found = get_fp32_state_dict_from_zero_checkpoint(str(folder), tag="zero")
    return {name.removeprefix("talker."): tensor for name, tensor in found.items()}
