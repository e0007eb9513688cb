"""How often the watermark is found, after what may become of a recording, and what it costs in quality.

    python -m tests.benchmarks.watermark --takes 20 --output tests/benchmarks/results/DATE-watermark.md

Takes of the voices that come with the program are made without a mark, marked as the engine does it, changed, cut to
clips that begin anywhere, and looked at. The same takes unmarked, and recordings of people and engines that Debian
packages (`apt-get install asterisk-core-sounds-en-g722 asterisk-core-sounds-fr-g722 espeak-ng flite`), show how often
something is found where nothing is.
"""

from __future__ import annotations

import argparse
import datetime
import io
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import av
import numpy as np
from numpy.typing import NDArray

from backend.audio.resample import resample
from backend.audio.tempo import Tempo
from backend.serving.deploy.factory import build_synthesizer
from backend.serving.requests import Reference, SynthesisRequest
from backend.serving.settings import EngineSettings
from backend.voices.samples import list_samples
from backend.voices.speaker_verifier import VERIFIER_SAMPLE_RATE, load_verifier
from backend.watermark.detector import Detection, Detector, detect
from backend.watermark.mark import Mark
from backend.watermark.marker import STRENGTH_DB, Marker
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.report import line
from tests.benchmarks.voice import SENTENCES
from tests.benchmarks.voice_judges import JUDGE_SAMPLE_RATE_HZ, Recogniser, character_error
from training.pretrain.corpus.recordings import read_g722

RATE = 24_000
KEY = bytes(range(32))
CLIP_SECONDS = (3, 5, 10)
_SENTENCES_PER_TAKE = 4
_ASTERISK = Path("/usr/share/asterisk/sounds")

Sound = NDArray[np.float32]


def code(samples: Sound, codec: str, container: str, bit_rate: int, rate: int = RATE) -> Sound:
    """What is left after a codec."""
    sink = io.BytesIO()
    with av.open(sink, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate, layout="mono", bit_rate=bit_rate)
        resampler = av.AudioResampler(format=stream.format.name, layout="mono", rate=rate)
        integers = (np.clip(samples, -1, 1) * 32767).astype(np.int16)
        frame = av.AudioFrame.from_ndarray(integers.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE, 0, Fraction(1, RATE)
        for piece in (*resampler.resample(frame), *resampler.resample(None)):
            file.mux(stream.encode(piece))
        file.mux(stream.encode(None))
    sink.seek(0)
    with av.open(sink) as file:
        resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE)
        frames = [piece for frame in file.decode(audio=0) for piece in resampler.resample(frame)]
        return np.concatenate([frame.to_ndarray().reshape(-1) for frame in (*frames, *resampler.resample(None))])


def telephone(samples: Sound) -> Sound:
    """300 to 3400 Hz at 8 kHz, mu-law in 8 bits."""
    narrow = resample(samples, RATE, 8000).astype(np.float64)
    spectrum, frequencies = np.fft.rfft(narrow), np.fft.rfftfreq(len(narrow), 1 / 8000)
    narrow = np.clip(np.fft.irfft(spectrum * ((frequencies > 300) & (frequencies < 3400)), n=len(narrow)), -1, 1)
    levels = np.round(np.sign(narrow) * np.log1p(255 * np.abs(narrow)) / np.log1p(255) * 127) / 127
    heard = np.sign(levels) * np.expm1(np.abs(levels) * np.log1p(255)) / 255
    return resample(heard.astype(np.float32), 8000, RATE)


def noise(samples: Sound) -> Sound:
    """White noise 20 dB below."""
    added = np.random.default_rng(len(samples)).standard_normal(len(samples))
    return (samples + added * math.sqrt(float(np.mean(samples**2)) / 100)).astype(np.float32)


def room(samples: Sound) -> Sound:
    """A small room: 0.3 s of reverberation, 3 dB below the direct sound."""
    times = np.arange(round(0.36 * RATE)) / RATE
    response = np.random.default_rng(1).standard_normal(len(times)) * 10 ** (-3 * times / 0.3)
    response[: round(0.003 * RATE)] = 0
    response *= math.sqrt(0.5 / float((response**2).sum()))
    response[0] = 1
    size = 1 << (len(samples) + len(response)).bit_length()
    heard = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(response, size), size)
    return heard[: len(samples)].astype(np.float32)


def equalised(samples: Sound) -> Sound:
    """Six decibels more in the bass and six less in the treble, softer by twelve."""
    spectrum, frequencies = np.fft.rfft(samples), np.fft.rfftfreq(len(samples), 1 / RATE)
    decibels = np.interp(np.log2(np.maximum(frequencies, 50)), np.log2([50, 300, 1500, 8000]), [6, 4, -2, -6]) - 12
    return np.fft.irfft(spectrum * 10 ** (decibels / 20), n=len(samples)).astype(np.float32)


def music(samples: Sound) -> Sound:
    """Chords with a beat, 10 dB below the speech."""
    draw, times = np.random.default_rng(0), np.arange(len(samples)) / RATE
    played = np.zeros(len(samples))
    for beat in range(math.ceil(len(samples) / RATE * 2)):
        root, since = (220, 174.6, 261.6, 196)[beat // 4 % 4], times - beat / 2
        decay = np.where(since >= 0, np.exp(-4 * np.maximum(since, 0)), 0)
        for multiple in (1, 1.25, 1.5, 2, 3, 4, 5, 6, 8):
            played += decay * np.sin(2 * np.pi * root * multiple * since + 6 * draw.random()) / multiple**0.7
        played += 0.8 * decay**10 * draw.standard_normal(len(samples))
    return (samples + played * math.sqrt(float(np.mean(samples**2)) / float(np.mean(played**2)) / 10)).astype(
        np.float32
    )


def faster(samples: Sound, speed: float) -> Sound:
    """Played faster, and so higher."""
    return resample(samples, round(RATE * speed), RATE)


def in_time(samples: Sound, speed: float) -> Sound:
    """Faster at the same pitch."""
    tempo = Tempo(speed, RATE)
    return np.concatenate([tempo.add(samples), tempo.finish()])


CHANGES: dict[str, Callable[[Sound], Sound]] = {
    "untouched": lambda sound: sound,
    "mp3 64 kbit/s": lambda sound: code(sound, "libmp3lame", "mp3", 64_000),
    "mp3 32 kbit/s": lambda sound: code(sound, "libmp3lame", "mp3", 32_000),
    "opus 24 kbit/s": lambda sound: code(sound, "libopus", "ogg", 24_000, 48_000),
    "m4a (AAC) 64 kbit/s": lambda sound: code(sound, "aac", "adts", 64_000),
    "equalised and 12 dB softer": equalised,
    "16 kHz": lambda sound: resample(resample(sound, RATE, 16_000), 16_000, RATE),
    "telephone (8 kHz, mu-law)": telephone,
    "noise at 20 dB": noise,
    "small room": room,
    "speed and pitch +3 %": lambda sound: faster(sound, 1.03),
    "speed and pitch -4.75 %": lambda sound: faster(sound, 0.9525),
    "speed alone +4 %": lambda sound: in_time(sound, 1.04),
    "pitch alone -3 %": lambda sound: in_time(faster(sound, 0.97), 1 / 0.97),
    "music at 10 dB": music,
}


def make_takes(count: int, seed: int) -> Iterator[tuple[str, str, Sound]]:
    """Voice, text and sound of unmarked takes, `count` by each voice."""
    unmarked = Mark(off_because="the benchmark marks the same takes itself")
    synthesizer = build_synthesizer(EngineSettings(model="mini", num_slots=4, mark=unmarked))
    sentences = [text for text in SENTENCES.read_text(encoding="utf-8").splitlines() if text.strip()]
    draw = random.Random(seed)
    try:
        with TemporaryDirectory() as folder:
            for number in range(count):
                for voice in list_samples():
                    reference = Reference(
                        name=voice.name, recording=voice.reference_in(Path(folder)), transcript=voice.reference_text
                    )
                    texts = draw.sample(sentences, _SENTENCES_PER_TAKE)
                    pieces = []
                    for text in texts:
                        request = SynthesisRequest(
                            voice=reference, text=text, seed=seed + number, language="english", is_streamed=False
                        )
                        pieces.append(np.concatenate(list(synthesizer.speak(request))))
                    print(f"\rtakes: {number + 1} of {count}", end="", file=sys.stderr, flush=True)
                    yield voice.name, " ".join(texts), np.concatenate(pieces)
    finally:
        synthesizer.close()
        print(file=sys.stderr)


def mark(samples: Sound, payload: int) -> Sound:
    """What the engine would have handed out."""
    marker = Marker(RATE, installation_key=KEY, payload=payload)
    return np.concatenate([marker.add(samples), marker.finish()])


def found_rows(takes: Sequence[Sound], draw: random.Random) -> Iterator[str]:
    """One row per change: how many clips of each length were found, and how many payloads were read without error."""
    for name, change in CHANGES.items():
        cells = []
        changed = [change(mark(samples, payload)) for payload, samples in enumerate(takes)]
        for seconds in CLIP_SECONDS:
            detections = []
            for payload, samples in enumerate(changed):
                room_left = len(samples) - seconds * RATE
                if room_left >= 0:
                    start = draw.randint(0, room_left)
                    detections.append((payload, detect(samples[start : start + seconds * RATE], RATE, KEY)))
            cells.append(_found(detections))
        print(f"{name}: {cells}", file=sys.stderr, flush=True)
        yield line(name, cells)


def _found(detections: Sequence[tuple[int, Detection]]) -> str:
    found = [(payload, one) for payload, one in detections if one.is_marked]
    right = sum(one.payload == payload for payload, one in found)
    wrong = sum(one.payload not in (None, payload) for payload, one in found)
    return f"{share(len(found), len(detections))}; payload {right} of {len(found)}, {wrong} wrong"


def share(count: int, of: int) -> str:
    """`count of n, percent (Wilson's interval of 95 %)`."""
    if not of:
        return "none that long"
    z, p = 1.96, count / of
    middle, half = p + z * z / (2 * of), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    low, high = ((middle + sign * half) / (1 + z * z / of) * 100 for sign in (-1, 1))
    return f"{count} of {of}, {100 * p:.0f} % ({low:.0f} to {high:.0f})"


def unmarked_rows(takes: Sequence[Sound], minutes: float) -> Iterator[str]:
    """One row per source without a mark: how much was heard, in how many looks, and the least chance claimed."""
    sources: dict[str, tuple[Sound, int]] = {"the same takes, unmarked": (np.concatenate(list(takes)), RATE)}
    for folder in sorted(_ASTERISK.glob("*_*")):
        if (files := sorted(folder.rglob("*.g722"))) and not folder.is_symlink():
            spoken = [np.asarray(read_g722(file), dtype=np.float32) for file in files if "silence" not in str(file)]
            sources[f"a person: {folder.name}"] = (np.concatenate(spoken), 16_000)
    for name, (samples, rate) in sources.items():
        samples = samples[: round(minutes * 60 * rate)]
        chances = [
            detect(samples[start : start + seconds * rate], rate, KEY).log10_p
            for seconds in (5, 30)
            for start in range(0, len(samples) - seconds * rate, (15 if seconds == 5 else 30) * rate)
        ]
        chances.append(detect(samples, rate, KEY).log10_p)
        cells = [f"{len(samples) / rate / 60:.0f} min", str(len(chances)), f"{min(chances):.1f}"]
        print(f"{name}: {cells}", file=sys.stderr, flush=True)
        yield line(name, cells)


def quality_rows(takes: Sequence[tuple[str, str, Sound]], draw: np.random.Generator) -> Iterator[str]:
    """The judges' opinions of the same takes with and without the mark, and of the difference."""
    recogniser, verifier = Recogniser(), load_verifier()
    errors, likeness = [], []
    for number, (_, text, samples) in enumerate(takes):
        pair = (samples, mark(samples, number))
        heard = [resample(one, RATE, JUDGE_SAMPLE_RATE_HZ) for one in pair]
        errors.append([character_error([text], [recogniser.transcribe(one)]) for one in heard])
        if verifier is not None:
            voice = verifier.embed(resample(takes[(number + 3) % len(takes)][2], RATE, VERIFIER_SAMPLE_RATE))
            likeness.append([float(verifier.embed(resample(one, RATE, VERIFIER_SAMPLE_RATE)) @ voice) for one in pair])
        print(f"\rjudged: {number + 1} of {len(takes)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for name, values in (("characters wrong", errors), ("likeness to another take of the voice", likeness)):
        if values:
            without, marked = np.array(values).T
            difference = marked - without
            means = [draw.choice(difference, len(difference)).mean() for _ in range(2000)]
            low, high = np.quantile(means, (0.025, 0.975))
            shown = f"{difference.mean():+.4f} ({low:+.4f} to {high:+.4f})"
            yield line(name, [f"{without.mean():.4f}", f"{marked.mean():.4f}", shown, str(len(difference))])


def cost_lines(samples: Sound) -> Iterator[str]:
    """Processor time of marking and of looking."""
    started = time.process_time()
    mark(samples, 1)
    taken = (time.process_time() - started) / (len(samples) / RATE)
    yield f"- marking takes {100 * taken:.2f} % of the sound's duration"
    hour = np.resize(samples, 3600 * RATE).reshape(-1, RATE)
    started, detector = time.process_time(), Detector(RATE, KEY)
    for block in hour:
        detector.add(block)
    detector.finish()
    yield f"- looking through an hour without a mark takes {time.process_time() - started:.0f} s of one core"


def main() -> None:
    """Measure, and print the report or write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--takes", type=int, default=10, help="of each voice")
    parser.add_argument("--minutes", type=float, default=30.0, help="of each unmarked source")
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    takes = list(make_takes(options.takes, options.seed))
    sounds = [samples for _, _, samples in takes]
    lines = [
        "# The watermark",
        "",
        f"{datetime.datetime.now(tz=datetime.UTC).date()}, strength {STRENGTH_DB} dB, {len(takes)} takes, "
        f"{sum(map(len, sounds)) / RATE / 60:.0f} minutes, seed {options.seed}",
        "",
        *(f"- {fact}" for fact in describe_machine("cpu")),
        *cost_lines(np.concatenate(sounds)),
        "",
        "One clip of each length from each take that is long enough, beginning anywhere: found (chance below one in a "
        "million), share with Wilson's interval of 95 %; payloads read without error, of those found.",
        "",
        line("", [f"{seconds} s" for seconds in CLIP_SECONDS]),
        line("---", ["---"] * len(CLIP_SECONDS)),
        *found_rows(sounds, random.Random(options.seed)),
        "",
        "Without a mark: clips of 5 s and 30 s, and the whole.",
        "",
        line("", ["sound", "recordings looked at", "least log10 of the chance (marked: -6)"]),
        line("---", ["---"] * 3),
        *unmarked_rows(sounds, options.minutes),
        "",
        "Quality, the same takes with and without the mark:",
        "",
        line("", ["without", "marked", "difference (bootstrap interval of 95 %)", "takes"]),
        line("---", ["---"] * 4),
        *quality_rows(takes, np.random.default_rng(options.seed)),
    ]
    report = "\n".join(lines) + "\n"
    print(report)
    if options.output is not None:
        options.output.write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()
