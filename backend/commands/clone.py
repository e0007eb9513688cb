"""`app.py clone`: speak a text in the voice of a recording whose speaker has agreed."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from backend.audio.quality import Concern
from backend.commands.checks import check_device, check_language_of, check_recordings
from backend.commands.loading import loading
from backend.commands.options.shared import consent_of
from backend.commands.output import check_output, doubts_of
from backend.commands.progress import Progress
from backend.serving.speech.text_check import check_text
from backend.settings import Settings
from backend.voices.consent import Consent, bound_to_recording
from backend.voices.reference import examine_reference

if TYPE_CHECKING:
    from backend.serving.synthesizer import Synthesizer
    from backend.takes.take import TakeFacts
    from training.model.hub.hub import DownloadProgress


_TRANSCRIPT_UNUSED = (
    "It is not sure that the transcript is what the recording says, so the voice was cloned from its sound alone. "
    "Correct the transcript, or use a recording of less than ten seconds."
)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Do it; EncoreError carries anything a person can put right."""
    # What can be wrong without a model is found out before one is downloaded, and before PyTorch is loaded.
    consent = consent_of(arguments)
    check_output(arguments.output, suffix=".wav")
    check_text(arguments.text)
    check_recordings([arguments.reference])
    check_device(arguments.device)
    check_language_of(arguments.model, arguments.language)
    if Concern.MADE_BY_ENCORE in examine_reference(arguments.reference).concerns:
        print(f"{arguments.reference.name} was made by Encore: this clones a copy.", file=sys.stderr)
    return _speak(arguments, settings, consent)


def _speak(arguments: argparse.Namespace, settings: Settings, consent: Consent) -> int:
    with loading():
        from backend.audio.writing import WavWriter  # noqa: PLC0415 - see `run`
        from backend.serving.requests import Reference, SynthesisRequest  # noqa: PLC0415
        from backend.store.artifacts import write_whole  # noqa: PLC0415
        from backend.studio import Studio  # noqa: PLC0415

    output: Path = arguments.output
    studio = Studio(settings)
    with Progress(unit="B") as download:

        def show(progress: DownloadProgress) -> None:
            download.show(f"Downloading {progress.file}", progress.bytes_done, progress.bytes_total or None)

        loaded = studio.load_model(
            arguments.model, precision=arguments.precision, device=arguments.device, progress=show
        )
    request = SynthesisRequest(
        voice=Reference(
            name=arguments.reference.name,
            recording=arguments.reference,
            transcript=arguments.transcript,
            consent=bound_to_recording(consent, arguments.reference),
        ),
        text=arguments.text,
        language=arguments.language,
        seed=arguments.seed,
        is_streamed=arguments.stream,
        made_by="command",
        names_speaker=arguments.name_speaker,
        names_text=arguments.name_text,
    )
    with (
        closing(loaded.speak(request)) as stream,
        WavWriter(output, stream.sample_rate, stream.comment) as writer,
        Progress(unit="part") as bar,
    ):
        for chunk in stream:
            progress = stream.progress()
            bar.show(f"{progress.seconds_spoken:.1f} s spoken", progress.segments_done, progress.num_segments)
            writer.write(chunk)
        stream.check_length()
    facts = stream.facts()
    facts = facts.model_copy(update={"is_signed": studio.signer.sign_file(output, "wav", facts.statement)})
    write_whole(
        output.with_name(f"{output.name}.json"), facts.model_dump_json(indent=2, exclude={"spoken_from"}).encode()
    )
    print(describe(loaded, facts, len(stream.segments), output))
    if (arguments.transcript or "").strip() and not facts.is_in_context:
        print(_TRANSCRIPT_UNUSED, file=sys.stderr)
    for line in doubts_of(facts):
        print(line, file=sys.stderr)
    return 0


def describe(loaded: Synthesizer, facts: TakeFacts, num_segments: int, output: Path) -> str:
    """The result in one line per fact."""
    how = "in context" if facts.is_in_context else "from the speaker embedding"
    seeds = ", ".join(dict.fromkeys(map(str, facts.seeds)))
    return "\n".join(
        (
            f"{output}: {facts.seconds:.2f} s, cloned {how} with {loaded.name} ({loaded.model.precision})",
            f"real-time factor {facts.real_time_factor:.2f}, first audio after {facts.seconds_to_first_audio:.2f} s",
            f"finished: {facts.finish_reason}, {num_segments} {'part' if num_segments == 1 else 'parts'}, seed {seeds}",
        )
    )
