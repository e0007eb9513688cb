"""`app.py say`: speak a text in a stored voice."""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from pathlib import Path

from backend.audio.formats import find_format
from backend.audio.speed import check_speed
from backend.commands.checks import check_device, check_language_of
from backend.commands.loading import loading
from backend.commands.output import check_output, doubts_of
from backend.errors import OutputInvalid
from backend.serving.speech.text_check import check_text
from backend.settings import Settings
from backend.store.home import Home
from backend.voices.registry import Voices
from backend.voices.voice import Voice

NUM_SLOTS = 4
"""Sentences of a long text spoken at once."""


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Do it; EncoreError carries anything a person can put right."""
    # What can be wrong without a model is found out before one is loaded, and before PyTorch is.
    check_text(arguments.text)
    check_speed(arguments.speed)
    check_device(arguments.device)
    home = Home(settings.home_folder)
    voice = Voices(home).get(arguments.voice)
    output: Path = arguments.output or Path(f"{voice.name}.wav")
    find_format(output.suffix.removeprefix("."))
    check_output(output)
    if arguments.style:
        voice.style(arguments.style)
    if voice.kind != "fine-tuned":
        check_language_of(arguments.model, arguments.language or voice.language)
    return _speak(arguments, settings, home, voice, output)


def _speak(arguments: argparse.Namespace, settings: Settings, home: Home, voice: Voice, output: Path) -> int:
    with loading():
        from backend.provenance.signing import FileSigner  # noqa: PLC0415 - see `run`
        from backend.serving.deploy.factory import build_synthesizer  # noqa: PLC0415
        from backend.serving.requests import SynthesisRequest  # noqa: PLC0415
        from backend.serving.settings import EngineSettings  # noqa: PLC0415
        from backend.serving.synthesizer import encoded  # noqa: PLC0415
        from backend.serving.voice_resolver import checkpoint_of  # noqa: PLC0415
        from backend.watermark.installation import mark_of  # noqa: PLC0415

    # A fine-tuned voice needs no base model beside its own checkpoint; one with an adapter needs that which it adapts.
    own = voice.model if voice.adapter is not None else None
    model = (own or str(checkpoint_of(voice, arguments.style))) if voice.kind == "fine-tuned" else arguments.model
    synthesizer = build_synthesizer(
        EngineSettings(
            model=model,
            precision=arguments.precision,
            device=arguments.device,
            num_slots=NUM_SLOTS,
            max_engines=1,
            mark=mark_of(home),
        )
    )
    try:
        request = SynthesisRequest(
            voice=voice,
            text=arguments.text,
            language=arguments.language or voice.language,
            seed=arguments.seed,
            audio_format=find_format(output.suffix.removeprefix(".")),
            speed=arguments.speed,
            is_streamed=False,
            sampling=voice.sampling,
            made_by="command",
            names_speaker=arguments.name_speaker,
            names_text=arguments.name_text,
            style=arguments.style,
        )
        stream = synthesizer.speak(request)
        content = b"".join(encoded(stream, request))
        stream.check_length()
        facts = stream.facts()
        signer = FileSigner(home.folder, settings.signing_cert, settings.signing_key)
        content = signer.sign(content, request.audio_format, facts.statement)
    finally:
        synthesizer.close()
    _write(output, content)
    print(
        f"{output}: {facts.seconds:.2f} s by {voice.name}, real-time factor {facts.real_time_factor:.2f}, "
        f"finished: {facts.finish_reason}, seed {', '.join(dict.fromkeys(map(str, facts.seeds)))}"
    )
    for line in doubts_of(facts):
        print(line, file=sys.stderr)
    return 0


def _write(output: Path, content: bytes) -> None:
    """Put the file in its place in one step."""
    partial = output.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, output)
    except OSError as error:
        raise OutputInvalid(f"{output} cannot be written: {error.strerror}. Choose another place.") from error
    finally:
        partial.unlink(missing_ok=True)
