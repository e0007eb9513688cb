"""`python -m training.pretrain speaker`: train a checkpoint's speaker encoder alone, or continue that run."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from training.model.device import choose_device
from training.pretrain.run.loss_curve import write_loss_curve
from training.pretrain.run.training_log import read_log
from training.pretrain.run.training_run import train_until_stopped
from training.pretrain.speaker.job import SpeakerJob
from training.pretrain.speaker.training import SpeakerTraining

CURVE = "losses.svg"


def main(arguments: list[str]) -> int:
    """Train or continue a run, as the command line says; returns the exit status."""
    options = _parse(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    job = SpeakerJob.of_options(
        num_steps=options.steps, num_utterances=options.utterances, min_gain=options.min_gain, seed=options.seed
    )
    training = SpeakerTraining(
        job,
        options.corpus,
        options.start,
        options.out,
        device=choose_device(options.device),
        report=_print,
        space_of=options.space,
    )
    if not train_until_stopped(training, save_every_seconds=60 * options.save_minutes, minutes=options.minutes):
        return 3
    write_loss_curve(options.out / CURVE, list(read_log(options.out)), title="Speaker encoder")
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    recipe = SpeakerJob.model_fields
    parser = argparse.ArgumentParser(prog="python -m training.pretrain speaker", description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="made by the first stage")
    parser.add_argument("--start", type=Path, required=True, help="checkpoint whose speaker encoder is trained")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run; an unfinished one is continued")
    parser.add_argument(
        "--space",
        type=Path,
        help="earlier run, with whose encoder the talker was trained on: voices stay in their places",
    )
    parser.add_argument("--steps", type=int, default=recipe["num_steps"].default)
    parser.add_argument("--minutes", type=float, help="end the run after this time even if steps are left")
    parser.add_argument(
        "--utterances", type=int, default=recipe["num_utterances"].default, help="to alter; 600 MB for 10,000"
    )
    parser.add_argument(
        "--min-gain",
        type=float,
        default=recipe["min_gain"].default,
        help="of differences that the corpus's speakers do not have; 0 if the talker will not be trained on",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--threads", type=int, help="CPU threads (default: all)")
    parser.add_argument("--save-minutes", type=float, default=5.0, help="how often the state is saved")
    return parser.parse_args(arguments)


def _print(line: str) -> None:
    print(line, flush=True)
