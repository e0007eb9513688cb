"""Whether the speech tokenizer keeps the pitch of deep and high voices.

    python -m tests.benchmarks.pitch mini [MORE CHECKPOINTS] [--output FILE]

Speech by voices that no training of the embedded model knew, some of it slowed down or hurried so that deeper and
higher ones are among them, is encoded and decoded. Where the source is voiced, the resynthesis should be, with the same
pitch. Needs flite, festival with festvox-kdlpc16k, and asterisk-core-sounds-en-g722 with its texts.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tests.benchmarks.machine import describe_machine
from tests.benchmarks.report import line
from tests.benchmarks.voice import at_rate
from tests.benchmarks.voice_chain import sayings_of
from tests.benchmarks.voice_judges import JUDGE_SAMPLE_RATE_HZ
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.model.hub.hub import resolve_model
from training.model.voice_model import VoiceModel

RANGES_HZ = ((65, 78), (78, 85), (85, 92), (92, 100), (100, 115), (115, 150), (150, 220), (220, 300))
"""Of the source's pitch; men speak at 80 to 160 Hz, women at 150 to 280."""
SEMITONE = 2 ** (1 / 12)

# How much slower or faster each voice speaks, and deeper or higher with it.
_VOICES = {"rms": (0.87, 1.0, 1.1), "ked": (0.8, 1.0), "person": (0.8, 1.0, 1.15)}

_WINDOW, _HOP = 1280, 160
_LOWEST_HZ, _HIGHEST_HZ = 55, 400
_MIN_CORRELATION, _MIN_LEVEL = 0.6, 0.01
# Two periods correlate as well as one.
_OCTAVE_COST = 0.03


@dataclass(frozen=True, kw_only=True)
class KeptPitch:
    """What became of the voiced windows with a pitch in one range.

    Attributes:
        num_windows: of the sources.
        voiced: share of them that are voiced in the resynthesis, too.
        kept: share of them with the same pitch to a semitone.
    """

    num_windows: int
    voiced: float
    kept: float


def pitch_track(samples: NDArray[np.float32]) -> NDArray[np.float64]:
    """Pitch in Hz of every window of 80 ms, one each 10 ms, of speech at 16 kHz; 0 where it is quiet or not voiced.

    The strongest period by the autocorrelation, divided by that of the window (Boersma 1993).
    """
    if len(samples) < _WINDOW:
        return np.zeros(0)
    windows = np.lib.stride_tricks.sliding_window_view(samples.astype(np.float64), _WINDOW)[::_HOP]
    shape = np.hanning(_WINDOW)
    shortest, longest = JUDGE_SAMPLE_RATE_HZ // _HIGHEST_HZ, JUDGE_SAMPLE_RATE_HZ // _LOWEST_HZ
    lags = np.arange(shortest, longest)
    own, found = (
        _autocorrelation(shape[None]),
        _autocorrelation((windows - windows.mean(axis=1, keepdims=True)) * shape),
    )
    correlation = (found / np.maximum(found[:, :1], 1e-9))[:, lags] / (own / own[:, :1])[:, lags]
    best = (correlation - _OCTAVE_COST * np.log2(lags / shortest)).argmax(axis=1)
    level = np.sqrt(np.mean(windows**2, axis=1))
    is_voiced = (correlation[np.arange(len(best)), best] > _MIN_CORRELATION) & (level > _MIN_LEVEL)
    pitch: NDArray[np.float64] = np.where(is_voiced, JUDGE_SAMPLE_RATE_HZ / lags[best], 0.0)
    return pitch


def measure(tokenizer: SpeechTokenizer, speech: Sequence[NDArray[np.float32]]) -> dict[tuple[int, int], KeptPitch]:
    """Resynthesize speech at 16 kHz and compare its pitch, by ranges of the source's that occur."""
    before, after = [], []
    for samples in speech:
        rate_hz = tokenizer.config.input_sample_rate
        codes = tokenizer.encode([torch.from_numpy(at_rate(samples, JUDGE_SAMPLE_RATE_HZ, rate_hz))])[0]
        decoded = tokenizer.decode(codes.unsqueeze(0))[0].float().cpu().numpy()
        heard = at_rate(decoded, tokenizer.config.output_sample_rate, JUDGE_SAMPLE_RATE_HZ)[: len(samples)]
        own, other = pitch_track(samples), pitch_track(heard)
        length = min(len(own), len(other))
        before.append(own[:length])
        after.append(other[:length])
    source, resynthesis = np.concatenate(before), np.concatenate(after)
    found = {}
    for low, high in RANGES_HZ:
        is_here = (source >= low) & (source < high)
        if not is_here.any():
            continue
        pitch = resynthesis[is_here]
        is_kept = (pitch > 0) & (np.abs(np.log2(np.maximum(pitch, 1) / source[is_here])) < np.log2(SEMITONE))
        found[low, high] = KeptPitch(
            num_windows=int(is_here.sum()), voiced=float((pitch > 0).mean()), kept=float(is_kept.mean())
        )
    return found


def speech_of(voice: str, factors: Sequence[float], num_sentences: int) -> Iterator[NDArray[np.float32]]:
    """Sentences of one voice at 16 kHz, each at every speed."""
    say, sentences = sayings_of(voice)
    for sentence in sentences[:num_sentences]:
        samples = say(sentence)
        for factor in factors:
            yield at_rate(samples, round(JUDGE_SAMPLE_RATE_HZ * factor), JUDGE_SAMPLE_RATE_HZ)


def _autocorrelation(windows: NDArray[np.float64]) -> NDArray[np.float64]:
    size = 2 * windows.shape[1]
    found: NDArray[np.float64] = np.fft.irfft(np.abs(np.fft.rfft(windows, size)) ** 2)[:, : windows.shape[1]]
    return found


def main() -> None:
    """Measure, print the report and write it to a file if asked to."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.pitch", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("models", nargs="+", help="mini, checkpoint folders or hub names")
    parser.add_argument("--sentences", type=int, default=12, help="how many of each voice")
    parser.add_argument("--output", type=Path, help="write the report here as well")
    options = parser.parse_args()
    torch.set_num_threads(1)
    speech = [one for voice, factors in _VOICES.items() for one in speech_of(voice, factors, options.sentences)]
    lines = [
        "# Pitch that the speech tokenizer keeps",
        "",
        f"{datetime.datetime.now(tz=datetime.UTC).date()}, {options.sentences} sentences of {', '.join(_VOICES)} at "
        "several speeds, windows of 80 ms",
        "",
        *(f"- {fact}" for fact in describe_machine("cpu")),
    ]
    for name in options.models:
        tokenizer = VoiceModel.load(resolve_model(name), precision="fp32", device="cpu").speech_tokenizer
        section = ["", f"## {Path(name).name}", "", *table(measure(tokenizer, speech))]
        print("\n".join(section), flush=True)
        lines += section
    if options.output is not None:
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


def table(found: dict[tuple[int, int], KeptPitch]) -> list[str]:
    """A row for each range."""
    rows = [line("source's pitch", ["windows", "still voiced", "same to a semitone"]), line("---", ["---"] * 3)]
    for (low, high), one in found.items():
        rows.append(line(f"{low} to {high} Hz", [str(one.num_windows), f"{one.voiced:.0%}", f"{one.kept:.0%}"]))
    return rows


if __name__ == "__main__":
    main()
