"""`python -m training.pretrain voices`: make the sample recordings that come with the app.

voices.json     speaker, origin, licence, and the times of each sentence
iris.flac       16 kHz mono; a voice like those the embedded model was trained on
iris.txt        its transcript, a sentence per line
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile
from numpy.typing import NDArray

from training.pretrain.corpus import tts_engines as engines
from training.pretrain.corpus.speakers import FLITE, Speaker, unseen_voice

INDEX = "voices.json"

# Pauses between sentences that are read aloud.
_GAPS_SECONDS = (0.45, 0.6, 0.5, 0.7)
_EDGE_SECONDS = 0.3

LICENCE = (
    "Synthetic speech by flite (Carnegie Mellon University, BSD-like licence), whose voices were built from the CMU "
    "ARCTIC databases (Kominek and Black, 2003), which are free to use for any purpose. The texts were written for "
    "this project. No person spoke these recordings, so nobody's consent is needed to try cloning on them."
)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One recording: its speaker and text."""

    name: str
    about: str
    speaker: Speaker
    sentences: tuple[str, ...]


class Said(NamedTuple):
    """A sentence and its time in a recording."""

    text: str
    start_seconds: float
    end_seconds: float


class Piece(NamedTuple):
    """A recording, float32 (samples,), and its sentences in order."""

    samples: NDArray[np.float32]
    said: list[Said]


def main(arguments: list[str]) -> int:
    """Make the recordings in the folder of the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m training.pretrain voices", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the recordings")
    make_sample_voices(parser.parse_args(arguments).out, report=lambda line: print(line, flush=True))
    return 0


def make_sample_voices(out: Path, *, report: Callable[[str], None]) -> None:
    """Speak every sample; the same engine makes the same files.

    Raises:
        CorpusError: flite is not installed.
    """
    out.mkdir(parents=True, exist_ok=True)
    version = engines.versions()[FLITE]
    index = []
    for sample in SAMPLES:
        piece = speak(sample)
        seconds = len(piece.samples) / engines.SAMPLE_RATE_HZ
        soundfile.write(out / f"{sample.name}.flac", piece.samples, engines.SAMPLE_RATE_HZ, subtype="PCM_16")
        (out / f"{sample.name}.txt").write_text("\n".join(sample.sentences) + "\n", encoding="utf-8")
        index.append(
            {
                "name": sample.name,
                "about": sample.about,
                "recording": f"{sample.name}.flac",
                "transcript": f"{sample.name}.txt",
                "seconds": round(seconds, 2),
                "made_by": {**_described(sample.speaker), "engine": f"{FLITE} {version}"},
                "licence": LICENCE,
                "sentences": [
                    {
                        "text": said.text,
                        "start_seconds": round(said.start_seconds, 2),
                        "end_seconds": round(said.end_seconds, 2),
                    }
                    for said in piece.said
                ],
            }
        )
        report(f"{sample.name}: {len(sample.sentences)} sentences, {seconds:.1f} s")
    (out / INDEX).write_text(json.dumps({"voices": index}, indent=1) + "\n", encoding="utf-8")


def _described(speaker: Speaker) -> dict[str, Any]:
    """What a speaker was made with. Likeness and timbre are mentioned where there are any."""
    only_if_any = ("likeness", "timbre")
    return {name: value for name, value in asdict(speaker).items() if name not in only_if_any or value is not None}


def speak(sample: Sample) -> Piece:
    """A sample's sentences with pauses between them."""
    sounds = [
        (engines.synthesize(sample.speaker, text).astype(np.float32) / np.float32(32768), text)
        for text in sample.sentences
    ]
    gaps = [_EDGE_SECONDS, *(_GAPS_SECONDS[number % len(_GAPS_SECONDS)] for number in range(len(sounds) - 1))]
    return join(sounds, gaps, _EDGE_SECONDS)


def join(spoken: list[tuple[NDArray[np.float32], str]], gaps: list[float], tail_seconds: float) -> Piece:
    """Concatenate utterances, each after its gap in seconds."""
    sounds, said = [], []
    num_samples = 0
    for (audio, text), gap in zip(spoken, gaps, strict=True):
        silence = np.zeros(int(gap * engines.SAMPLE_RATE_HZ), dtype=np.float32)
        start = num_samples + len(silence)
        num_samples = start + len(audio)
        sounds += [silence, audio]
        said.append(Said(text, start / engines.SAMPLE_RATE_HZ, num_samples / engines.SAMPLE_RATE_HZ))
    sounds.append(np.zeros(int(tail_seconds * engines.SAMPLE_RATE_HZ), dtype=np.float32))
    return Piece(np.concatenate(sounds), said)


SAMPLES = (
    Sample(
        name="iris",
        about="A bright voice of the kind the embedded model learnt from.",
        speaker=Speaker(name="iris", engine=FLITE, voice="slt", f0=1.06, formants=1.03, rate=0.98, f0_spread_hz=30.0),
        sentences=(
            "Every morning I open the bakery before the street lamps go out.",
            "The first thing I do is check the dough from the night before.",
            "If it has doubled, the day starts well.",
            "By six the ovens are hot and the windows are covered with steam.",
            "My brother brings the milk, and we drink our coffee by the door.",
            "Have you ever smelled fresh bread on a cold street?",
            "People tell me they find the shop with their eyes closed.",
            "On Saturdays we sell two hundred rolls before nine.",
            "Children always ask for the ones with sugar on top.",
            "In winter I bake a dark loaf with nuts and dried pears.",
            "It keeps for a week, if nobody is hungry.",
            "When the shelves are empty, I sweep the floor and lock up.",
            "Then I sleep through the brightest hours of the day.",
        ),
    ),
    Sample(
        name="owen",
        about="A calm voice of the kind the embedded model learnt from.",
        speaker=Speaker(name="owen", engine=FLITE, voice="awb", f0=0.93, formants=0.97, rate=1.02, f0_spread_hz=22.0),
        sentences=(
            "The lighthouse stands on a small rock, three miles from the harbor.",
            "My father kept it for thirty years, and his father before him.",
            "There are ninety steps from the kitchen to the lamp.",
            "As a boy I counted them aloud on the way up.",
            "Storms come from the west here, mostly in November.",
            "You can hear the waves inside the walls.",
            "Once a ship lost her rudder and drifted past in the fog.",
            "We rang the bell for four hours until the crew was safe.",
            "What do you do when there is nothing to do?",
            "I paint the railings, mend nets, and read old newspapers.",
            "Today a machine turns the lamp, and I only visit in summer.",
            "Still, I look for the light every night before I go to bed.",
        ),
    ),
    Sample(
        name="rufus",
        about="A voice that the embedded model has never heard.",
        speaker=unseen_voice(),
        sentences=(
            "I repair clocks in a workshop at the end of the lane.",
            "Some of them are older than the town itself.",
            "A good clock tells you what is wrong, if you listen.",
            "This one came to me in a box with a broken spring.",
            "The owner had carried it across the whole country.",
            "I took it apart on a Monday and cleaned every wheel.",
            "How many pieces do you think there were?",
            "Two hundred and six, and one of them was a dead beetle.",
            "It took me eleven days to find out why it stopped at noon.",
            "A tiny hair was caught between two of the teeth.",
            "Now it runs a minute slow each month, which is not bad at all.",
            "When I wind it, the whole room seems to wake up.",
        ),
    ),
)
