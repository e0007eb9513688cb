"""Make a voice of a dataset by fine-tuning, on this machine or a cluster."""

from __future__ import annotations

import argparse

from backend.commands.options.shared import (
    add_consent_options,
    add_model_option,
    add_synthetic_option,
    whole_number,
)
from backend.settings import Settings
from training.job import BATCHINGS, METHOD_CHOICES, PRESETS, STRATEGIES
from training.model.device_names import DEVICES
from training.model.lora_config import ADAPTED_LAYERS


def add_options(parser: argparse.ArgumentParser, settings: Settings) -> None:
    """Describe the command's options."""
    parser.add_argument(
        "datasets",
        nargs="+",
        metavar="DATASET",
        help="name of a dataset, or its folder; several are several speakers of one run, and a voice is made of each",
    )
    parser.add_argument(
        "--voice",
        action="append",
        default=[],
        metavar="NAME",
        help="name of the new voice (default: that of its dataset); of several speakers, once for each, in their order",
    )
    add_training_options(parser, settings)
    parser.add_argument("--detach", action="store_true", help="return at once; `runs show` shows its progress")
    parser.set_defaults(action="finetune.run")


def add_training_options(parser: argparse.ArgumentParser, settings: Settings) -> None:
    """Options of every command that trains."""
    add_model_option(parser, settings)
    parser.add_argument("--preset", default="standard", choices=PRESETS, help="(default: %(default)s)")
    parser.add_argument(
        "--method",
        default="auto",
        choices=METHOD_CHOICES,
        help="full trains all weights, lora an adapter of a few megabytes; auto trains an adapter where all weights do "
        "not fit into memory (default: %(default)s)",
    )
    parser.add_argument("--lora-rank", type=whole_number(1), metavar="N", help="width of the adapter (default: 16)")
    parser.add_argument("--lora-alpha", type=float, metavar="N", help="its weight, times the rank (default: 32)")
    parser.add_argument("--lora-dropout", type=float, metavar="SHARE", help="of its inputs (default: 0)")
    parser.add_argument(
        "--lora-layers", nargs="+", choices=ADAPTED_LAYERS, help="which layers have one (default: attention mlp)"
    )
    parser.add_argument("--strategy", choices=STRATEGIES, help="how workers share the model (default: ddp)")
    parser.add_argument(
        "--batching",
        choices=BATCHINGS,
        help="how clips share a micro-batch: packed without padding (default), or bucketed by length with it",
    )
    parser.add_argument(
        "--workers", type=whole_number(1), default=1, help="how many train together (default: %(default)s)"
    )
    parser.add_argument(
        "--min-workers",
        type=whole_number(1),
        metavar="N",
        help="begin with so many if a cluster has no more, and change the number as it shrinks and grows",
    )
    parser.add_argument(
        "--max-failures", type=whole_number(0), metavar="N", help="lost workers that the run goes on after (default: 3)"
    )
    parser.add_argument("--device", choices=DEVICES, help="(default: auto)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="any other option of the job, such as learning_rate=1e-5; may be repeated",
    )
    add_consent_options(parser)
    add_synthetic_option(parser, "learn also from")
