"""`python -m training.pretrain pack`: pack the saved states of both runs as one checkpoint, and check it."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from training.model.checkpoint.atomic_folder import create_folder
from training.model.checkpoint.names import SPEECH_TOKENIZER_FOLDER
from training.model.checkpoint.reading import CONFIG_FILE, WEIGHTS_FILE, read_config, read_speech_tokenizer_config
from training.model.checkpoint.writing import GENERATION_CONFIG_FILE
from training.model.config_ranges import RANGES
from training.model.generation_defaults import GUIDANCE_SCALE, is_guidance, read_generation_defaults
from training.model.network.speaker_encoder import SpeakerEncoder
from training.model.project import PROJECT_FOLDER
from training.model.voice_model import VoiceModel
from training.pretrain.codec import precision
from training.pretrain.codec.read_tokenizer import read_tokenizer
from training.pretrain.codec.write_tokenizer import export_tokenizer
from training.pretrain.corpus.corpus import MANIFEST, OTHER_LANGUAGES, RECORDINGS
from training.pretrain.errors import PretrainError
from training.pretrain.pack.model_card import model_card
from training.pretrain.pack.run_summary import describe_machine, write_summary
from training.pretrain.run.run_start import steps_before
from training.pretrain.run.training_state import has_state, read_checkpoint, read_job, read_networks
from training.pretrain.speaker.job import SpeakerJob
from training.pretrain.speaker.training import WEIGHTS_PREFIX
from training.pretrain.talker.write_checkpoint import export_checkpoint

MAX_BYTES = 60_000_000
"""The checkpoint is part of every clone of the repository."""

TRAINING_FOLDER = "training"
ABOUT = "about.json"
CARD = "README.md"
# Lies beside the embedded checkpoint and is no part of it.
_TRANSCRIBER = "whisper.pt"

_VOICES = PROJECT_FOLDER / "assets" / "voices"
_TITLES = {"tokenizer": "Speech tokenizer", "talker": "Talker", "speaker": "Speaker encoder"}
_PREDICTOR_LAYERS = "talker.code_predictor.model.layers."
# What adds a layer's result to what passes through it.
_WRITES = ("self_attn.o_proj.weight", "mlp.down_proj.weight")
# Of each sample recording, to evaluate rounding on.
_LISTENED_SECONDS = 8


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The runs to pack."""

    tokenizer: Path
    """A run, or a packed checkpoint whose codes the talker was trained on."""
    talker: Path
    """A run, or a packed checkpoint whose talker was trained on the tokenizer's codes."""
    corpus: Path | None = None
    average: Path | None = None
    """A packed checkpoint that the talker was trained on from: its weights are to be averaged with the run's. Long
    training on few voices costs others; halfway, both are kept (Wortsman et al. 2022)."""
    average_share: float = 0.5
    """Of that checkpoint in the mean."""
    average_decoder: Path | None = None
    """A packed checkpoint that the tokenizer's decoder was trained on from: half of the weights come from it."""
    guidance_scale: float | None = None
    """How far takes are guided; None for what the talker's run or checkpoint says."""
    speaker: Path | None = None
    """A run of the speaker encoder, or a packed checkpoint with one; None for the talker's own."""
    speech: list[Path] = field(default_factory=lambda: sorted(_VOICES.glob("*.flac")))
    """Recordings on which the tokenizer's rounded weights are compared with the exact ones."""

    @property
    def runs(self) -> dict[str, Path]:
        """The runs by stage."""
        found = {"tokenizer": self.tokenizer, "talker": self.talker}
        if self.speaker is not None:
            found["speaker"] = self.speaker
        elif (self.talker / TRAINING_FOLDER / "speaker.jsonl").is_file():
            found["speaker"] = self.talker
        return found


def main(arguments: list[str]) -> int:
    """Pack the runs the command line names; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m training.pretrain pack", description=__doc__)
    parser.add_argument(
        "--tokenizer", type=Path, required=True, help="run of the speech tokenizer, or checkpoint with one"
    )
    parser.add_argument("--talker", type=Path, required=True, help="run of the talker, or checkpoint with one")
    parser.add_argument("--speaker", type=Path, help="run of the speaker encoder, or checkpoint with one")
    parser.add_argument("--corpus", type=Path, help="corpus to mention in the model's description")
    parser.add_argument("--average", type=Path, help="checkpoint whose talker's weights are averaged with the run's")
    parser.add_argument("--average-share", type=float, help="with --average: of that checkpoint in the mean (0.5)")
    parser.add_argument(
        "--average-decoder", type=Path, help="checkpoint whose codec's decoder is averaged with the run's"
    )
    parser.add_argument(
        "--guidance-scale",
        type=float,
        help="how far takes are guided away from speech without text and speaker, if the talker has learnt that (2)",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoint; an older one is replaced")
    parser.add_argument("--remark", default="", help="a sentence for its description, on the state of the training")
    options = parser.parse_args(arguments)
    if options.average_share is not None and options.average is None:
        raise PretrainError("--average-share says how much of a checkpoint to keep: name it with --average.")
    sources = Sources(
        tokenizer=options.tokenizer,
        talker=options.talker,
        speaker=options.speaker,
        corpus=options.corpus,
        average=options.average,
        average_share=0.5 if options.average_share is None else options.average_share,
        average_decoder=options.average_decoder,
        guidance_scale=options.guidance_scale,
    )
    pack(sources, options.out, remark=options.remark, report=lambda line: print(line, flush=True))
    return 0


def pack(sources: Sources, out: Path, *, report: Callable[[str], None], remark: str = "") -> None:
    """Write the checkpoint folder atomically.

    Raises:
        PretrainError: a run does not exist, or the checkpoint is too large.
        CheckpointError: the result does not load, or `out` cannot be written.
    """
    for run in sources.runs.values():
        if not has_state(run) and not _is_packed(run):
            raise PretrainError(f"{run} holds no run to pack.")
    if all(map(_is_packed, sources.runs.values())):
        raise PretrainError("All of it is packed already: name a run of any of the stages.")
    if not 0 < sources.average_share < 1:
        raise PretrainError(f"The share of the average is {sources.average_share}; choose one between 0 and 1.")
    if out.is_dir() and any(out.iterdir()) and not (out / CONFIG_FILE).is_file():
        raise PretrainError(f"{out} is not replaced: it is not a checkpoint. Choose another folder.")
    with create_folder(out, replace=True) as new, tempfile.TemporaryDirectory() as temporary:
        exported = Path(temporary) / "checkpoint"
        if _is_packed(sources.talker):
            others = (SPEECH_TOKENIZER_FOLDER, TRAINING_FOLDER, CARD, _TRANSCRIBER)
            shutil.copytree(sources.talker, exported, ignore=shutil.ignore_patterns(*others))
            if _is_packed(sources.tokenizer):
                shutil.copytree(sources.tokenizer / SPEECH_TOKENIZER_FOLDER, exported / SPEECH_TOKENIZER_FOLDER)
            else:
                export_tokenizer(exported / SPEECH_TOKENIZER_FOLDER, read_tokenizer(sources.tokenizer))
        else:
            export_checkpoint(sources.talker, sources.tokenizer, exported)
        shutil.copytree(exported, new, dirs_exist_ok=True)
        if sources.guidance_scale is not None:
            _set_guidance(new, sources.guidance_scale)
        if sources.average is not None:
            _average_talkers(new, sources.average, sources.average_share)
        if sources.average_decoder is not None:
            _average_decoders(new, sources.average_decoder)
        if sources.speaker is not None:
            _replace_speaker_encoder(new, sources.speaker)
        codec_weights = _round_codec(new, sources.speech, report)
        about = {
            **_about(sources, codec_weights),
            **_settings(new),
            "remark": remark,
            "is_averaged": _is_averaged(sources.average, sources.talker, "is_averaged"),
            "is_decoder_averaged": _is_averaged(sources.average_decoder, sources.tokenizer, "is_decoder_averaged"),
        }
        (new / TRAINING_FOLDER).mkdir()
        for name, run in sources.runs.items():
            if _is_packed(run):
                for path in (run / TRAINING_FOLDER).glob(f"{name}.*"):
                    shutil.copyfile(path, new / TRAINING_FOLDER / path.name)
                continue
            write_summary(new / TRAINING_FOLDER, name, run, title=_TITLES[name])
        (new / TRAINING_FOLDER / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        num_parameters = _check(new)
        (new / CARD).write_text(model_card(about, num_parameters), encoding="utf-8")
        num_bytes = size_of(new)
        if num_bytes > MAX_BYTES:
            raise PretrainError(f"The checkpoint has {num_bytes:,} bytes; the limit is {MAX_BYTES:,}.")
    report(f"packed {num_bytes / 1e6:.1f} MB in {out}, codec as {codec_weights}")


def _is_packed(folder: Path) -> bool:
    return (folder / TRAINING_FOLDER / ABOUT).is_file()


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _set_guidance(folder: Path, scale: float) -> None:
    lowest, highest = RANGES[GUIDANCE_SCALE]
    if not lowest <= scale <= highest:
        raise PretrainError(
            f"The guidance scale is {scale}; choose one from {lowest:g}, which is none, to {highest:g}."
        )
    path = folder / GENERATION_CONFIG_FILE
    defaults = json.loads(path.read_text(encoding="utf-8"))
    # Also a scale of 1 is written only where it may be raised again.
    if GUIDANCE_SCALE not in defaults:
        if is_guidance(scale):
            raise PretrainError(
                "The talker has not learnt speech without text and speaker, so its takes cannot be guided."
            )
        return
    path.write_text(json.dumps(defaults | {GUIDANCE_SCALE: scale}, indent=2) + "\n", encoding="utf-8")


def _average_talkers(folder: Path, other: Path, share: float) -> None:
    """Make the talker's weights the means of its own and those of another checkpoint of the same sizes.

    Layers that its code predictor has and the other lacks change nothing there: what they add becomes less.
    """
    own, others = _weights_of_both(folder, other, WEIGHTS_FILE)
    for name in own.keys() - others.keys():
        if name.startswith(_PREDICTOR_LAYERS):
            others[name] = torch.zeros_like(own[name]) if name.endswith(_WRITES) else own[name]
    if _shapes(own) != _shapes(others):
        raise PretrainError(f"The talker of {other} has other sizes, so their weights have no mean.")
    means = {name: _mean(one, others[name], share) for name, one in own.items()}
    save_file(means, folder / WEIGHTS_FILE, metadata={"format": "pt"})


def _average_decoders(folder: Path, other: Path) -> None:
    """Make the weights of the codec's decoder the means of its own and those of another checkpoint.

    Codebooks and encoder are not averaged: they have to be the same, or the decoders were given other codes.
    """
    file = f"{SPEECH_TOKENIZER_FOLDER}/{WEIGHTS_FILE}"
    own, others = _weights_of_both(folder, other, file)
    if _shapes(own) != _shapes(others):
        raise PretrainError(f"The speech tokenizer of {other} has other sizes, so their decoders have no mean.")
    is_learnt = {name: name.startswith("decoder.") and "codebook" not in name for name in own}
    # The other's encoder may have been stored in half precision.
    kept = {name: (one.to(others[name].dtype), others[name]) for name, one in own.items() if not is_learnt[name]}
    if not all(torch.equal(*pair) for pair in kept.values()):
        raise PretrainError(f"The speech tokenizer of {other} writes other codes, so their decoders have no mean.")
    means = {name: _mean(one, others[name], 0.5) if is_learnt[name] else one for name, one in own.items()}
    save_file(means, folder / file, metadata={"format": "pt"})


def _weights_of_both(folder: Path, other: Path, file: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    if not (other / file).is_file():
        raise PretrainError(f"{other} holds no checkpoint to average with.")
    return load_file(folder / file), load_file(other / file)


def _shapes(weights: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: one.shape for name, one in weights.items()}


def _mean(own: Tensor, other: Tensor, share: float) -> Tensor:
    return torch.lerp(own.float(), other.float(), share).to(own.dtype)


def _replace_speaker_encoder(folder: Path, source: Path) -> None:
    """Give the checkpoint the speaker encoder of a run, or of another checkpoint of the same sizes."""
    encoder = SpeakerEncoder(read_config(folder).speaker_encoder)
    if _is_packed(source):
        read_checkpoint(source, {WEIGHTS_PREFIX: encoder})
    else:
        read_networks(source, SpeakerJob.model_validate(read_job(source)), {"speaker_encoder": encoder})
    weights = load_file(folder / WEIGHTS_FILE)
    for key, tensor in encoder.state_dict().items():
        name = WEIGHTS_PREFIX + key
        weights[name] = tensor.to(weights[name].dtype)
    save_file(weights, folder / WEIGHTS_FILE, metadata={"format": "pt"})


def _round_codec(folder: Path, speech: list[Path], report: Callable[[str], None]) -> str:
    """Store the speech tokenizer, or its decoder, in half precision if that is inaudible; returns how it is stored."""
    tokenizer = VoiceModel.load(folder, precision="fp32", device="cpu").speech_tokenizer
    pieces = [_read(path, tokenizer.config.input_sample_rate) for path in speech]
    if not pieces:
        return "float32"
    for part, name, stored in (
        (precision.WHOLE, "speech tokenizer", "bfloat16"),
        (precision.DECODER, "decoder", "float32 (encoder) and bfloat16 (decoder)"),
    ):
        agreement = precision.compare_rounded(tokenizer, pieces, part)
        report(
            f"with its {name} rounded, {100 * agreement.codes_kept:.1f} % of the codes of codebook 0 are kept, and the "
            f"distance to the source changes by {100 * agreement.distance_gained:+.2f} %"
        )
        if agreement.is_close:
            precision.store_rounded(folder / SPEECH_TOKENIZER_FOLDER, part)
            return stored
    return "float32"


def _read(path: Path, sample_rate_hz: int) -> Tensor:
    samples, rate_hz = soundfile.read(path, dtype="float32", frames=-1)
    piece = samples[: _LISTENED_SECONDS * rate_hz]
    resampled = piece if rate_hz == sample_rate_hz else soxr.resample(piece, rate_hz, sample_rate_hz)
    return torch.from_numpy(np.ascontiguousarray(resampled, dtype=np.float32))


def _about(sources: Sources, codec_weights: str) -> dict[str, Any]:
    """Steps and recipes of the runs, for users and for further training."""
    runs = {}
    for name, run in sources.runs.items():
        if _is_packed(run):
            runs[name] = json.loads((run / TRAINING_FOLDER / ABOUT).read_text(encoding="utf-8"))["runs"][name]
            continue
        state = json.loads((run / "state" / "job.json").read_text(encoding="utf-8"))
        runs[name] = {
            "steps_before": steps_before(run),
            "steps_done": state["step"],
            "utterances": state["corpus_size"],
            "recipe": read_job(run),
        }
    about: dict[str, Any] = {"machine": describe_machine(), "codec_weights": codec_weights, "runs": runs}
    if sources.corpus is None and _is_packed(sources.talker):
        told = json.loads((sources.talker / TRAINING_FOLDER / ABOUT).read_text(encoding="utf-8"))
        about |= {"corpus": told["corpus"]} if "corpus" in told else {}
    if sources.corpus is not None:
        about["corpus"] = json.loads((sources.corpus / MANIFEST).read_text(encoding="utf-8"))
        # Recordings are for the codec, other languages for the speaker encoder: those that they were trained on are
        # named, wherever they come from.
        speaker = sources.speaker or sources.talker
        for part, source in {RECORDINGS: sources.tokenizer, OTHER_LANGUAGES: speaker}.items():
            if _is_packed(source):
                parts = about["corpus"]["parts"]
                parts.pop(part, None)
                told = json.loads((source / TRAINING_FOLDER / ABOUT).read_text(encoding="utf-8"))
                if heard := told.get("corpus", {}).get("parts", {}).get(part):
                    parts[part] = heard
    return about


def _settings(checkpoint: Path) -> dict[str, Any]:
    """How it speaks and encodes, in fields of its own."""
    defaults = read_generation_defaults(checkpoint)
    return {
        "guidance_scale": defaults.guidance_scale,
        "matches_timbre": defaults.matches_timbre,
        "fades_last_frame": defaults.fades_last_frame,
        "encodes_whole_frames": read_speech_tokenizer_config(checkpoint).encodes_whole_frames,
    }


def _is_averaged(average: Path | None, source: Path, key: str) -> bool:
    """Whether a part's weights are means, now or since it was packed."""
    if average is not None or not _is_packed(source):
        return average is not None
    return bool(json.loads((source / TRAINING_FOLDER / ABOUT).read_text(encoding="utf-8")).get(key))


def _check(folder: Path) -> int:
    """Load the checkpoint as the app does; returns its number of parameters."""
    model = VoiceModel.load(folder, precision="fp32", device="cpu")
    if model.speaker_encoder is None:
        raise PretrainError("The talker has no speaker encoder, so nothing could be cloned with it.")
    networks = (model.talker, model.speaker_encoder, model.speech_tokenizer)
    return sum(parameter.numel() for network in networks for parameter in network.parameters())
