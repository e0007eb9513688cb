"""`python -m training.pretrain tokenizer`: train the speech tokenizer on a corpus, or continue that run."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import torch

from training.model.device import choose_device
from training.pretrain.codec.evaluation import describe, evaluate, held_out_speech
from training.pretrain.codec.job import ENCODER_CROPS, TokenizerJob, TokenizerSize
from training.pretrain.codec.network import TokenizerNetwork
from training.pretrain.codec.training import TokenizerTraining
from training.pretrain.codec.write_tokenizer import export_tokenizer, share_codebooks
from training.pretrain.errors import PretrainError
from training.pretrain.run.loss_curve import write_loss_curve
from training.pretrain.run.training_log import read_log
from training.pretrain.run.training_run import train_until_stopped
from training.pretrain.run.training_state import has_state, read_job, read_networks

SPEECH_TOKENIZER_FOLDER = "speech_tokenizer"
CURVE = "losses.svg"
# Utterances of each held-out part in the final evaluation.
_NUM_EVALUATED = 50


def main(arguments: list[str]) -> int:
    """Train, continue or evaluate a run, as the command line says; returns the exit status."""
    options = _parse(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.evaluate:
        _evaluate(options.corpus, options.out)
        return 0
    device = choose_device(options.device)
    job = TokenizerJob.of_length(
        options.steps,
        seed=options.seed,
        adversarial=options.adversarial,
        discriminated_ratio=options.discriminated_ratio,
        decoder_only=options.decoder_only,
        encoder_only=options.encoder_only,
        bfloat16=options.bf16,
        size={
            "num_layers": options.layers,
            "num_encoder_layers": options.encoder_layers,
            "filter_bank": options.filter_bank,
            "codebook_size": options.codebook_size,
            "decoder_size": options.decoder_size,
            "num_filters": options.filters,
            "num_refinements": options.refinements,
            "discriminator_width": options.discriminator_width,
        },
        **_discriminators(options),
        **({"crops": ENCODER_CROPS} if options.encoder_only else {}),
        **_altered(options),
        joint_from=options.joint_from,
        analysed_share=options.analysed_share,
        channel_share=options.channel_share,
        codebooks_learn=options.codebooks_learn,
        codebooks_stay=options.codebooks_stay,
        waveform_weight=options.waveform_weight,
        long_windows_below_hz=options.long_windows_below,
        periodicity_weight=options.periodicity_weight,
        repetition_weight=options.repetition_weight,
        deepened_share=options.deepened_share,
        muon_learning_rate=options.learning_rate,
        peak_learning_rate=options.rest_learning_rate,
    )
    if device.type == "cuda":
        job = job.for_gpu()
        # TensorFloat-32 suffices here. Autocast to bfloat16 gains nothing: steps this small are bound by launches.
        torch.set_float32_matmul_precision("high")
    return train(
        job,
        options.corpus,
        options.out,
        device=device,
        compiled=options.compile,
        save_every_seconds=60 * options.save_minutes,
        start=options.start,
        minutes=options.minutes,
    )


def train(
    job: TokenizerJob,
    corpus: Path,
    out: Path,
    *,
    device: torch.device,
    compiled: bool,
    save_every_seconds: float,
    start: Path | None = None,
    minutes: float | None = None,
) -> int:
    """Train to the end, export and evaluate. A run stopped by SIGTERM or Ctrl-C saves its state first: status 3.

    With `minutes`, the run ends after that time even if steps are left.
    """
    training = TokenizerTraining(job, corpus, out, device=device, compiled=compiled, report=_print, start=start)
    with warnings.catch_warnings():
        # From autocast: the transformers' norms have float32 weights and are not fused then. They are few and small.
        warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")
        finished = train_until_stopped(training, save_every_seconds=save_every_seconds, minutes=minutes)
    if not finished:
        return 3
    export_tokenizer(out / SPEECH_TOKENIZER_FOLDER, training.network.tokenizer)
    write_loss_curve(out / CURVE, list(read_log(out)), title="Speech tokenizer")
    _evaluate(corpus, out)
    return 0


def _altered(options: argparse.Namespace) -> dict[str, float]:
    if options.altered_share is None:
        return {}
    is_freely_encoded = options.codebooks_learn or options.codebooks_stay
    return {"learned_altered_share" if is_freely_encoded else "altered_share": options.altered_share}


def _discriminators(options: argparse.Namespace) -> dict[str, int]:
    if options.adversarial_from is None:
        return {}
    if not 0 <= options.adversarial_from <= 1:
        raise PretrainError(f"--adversarial-from is {options.adversarial_from}; it is a share of the run, from 0 to 1.")
    return {"num_steps_before_discriminators": int(options.adversarial_from * options.steps)}


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.pretrain tokenizer", description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="made by the previous stage")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run; an unfinished one is continued")
    parser.add_argument("--start", type=Path, help="speech_tokenizer folder whose weights a new run begins with")
    parser.add_argument("--steps", type=int, default=TokenizerJob().num_steps)
    parser.add_argument("--minutes", type=float, help="end the run after this time even if steps are left")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--threads", type=int, help="CPU threads (default: all)")
    _add_learning_rates(parser)
    parser.add_argument("--adversarial", action="store_true", help="sharper sound at twice the cost")
    parser.add_argument(
        "--adversarial-from", type=float, help="with --adversarial: share of the run after which it begins (an eighth)"
    )
    width = TokenizerSize().discriminator_width
    parser.add_argument("--discriminator-width", type=int, default=width, help="channels of the discriminators")
    ratio = TokenizerJob().discriminated_ratio
    parser.add_argument("--discriminated-ratio", type=float, default=ratio, help="share of the crops they judge")
    # The former spelling.
    parser.add_argument(
        "--adversary-width", dest="discriminator_width", type=int, default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    parser.add_argument("--decoder-only", action="store_true", help="with --start: do not train the encoder")
    _add_encoder_options(parser)
    parser.add_argument("--decoder-size", type=int, default=TokenizerSize().decoder_size, help="channels of its input")
    _add_loss_options(parser)
    size = TokenizerSize()
    parser.add_argument("--filters", type=int, default=size.num_filters, help="channels of the encoder's input")
    parser.add_argument("--layers", type=int, default=size.num_layers, help="of each transformer")
    parser.add_argument("--codebook-size", type=int, default=size.codebook_size, help="entries of each codebook")
    parser.add_argument(
        "--refinements",
        type=int,
        default=size.num_refinements,
        help="more blocks at the decoder's lower rate",
    )
    _add_joint_options(parser)
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16: for processors with AMX, and GPUs")
    parser.add_argument("--compile", action="store_true", help="slower start, faster steps")
    parser.add_argument("--save-minutes", type=float, default=5.0, help="how often the state is saved")
    parser.add_argument("--evaluate", action="store_true", help="only evaluate the saved state of the run")
    return parser.parse_args(arguments)


def _add_learning_rates(parser: argparse.ArgumentParser) -> None:
    job = TokenizerJob()
    rate, rest = job.muon_learning_rate, job.peak_learning_rate
    parser.add_argument("--learning-rate", type=float, default=rate, help="Muon's; a third is enough with --start")
    parser.add_argument("--rest-learning-rate", type=float, default=rest, help="AdamW's, of what Muon does not train")


def _add_loss_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--waveform-weight", type=float, default=TokenizerJob().waveform_weight, help="0 for adversarial training"
    )
    parser.add_argument(
        "--long-windows-below",
        type=float,
        default=0.0,
        metavar="HZ",
        help="voices below this pitch are judged in long windows only, where they have one (0; 150 suits)",
    )
    parser.add_argument(
        "--periodicity-weight", type=float, default=0.0, help="of the pitch that decoded speech lacks (0; 1 suits)"
    )
    parser.add_argument(
        "--repetition-weight", type=float, default=0.0, help="of what decoded noise repeats in every frame (0)"
    )


def _add_joint_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--joint-from", type=float, help="share of the run after which encoder and decoder are trained jointly"
    )
    parser.add_argument(
        "--analysed-share", type=float, default=0.0, help="with --joint-from: share of crops decoded from the analysis"
    )
    parser.add_argument(
        "--channel-share",
        type=float,
        default=0.0,
        help="with --joint-from: share of crops over telephones, in rooms",
    )
    parser.add_argument(
        "--codebooks-learn", action="store_true", help="with --joint-from: train them; talkers need --start-codes"
    )
    parser.add_argument(
        "--codebooks-stay",
        action="store_true",
        help="with --joint-from and --start, after a run with --codebooks-learn: train all but them",
    )


def _add_encoder_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--encoder-only", action="store_true", help="with --start: train the encoder to imitate the analysis, alone"
    )
    parser.add_argument(
        "--altered-share",
        type=float,
        help="with --encoder-only, --decoder-only (.7), --codebooks-learn or -stay (none): of the speech",
    )
    parser.add_argument(
        "--deepened-share", type=float, default=0.0, help="of altered speech that is made deep (0; .6 suits)"
    )
    parser.add_argument("--encoder-layers", type=int, help="of the encoder's transformer, if not as many")
    parser.add_argument(
        "--filter-bank", action="store_true", help="the encoder's convolutions measure as the analysis does, and stay"
    )


def _evaluate(corpus: Path, out: Path) -> None:
    if not has_state(out):
        raise PretrainError(f"{out} holds no run to evaluate.")
    job = TokenizerJob.model_validate(read_job(out))
    network = TokenizerNetwork(job)
    step = read_networks(out, job, {"network": network})
    share_codebooks(network.tokenizer)
    evaluation = evaluate(network.tokenizer, held_out_speech(corpus, _NUM_EVALUATED))
    _print(f"after step {step}, {describe(evaluation, job.size.codebook_size)}")


def _print(line: str) -> None:
    print(line, flush=True)
