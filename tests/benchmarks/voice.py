"""How well a checkpoint speaks and clones, by judges that had no part in making it.

    python -m tests.benchmarks.voice --model mini --output tests/benchmarks/results/DATE-voice-mini.md

The sentences of `assets/evaluation/sentences.txt` are said by flite's voices themselves, through the checkpoint's
codec, and by the checkpoint as clones of them: from the speaker embedding alone, and in context. pocketsphinx writes
down what it hears, with its own errors on the source beside it, and GE2E tells how alike voices are.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import soxr
import torch
from numpy.typing import NDArray

from backend.serving.engine.engine import Engine
from backend.serving.engine.running_take import LIVE_CHUNK_FRAMES
from backend.voices.cloning import clone_voice
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.second_verifier import load_second_verifier
from tests.benchmarks.voice_judges import JUDGE_SAMPLE_RATE_HZ, Recogniser
from tests.benchmarks.voice_report import Column, Judged, voice_table
from tests.benchmarks.voice_sources import Source, other_profiles, seen_sources, unseen_sources
from tests.single_take import Synthesizer
from training.model.generation.finish_reason import FinishReason
from training.model.generation.take_request import TakeRequest, VoicePrompt
from training.model.hub.hub import resolve_model
from training.model.project import PROJECT_FOLDER
from training.model.speaker_verifier import SpeakerVerifier, load_verifier
from training.model.voice_model import VoiceModel

SENTENCES = PROJECT_FOLDER / "assets" / "evaluation" / "sentences.txt"
_CLIPPED = 0.999

HOW_TO_READ = """\
Source: the engine's own voice, and what the recogniser makes of it. Resynthesis: the same sound through codes and back.
x-vector and in context: takes by clones of a recording of two sentences. Their speed is measured as the studio speaks
them live, one at a time. Similarity is between utterances of the same sentence (for the source: to the recording that
is cloned); "nearest" means closer to the right speaker than to any of ten others. Seen speakers share the sentences
between them. Numbers of a row are medians unless it says otherwise. The verifier has taught mini's speaker encoder;
CAM++ (`second_verifier.py`) has taught nobody."""


class Bench:
    """A loaded checkpoint and its judges."""

    def __init__(
        self, model: VoiceModel, verifier: SpeakerVerifier, *, seed: int, engine: Engine | None = None
    ) -> None:
        """Prepare to judge, and to measure the speed of takes if an engine of the model is given."""
        self.model, self._engine = model, engine
        self.synthesizer = Synthesizer(model)
        self._recogniser = Recogniser()
        self._verifier = verifier
        self._others = other_profiles(verifier)
        self._second = load_second_verifier()
        self._others_to_second = [] if self._second is None else other_profiles(self._second)
        self._seed = seed

    def columns(self, sources: Sequence[Source], sentences: Sequence[str], *, takes: bool = True) -> list[Column]:
        """Every sentence by one of the sources in turn, in all ways of making speech; without `takes` no clone's."""
        names = ("source", "resynthesis", "x-vector", "in context") if takes else ("source", "resynthesis")
        columns = [Column(name=name) for name in names]
        prompts = [self._clones(source) if takes else () for source in sources]
        for number, text in enumerate(sentences):
            source, voices = sources[number % len(sources)], prompts[number % len(sources)]
            for column, judged in zip(columns, self._judge_sentence(text, source, voices), strict=True):
                column.judged.append(judged)
            print(f"\r{source.name}: {number + 1} of {len(sentences)}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        return columns

    def _clones(self, source: Source) -> tuple[VoicePrompt, ...]:
        recording = source.recording
        return clone_voice(self.model, recording), clone_voice(self.model, recording, source.transcript)

    def _judge_sentence(self, text: str, source: Source, voices: tuple[VoicePrompt, ...]) -> Iterator[Judged]:
        own = source.say(text)
        yield self._judge(text, own, source, own, compared_with=source.recording.samples)
        rate_hz = self.model.tokenizer_sample_rate
        codes = self.model.encode(torch.from_numpy(at_rate(own, JUDGE_SAMPLE_RATE_HZ, rate_hz)))
        whole = self.model.speech_tokenizer.decode(codes.unsqueeze(0))[0].cpu().numpy()
        resynthesis = at_rate(whole, self.model.sample_rate, JUDGE_SAMPLE_RATE_HZ)[: len(own)]
        yield self._judge(text, resynthesis, source, own)
        for voice in voices:
            yield self._judge_take(text, voice, source, own)

    def _judge_take(self, text: str, voice: VoicePrompt, source: Source, own: NDArray[np.float32]) -> Judged:
        request = TakeRequest(text=text, voice=voice, seed=self._seed)
        take = self.synthesizer.speak(request)
        sound = at_rate(take.waveform, take.sample_rate, JUDGE_SAMPLE_RATE_HZ)
        difference = None
        if not voice.is_in_context and len(take.codes):
            # The same codes in pieces as they are streamed: a click at a border would be a difference.
            state = self.model.speech_tokenizer.start_stream(1)
            pieces = _pieces(len(take.codes))
            streamed = [
                self.model.speech_tokenizer.decode_step(part.unsqueeze(0), state)[0].cpu().numpy()
                for part in take.codes.split(pieces)
            ]
            whole = self.model.speech_tokenizer.decode(take.codes.unsqueeze(0))[0].cpu().numpy()
            difference = float(np.abs(np.concatenate(streamed) - whole).max())
        return self._judge(
            text,
            sound,
            source,
            own,
            ended=take.finish_reason is not FinishReason.LENGTH,
            chunk_difference=difference,
            **self._measure_speed(request),
        )

    def _measure_speed(self, request: TakeRequest) -> dict[str, float]:
        """Of the same take, spoken live."""
        if self._engine is None:
            return {}
        started = time.monotonic()
        stream = self._engine.submit(request)
        seconds = sum(len(chunk) for chunk in stream) / stream.sample_rate
        if not seconds:
            return {}
        real_time_factor = (time.monotonic() - started) / seconds
        return {"real_time_factor": real_time_factor, "first_audio_seconds": stream.seconds_to_first_audio}

    def _judge(
        self,
        text: str,
        sound: NDArray[np.float32],
        source: Source,
        own: NDArray[np.float32],
        *,
        compared_with: NDArray[np.float32] | None = None,
        ended: bool | None = None,
        chunk_difference: float | None = None,
        real_time_factor: float | None = None,
        first_audio_seconds: float | None = None,
    ) -> Judged:
        wanted = own if compared_with is None else compared_with
        similarity, is_nearest = _compare(self._verifier, sound, wanted, source.profile, self._others)
        second_similarity = is_nearest_to_second = None
        if self._second is not None:
            assert source.second_profile is not None
            second_similarity, is_nearest_to_second = _compare(
                self._second, sound, wanted, source.second_profile, self._others_to_second
            )
        return Judged(
            text=text,
            heard=self._recogniser.transcribe(sound),
            similarity=similarity,
            is_nearest=is_nearest,
            second_similarity=second_similarity,
            is_nearest_to_second=is_nearest_to_second,
            length_ratio=len(sound) / len(own),
            is_clipped=bool(np.abs(sound).max(initial=0.0) >= _CLIPPED),
            ended=ended,
            chunk_difference=chunk_difference,
            real_time_factor=real_time_factor,
            first_audio_seconds=first_audio_seconds,
        )


def main() -> None:
    """Measure, print the report and write it to a file if asked to."""
    options = parse_options()
    torch.set_num_threads(options.threads)
    folder = resolve_model(options.model)
    sentences = SENTENCES.read_text(encoding="utf-8").split("\n")[: options.sentences]
    sentences = [sentence for sentence in sentences if sentence.strip()]
    machine = describe_machine(options.device)
    verifier = load_verifier()
    model = VoiceModel.load(folder, precision=options.precision, device=options.device)
    # First, because the judges' synthesizer may take the weights over.
    engine = Engine(model, consume=False)
    bench = Bench(model, verifier, seed=options.seed, engine=engine)
    groups = {"seen speakers": seen_sources(verifier), "unseen speaker (rms)": unseen_sources(verifier)}
    lines = [
        f"# Voice, {folder.name}",
        "",
        f"{datetime.datetime.now(tz=datetime.UTC).date()}, `python -m tests.benchmarks.voice --model {folder.name} "
        f"--sentences {len(sentences)} --threads {options.threads}`, {model.precision}, seed {options.seed}",
        "",
        *(f"- {fact}" for fact in machine),
        "",
        HOW_TO_READ,
    ]
    for name, sources in groups.items():
        lines += ["", f"## {name.capitalize()}", "", voice_table(bench.columns(sources, sentences))]
    engine.close()
    report = "\n".join(lines)
    print(report)
    if options.output is not None:
        options.output.write_text(report + "\n", encoding="utf-8")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.voice", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--model", default="mini", help="mini, a checkpoint folder or a hub name")
    parser.add_argument("--sentences", type=int, default=50, help="how many of them")
    parser.add_argument("--precision", default="auto", choices=["auto", "fp32", "bf16", "int8"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1, help="of the processor")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="write the report here as well")
    return parser.parse_args()


def at_rate(samples: NDArray[np.float32], rate_hz: int, wanted_hz: int) -> NDArray[np.float32]:
    """Resampled mono sound."""
    resampled = samples if rate_hz == wanted_hz else soxr.resample(samples, rate_hz, wanted_hz)
    return np.ascontiguousarray(resampled, dtype=np.float32)


def _compare(
    verifier: SpeakerVerifier,
    sound: NDArray[np.float32],
    wanted: NDArray[np.float32],
    profile: NDArray[np.float32],
    others: Sequence[NDArray[np.float32]],
) -> tuple[float, bool]:
    """How alike two sounds are, and whether the first is nearer to a profile than to all others."""
    voice = verifier.embed(sound)
    right = float(voice @ profile)
    return float(voice @ verifier.embed(wanted)), all(right > float(voice @ other) for other in others)


def _pieces(num_frames: int) -> list[int]:
    """How many frames each chunk of a stream holds."""
    pieces: list[int] = []
    while sum(pieces) < num_frames:
        size = LIVE_CHUNK_FRAMES[min(len(pieces), len(LIVE_CHUNK_FRAMES) - 1)]
        pieces.append(min(size, num_frames - sum(pieces)))
    return pieces


if __name__ == "__main__":
    main()
