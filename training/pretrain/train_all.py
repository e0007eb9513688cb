"""`python -m training.pretrain all`: corpus, tokenizer, talker and checkpoint in turn, within a given time."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

from training.model.device import choose_device
from training.pretrain.codec import frame_codes
from training.pretrain.codec.job import TokenizerJob, TokenizerSize
from training.pretrain.codec.training import TokenizerTraining
from training.pretrain.corpus.corpus import PARTS, RECORDINGS, has_part
from training.pretrain.corpus.make_corpus import make_corpus
from training.pretrain.pack.pack import Sources, pack
from training.pretrain.run.training_run import StopRequest, TrainingRun
from training.pretrain.run.training_state import has_state
from training.pretrain.talker.job import TalkerJob, TalkerSize
from training.pretrain.talker.training import TalkerTraining

# Of the whole time: the corpus, and a reserve for encoding, packing and starting. Of the training time: the codec; the
# talker gets the rest.
_CORPUS_SHARE, _RESERVED_SHARE, _CODEC_SHARE = 0.12, 0.1, 0.6
# More steps than there is time for, so that time alone moves the runs through their recipes.
_NUM_PLACES = 100_000
_WARMUP_PLACES = 2_000
_SAVE_EVERY_SECONDS = 60.0
_MIN_SECONDS = 1.0
_HELD_OUT_UTTERANCES = 100

CODEC, TALKER, CHECKPOINT = "tokenizer", "talker", "checkpoint"
_PLAN = "plan.json"
"""File of the seconds for each stage, so that a stopped run continues with the same plan."""

_JOINT = {
    "joint_from": 0.25,
    "codebooks_learn": True,
    "channel_share": 0.15,
    "waveform_weight": 0.0,
    "adversarial": True,
    "num_steps_before_discriminators": 55_000,
    "num_warmup_steps": _WARMUP_PLACES,
}
# As large as a packed checkpoint may be. A wider decoder helps more than larger codebooks, which make the talker's task
# harder, and the code predictor loses more of what is said than the talker does.
_GPU_CODEC = TokenizerSize(num_filters=24, num_layers=3, codebook_size=512, decoder_size=512, num_refinements=4)
_GPU_TALKER = TalkerSize(num_predictor_layers=3, codebook_size=512)


def main(arguments: list[str]) -> int:
    """Make or continue the checkpoint that the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m training.pretrain all", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of all runs; an unfinished one is continued")
    parser.add_argument("--minutes", type=float, default=25.0, help="time for all stages together")
    parser.add_argument("--corpus", type=Path, help="an existing one to use instead of making one")
    parser.add_argument("--hours", type=float, default=20.0, help="of speech to make at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda; a GPU trains larger networks")
    parser.add_argument("--threads", type=int, help="CPU threads (default: all)")
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    device = choose_device(options.device)
    codec, talker = jobs_for(device, seed=options.seed, out=options.out)
    began = time.monotonic()
    corpus = options.corpus
    if corpus is None:
        corpus = options.out / "corpus"
        if not has_state(options.out / CODEC):
            make_corpus(
                corpus,
                hours=options.hours,
                seed=options.seed,
                num_threads=options.threads or os.cpu_count() or 1,
                num_held_out=_HELD_OUT_UTTERANCES,
                until=began + 60 * options.minutes * _CORPUS_SHARE,
                report=_print,
            )
    seconds = 60 * options.minutes - (time.monotonic() - began)
    return make_checkpoint(corpus, options.out, codec, talker, device=device, seconds=seconds, report=_print)


def jobs_for(device: torch.device, *, seed: int, out: Path) -> tuple[TokenizerJob, TalkerJob]:
    """The recipes of both stages, to be run with a budget of time; a run in `out` is gone on with as it was begun."""
    is_gpu = device.type == "cuda"
    size = _GPU_CODEC if is_gpu else TokenizerSize()
    codec = TokenizerJob.of_length(_NUM_PLACES, seed=seed, size=size, **_JOINT)
    talker = TalkerJob(
        seed=seed,
        num_steps=_NUM_PLACES,
        num_warmup_steps=_WARMUP_PLACES,
        size=_GPU_TALKER if is_gpu else TalkerSize(codebook_size=size.codebook_size),
        references_per_speaker=4,
        unconditional_share=TalkerJob.share_for(out / TALKER, None),
    )
    return (codec.for_gpu(), talker.for_gpu()) if is_gpu else (codec, talker)


def make_checkpoint(
    corpus: Path,
    out: Path,
    codec_job: TokenizerJob,
    talker_job: TalkerJob,
    *,
    device: torch.device,
    seconds: float,
    report: Callable[[str], None],
) -> int:
    """Train both stages and pack them in `out`/checkpoint within this many seconds.

    Returns 3 if it was stopped: its state is saved, and the same call continues with the time left.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    codec_run, talker_run, plan_file = out / CODEC, out / TALKER, out / _PLAN
    began = time.monotonic()
    recorded = (RECORDINGS,) if has_part(corpus, RECORDINGS) else ()
    frame_codes.analyse(corpus, codec_run, codec_job, (*PARTS, *recorded), report, device=device)
    if plan_file.is_file():
        plan = json.loads(plan_file.read_text(encoding="utf-8"))
    else:
        left = max(_MIN_SECONDS, seconds * (1 - _RESERVED_SHARE) - (time.monotonic() - began))
        plan = {CODEC: _CODEC_SHARE * left, TALKER: (1 - _CODEC_SHARE) * left}
        plan_file.write_text(json.dumps(plan) + "\n", encoding="utf-8")
    stop = StopRequest()
    with stop:
        codec = TokenizerTraining(codec_job, corpus, codec_run, device=device, compiled=False, report=report)
        if not _train(codec, plan[CODEC], stop):
            return 3
        # Encodes the corpus first, which takes part of the talker's time.
        talker = TalkerTraining(talker_job, corpus, codec_run, talker_run, device=device, report=report)
        if not has_state(talker_run):
            left = seconds * (1 - _RESERVED_SHARE) - (time.monotonic() - began)
            plan[TALKER] = max(_MIN_SECONDS, min(plan[TALKER], left))
            plan_file.write_text(json.dumps(plan) + "\n", encoding="utf-8")
        if not _train(talker, plan[TALKER], stop):
            return 3
    pack(Sources(tokenizer=codec_run, talker=talker_run, corpus=corpus), out / CHECKPOINT, report=report)
    return 0


def _train(training: TrainingRun, budget_seconds: float, stop: StopRequest) -> bool:
    finished = training.run(
        save_every_seconds=_SAVE_EVERY_SECONDS, should_stop=lambda: stop.was_asked, budget_seconds=budget_seconds
    )
    if not finished:
        training.report(f"stopped after step {training.step}; the same command continues")
    return finished


def _print(line: str) -> None:
    print(line, flush=True)
