"""`python -m training.pretrain whisper`: train the transcriber on a corpus, or go on where that stopped."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from training.model.device import choose_device
from training.pretrain.errors import PretrainError
from training.pretrain.loss_curve import write_loss_curve
from training.pretrain.stop_request import StopRequest
from training.pretrain.training_log import read_log
from training.pretrain.training_state import has_state, read_job, read_networks
from training.pretrain.whisper_evaluation import describe, evaluate
from training.pretrain.whisper_export import WHISPER_FILE, export_whisper
from training.pretrain.whisper_job import WhisperJob
from training.pretrain.whisper_network import WhisperNetwork
from training.pretrain.whisper_spelling import Spelling
from training.pretrain.whisper_training import WhisperTraining

CURVE = "losses.svg"
# What the end of the run is judged on, of each held-out part.
_NUM_EVALUATED = 50


def main(arguments: list[str]) -> int:
    """Train, continue, export or evaluate what the command line asks for; returns the exit status."""
    options = _parse(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.evaluate or options.export:
        export_run(options.out)
        if options.evaluate:
            _evaluate(options.corpus, options.out, options.utterances)
        return 0
    device = choose_device(options.device)
    job = WhisperJob(num_steps=options.steps, seed=options.seed)
    if device.type == "cuda":
        job = job.for_gpu()
    return train(
        job,
        options.corpus,
        options.out,
        device=device,
        save_every_seconds=60 * options.save_minutes,
        start=options.start,
        num_evaluated=options.utterances,
    )


def train(
    job: WhisperJob,
    corpus: Path,
    out: Path,
    *,
    device: torch.device,
    save_every_seconds: float,
    start: Path | None = None,
    num_evaluated: int = _NUM_EVALUATED,
) -> int:
    """Train to the end, export and evaluate. A run told to stop saves its state first: status 3."""
    stop = StopRequest()
    training = WhisperTraining(job, corpus, out, device=device, report=_print, start=start)
    with stop:
        finished = training.run(save_every_seconds=save_every_seconds, should_stop=lambda: stop.was_asked)
    if not finished:
        _print(f"stopped after step {training.step}; the same command continues")
        return 3
    write_loss_curve(out / CURVE, list(read_log(out)), title="Transcriber")
    _evaluate(corpus, out, num_evaluated)
    return 0


def export_run(out: Path) -> Path:
    """Write what a run has reached so far as `whisper.pt`; returns its path.

    Raises:
        PretrainError: there is no run.
    """
    if not has_state(out):
        raise PretrainError(f"{out} holds no run of the transcriber.")
    job = WhisperJob.model_validate(read_job(out))
    spelling = Spelling(job.num_text_tokens)
    average = WhisperNetwork(job.size, len(spelling.used))
    step = read_networks(out, job, {"average": average})
    export_whisper(out / WHISPER_FILE, average, spelling, job.size)
    _print(f"wrote {out / WHISPER_FILE} as it is after step {step} of {job.num_steps}")
    return out / WHISPER_FILE


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.pretrain whisper", description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="made by the first stage")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run; an unfinished one is continued")
    parser.add_argument("--steps", type=int, default=WhisperJob().num_steps)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=Path, help="run or whisper.pt whose weights a new run begins with")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--threads", type=int, help="of the processor (all of them)")
    parser.add_argument("--save-minutes", type=float, default=4.0, help="how often the state is saved")
    parser.add_argument("--utterances", type=int, default=_NUM_EVALUATED, help="of each held-out part, to evaluate on")
    parser.add_argument("--export", action="store_true", help="only write whisper.pt of what the run has reached")
    parser.add_argument("--evaluate", action="store_true", help="the same, and measure it by Whisper's own decoding")
    return parser.parse_args(arguments)


def _evaluate(corpus: Path, out: Path, num_utterances: int) -> None:
    _print(describe(evaluate(out / WHISPER_FILE, corpus, num_utterances)))


def _print(line: str) -> None:
    print(line, flush=True)
