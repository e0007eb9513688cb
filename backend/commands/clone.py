"""`app.py clone`: speak a text in the voice of a recording whose speaker has agreed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backend.audio.writing import WavWriter
from backend.commands.options import (
    add_consent_options,
    add_model_options,
    add_seed_option,
    check_output,
    required_consent_of,
)
from backend.commands.progress import Progress
from backend.serving.speech.speech import Speech, check_text
from backend.settings import Settings
from backend.store.artifacts import write_whole
from backend.studio import LoadedModel, Studio
from backend.takes.take import facts_of
from training.model.decoding.take_request import TakeRequest, VoicePrompt
from training.model.hub.hub import DownloadProgress


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
    add_seed_option(parser)
    parser.add_argument(
        "--stream", action="store_true", help="decode in small chunks as for a listener, without a second try"
    )
    add_consent_options(parser)
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE.wav", help="WAV file to write; FILE.wav.json says how"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Do it; EncoreError carries anything a person can put right."""
    output: Path = arguments.output
    studio = Studio()
    # What can be wrong without a model is found out before one is downloaded.
    consent = required_consent_of(arguments)
    check_output(output, suffix=".wav")
    check_text(arguments.text)
    studio.examine(arguments.reference)
    with Progress(unit="B") as download:

        def show(progress: DownloadProgress) -> None:
            download.show(f"Downloading {progress.file}", progress.bytes_done, progress.bytes_total or None)

        loaded = studio.load_model(
            arguments.model, precision=arguments.precision, device=arguments.device, progress=show
        )
    voice = studio.clone(loaded, arguments.reference, arguments.transcript)
    request = TakeRequest(text=arguments.text, voice=voice, language=arguments.language, seed=arguments.seed)
    speech = studio.speak(loaded, request, streaming=arguments.stream)
    with WavWriter(output, speech.sample_rate) as writer:
        for chunk in followed(speech):
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


def followed(speech: Speech) -> Iterator[NDArray[np.float32]]:
    """Chunks of a speech, with a progress bar on a terminal once it takes a while."""
    with Progress(unit="piece") as bar:
        for chunk in speech:
            progress = speech.progress()
            bar.show(f"{progress.seconds_spoken:.1f} s spoken", progress.pieces_done, progress.num_pieces)
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
