"""`app.py clone`: speak a text in the voice of a recording whose speaker has agreed."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from backend.audio.writing import WavWriter
from backend.commands.consent_options import add_consent_options, required_consent_of
from backend.errors import OutputRefused
from backend.serving.speech.speech import Speech, check_text
from backend.settings import Settings
from backend.store.artifacts import write_whole
from backend.studio import LoadedModel, Studio
from backend.takes.take import facts_of
from training.model.decoding.take_request import TakeRequest, VoicePrompt
from training.model.hub.hub import DownloadProgress

QUIET_SECONDS = 2.0
"""Anything that takes longer than this says how far it has come."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    """Describe the command's options."""
    parser = commands.add_parser("clone", help="speak a text in the voice of a recording", description=__doc__)
    add_model_options(parser, settings)
    parser.add_argument(
        "--reference", type=Path, required=True, metavar="FILE", help="recording of the voice, 1 s to 5 min"
    )
    parser.add_argument(
        "--transcript", metavar="TEXT", help="what the recording says, word for word: clones in context"
    )
    parser.add_argument("--text", required=True, help="what to say")
    parser.add_argument("--language", default="auto", help="language of the text (default: auto)")
    parser.add_argument("--seed", type=_seed, help="decides the take; without one a runaway take is tried again")
    parser.add_argument(
        "--stream", action="store_true", help="decode in small chunks as for a listener, without a second try"
    )
    add_consent_options(parser)
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE.wav", help="WAV file to write; FILE.wav.json says how"
    )
    parser.set_defaults(run=run)


def add_model_options(parser: argparse.ArgumentParser, settings: Settings) -> None:
    """Options of every command that loads a model."""
    parser.add_argument(
        "--model", default=settings.model, help="mini, a checkpoint folder or a hub id (default: %(default)s)"
    )
    parser.add_argument("--precision", default=settings.precision, choices=("auto", "fp32", "bf16", "int8"))
    parser.add_argument("--device", default=settings.device, help="auto, cpu or cuda (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Do it; EncoreError carries anything a person can put right."""
    output: Path = arguments.output
    studio = Studio()
    # What can be wrong without a model is found out before one is downloaded.
    consent = required_consent_of(arguments)
    check_output(output)
    check_text(arguments.text)
    studio.examine(arguments.reference)
    with closing(ProgressLine(sys.stderr)) as download:
        loaded = studio.load_model(
            arguments.model, precision=arguments.precision, device=arguments.device, progress=download.show_download
        )
    voice = studio.clone(loaded, arguments.reference, arguments.transcript)
    request = TakeRequest(text=arguments.text, voice=voice, language=arguments.language, seed=arguments.seed)
    speech = studio.speak(loaded, request, streaming=arguments.stream)
    with WavWriter(output, speech.sample_rate) as writer:
        for chunk in followed(speech, ProgressLine(sys.stderr)):
            writer.write(chunk)
    facts = facts_of(
        speech,
        request,
        made_by="command",
        voice=arguments.reference.name,
        model_name=loaded.name,
        default_sampling=loaded.model.default_sampling,
        consent=consent,
    )
    write_whole(output.with_name(f"{output.name}.json"), facts.model_dump_json(indent=2).encode())
    print(describe(loaded, voice, speech, output))
    return 0


def check_output(output: Path) -> None:
    """Refuse a destination before minutes are spent on its content. Raises OutputRefused."""
    if output.is_dir():
        raise OutputRefused(f"{output} is a folder. Name a file to write, such as {output / 'take.wav'}.")
    if output.suffix.lower() != ".wav":
        raise OutputRefused(f"{output} is not named *.wav, and WAV is what is written. Rename the output.")
    if not output.absolute().parent.is_dir():
        raise OutputRefused(f"The folder {output.absolute().parent} does not exist. Create it first.")


def followed(speech: Speech, line: ProgressLine) -> Iterator[NDArray[np.float32]]:
    """Chunks of a speech, with a progress line on a terminal once it takes a while."""
    with closing(line):
        for chunk in speech:
            line.show_speech(speech)
            yield chunk


def describe(loaded: LoadedModel, voice: VoicePrompt, speech: Speech, output: Path) -> str:
    """The result in one line per fact."""
    how = "in context" if voice.is_in_context else "from the speaker embedding"
    seeds = ", ".join(dict.fromkeys(str(seed) for seed in speech.seeds))
    return "\n".join(
        (
            f"{output}: {speech.seconds:.2f} s, cloned {how} with {loaded.name} ({loaded.model.precision})",
            f"real-time factor {speech.real_time_factor:.2f}, first audio after {speech.seconds_to_first_audio:.2f} s",
            f"finished: {speech.finish_reason}, {len(speech.pieces)} piece(s), seed {seeds}",
        )
    )


class ProgressLine:
    """One line on a terminal that is written over; nothing when the output is not a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._started = time.monotonic()
        self._width = 0
        self._bytes_before: int | None = None

    def show_download(self, progress: DownloadProgress) -> None:
        """Bytes of a download, with the time left."""
        elapsed = time.monotonic() - self._started
        total = progress.bytes_total
        # What an earlier download left behind says nothing about the speed of this one.
        if self._bytes_before is None:
            self._bytes_before = progress.bytes_done
        fetched = progress.bytes_done - self._bytes_before
        left = ""
        if total and fetched > 0:
            seconds = elapsed * (total - progress.bytes_done) / fetched
            left = f" of {total / 1e6:.0f} MB, about {seconds:.0f} s left"
        self._show(f"Downloading {progress.file}: {progress.bytes_done / 1e6:.0f}{left}")

    def show_speech(self, speech: Speech) -> None:
        """Speech made so far, with the time left once a piece is done."""
        progress = speech.progress()
        left = f", about {progress.seconds_left:.0f} s left" if progress.share_done else ""
        self._show(
            f"{progress.seconds_spoken:.1f} s spoken, piece {min(progress.pieces_done + 1, progress.num_pieces)} of "
            f"{progress.num_pieces}{left}"
        )

    def clear(self) -> None:
        """Take the line away."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0

    close = clear

    def _show(self, text: str) -> None:
        if not self._stream.isatty() or time.monotonic() - self._started < QUIET_SECONDS:
            return
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)


def _seed(value: str) -> int:
    if not value.isdecimal() or int(value) >= 2**63:
        raise argparse.ArgumentTypeError(f"{value!r} is no seed; use a whole number from 0 to {2**63 - 1}")
    return int(value)
