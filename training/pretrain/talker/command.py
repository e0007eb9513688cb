"""`python -m training.pretrain talker`: train talker and speaker encoder, or continue that run."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from training.model.checkpoint.names import SPEECH_TOKENIZER_FOLDER
from training.model.checkpoint.reading import read_speech_tokenizer_config
from training.model.device import choose_device
from training.pretrain.codec.job import TokenizerJob
from training.pretrain.errors import PretrainError
from training.pretrain.run.loss_curve import write_loss_curve
from training.pretrain.run.training_log import read_log
from training.pretrain.run.training_run import train_until_stopped
from training.pretrain.run.training_state import has_state, read_job
from training.pretrain.talker.job import UNCONDITIONAL_SHARE, TalkerJob, TalkerSize
from training.pretrain.talker.training import TalkerTraining
from training.pretrain.talker.write_checkpoint import export_checkpoint

EXPORT_FOLDER = "export"
CURVE = "losses.svg"


_RECIPE_OPTIONS = {
    "in_context_ratio": "share of the batches that continue references",
    "guidance_weight": "of showing attention where in the text it is, at first; little is enough with --start",
    "misheard_share": "of what it hears of the past, at most: exchanged, so that it learns to go on from mistakes",
    "blended_share": "of what continues a reference: with an embedding that is partly another's, so that it listens",
    "speaker_encoder_rate": "of the learning rates, for the speaker encoder: less where it was trained alone",
    "pace": "of what it learns to say, relative to the recordings (0.93: slower by 7 %%); takes hurry otherwise",
}
"""Fields of the recipe that are options as they are, and what they say."""


def main(arguments: list[str]) -> int:
    """Train, continue or export a run, as the command line says; returns the exit status."""
    options = _parse(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.start_codes is not None and options.start is None:
        raise PretrainError("--start-codes says which codes a talker was trained on: name the talker with --start.")
    if options.keep_speaker_encoder and options.speaker_encoder_rate != 1:
        raise PretrainError("A speaker encoder that is kept has no rate: leave out --speaker-encoder-rate.")
    if not options.export:
        device = choose_device(options.device)
        job = TalkerJob.of_length(
            options.steps,
            seed=options.seed,
            size={
                "codebook_size": _codebook_size(options.tokenizer),
                "num_predictor_layers": options.predictor_layers,
            },
            in_context_ratio=options.in_context_ratio,
            references_per_speaker=options.references_per_speaker,
            guidance_weight=options.guidance_weight,
            misheard_share=options.misheard_share,
            blended_share=options.blended_share,
            speaker_encoder_rate=options.speaker_encoder_rate,
            pace=options.pace,
            unconditional_share=TalkerJob.share_for(options.out, options.unconditional_share),
            keeps_speaker_encoder=options.keep_speaker_encoder,
        ).at_learning_rate(options.learning_rate)
        training = TalkerTraining(
            job.for_gpu() if device.type == "cuda" else job,
            options.corpus,
            options.tokenizer,
            options.out,
            device=device,
            report=_print,
            start=options.start,
            start_codes=options.start_codes,
        )
        if not train_until_stopped(training, save_every_seconds=60 * options.save_minutes, minutes=options.minutes):
            return 3
        write_loss_curve(options.out / CURVE, list(read_log(options.out)), title="Talker")
    talker_steps, tokenizer_steps = export_checkpoint(options.out, options.tokenizer, options.out / EXPORT_FOLDER)
    _print(f"exported the talker after {talker_steps} and the speech tokenizer after {tokenizer_steps} steps")
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.pretrain talker", description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="made by the first stage")
    parser.add_argument(
        "--tokenizer",
        type=Path,
        required=True,
        help="run of the previous stage, which may still be training, or a checkpoint whose codec is to stay",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the run; an unfinished one is continued")
    parser.add_argument("--start", type=Path, help="run or checkpoint folder whose weights a new run begins with")
    parser.add_argument(
        "--start-codes",
        type=Path,
        help="with --start: run of the tokenizer with this corpus in the codes it was trained on, if they are others",
    )
    parser.add_argument("--steps", type=int, default=TalkerJob().num_steps)
    parser.add_argument("--minutes", type=float, help="end the run after this time even if steps are left")
    rate = TalkerJob().muon_learning_rate
    parser.add_argument("--learning-rate", type=float, default=rate, help="Muon's; half is enough with --start")
    parser.add_argument(
        "--predictor-layers",
        type=int,
        default=TalkerSize().num_predictor_layers,
        help="of the code predictor; it may have more than the checkpoint that it starts from",
    )
    parser.add_argument(
        "--references-per-speaker",
        type=int,
        default=TalkerJob().references_per_speaker,
        help="to encode and continue",
    )
    for name, purpose in _RECIPE_OPTIONS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=getattr(TalkerJob(), name), help=purpose)
    parser.add_argument(
        "--unconditional-share",
        type=float,
        help=f"of the utterances: learnt without text and speaker, so that takes can be guided ({UNCONDITIONAL_SHARE})",
    )
    parser.add_argument(
        "--keep-speaker-encoder", action="store_true", help="with --start: its speaker encoder was trained alone"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--threads", type=int, help="CPU threads (default: all)")
    parser.add_argument("--save-minutes", type=float, default=5.0, help="how often the state is saved")
    parser.add_argument("--export", action="store_true", help="only export the saved states of the runs")
    return parser.parse_args(arguments)


def _codebook_size(tokenizer: Path) -> int:
    """Of a run's speech tokenizer or a checkpoint's; the recipe's as long as there is neither."""
    if has_state(tokenizer):
        return TokenizerJob.model_validate(read_job(tokenizer)).size.codebook_size
    if (tokenizer / SPEECH_TOKENIZER_FOLDER).is_dir():
        return read_speech_tokenizer_config(tokenizer).decoder.codebook_size
    return TokenizerJob().size.codebook_size


def _print(line: str) -> None:
    print(line, flush=True)
