"""What a fine-tune of all weights gains and costs, beside adapters of several ranks, on the same recordings.

    python -m tests.benchmarks.methods --folder WORK --output tests/benchmarks/results/DATE-methods-mini.md

A voice that the embedded model has never heard says sentences of the corpus; with `--voice person` it is a real one,
and says Debian's telephone prompts. `app.py dataset build` and `app.py finetune` make voices of them as a user would,
one for each way, all else being the preset's. Each says sentences that it has not learnt from, from its own speaker
row, beside the base model's clone of the dataset's reference clip, and the judges of `voice_judges.py` compare them
sentence by sentence. What is in WORK already is not made again.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import jiwer
import numpy as np
import soundfile
import torch
from numpy.typing import NDArray

from backend.evaluation.plan import EvaluationPlan
from backend.runs.runs import Runs
from backend.runs.storage.records import RunRecord
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.states import RunState
from backend.store.home import Home
from backend.voices.cloning import clone_voice
from backend.voices.reference import read_reference
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.report import line
from tests.benchmarks.voice import at_rate
from tests.benchmarks.voice_chain import sayings_of
from tests.benchmarks.voice_judges import JUDGE_SAMPLE_RATE_HZ, Recogniser
from tests.benchmarks.voice_sources import profile
from tests.single_take import Synthesizer
from training.model.generation.take_request import TakeRequest, VoicePrompt
from training.model.hub.hub import resolve_model
from training.model.project import PROJECT_FOLDER
from training.model.speaker_verifier import load_verifier
from training.model.voice_model import VoiceModel
from training.pretrain.corpus import tts_engines as engines
from training.pretrain.corpus.normalise import key
from training.pretrain.corpus.text_sources import load_text_sources
from training.pretrain.corpus.texts import TextStream

BEFORE = "zero-shot"
ENGINE, PERSON = "rms", "person"
_KINDS = {ENGINE: "an unheard voice", PERSON: "an unheard person"}
# Of the person's prompts, the longest are those that a clone is made of in the chain.
_NUM_KEPT_PROMPTS = 2
_DATASET = "unheard"
_NUM_DRAWS = 10_000
# Sentences that nobody trains on, by which the verifier knows the voice.
_NUM_PROFILE_SENTENCES = 12
_LETTERS = (30, 90)

HOW_TO_READ = """\
Zero-shot: the base model, from the speaker embedding of the dataset's reference clip. The others: the checkpoint that
the run chose by its own scores, exported as a whole model, from its speaker row. Similarity: the independent verifier,
to {num_profile} recordings of the voice that nobody trained on. Characters wrong: pocketsphinx. Differences are to
zero-shot, paired by sentence; in brackets the interval that holds 95 % of {num_draws} samples of the sentences, drawn
with replacement. Minutes: of the steps alone, without what starts them and listens to them. State: weights, gradients
and optimizer of the worker, measured. Size: of what is kept, an adapter's weights or a whole talker's."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One column: options of `app.py finetune`, and what it is called."""

    name: str
    options: tuple[str, ...]

    @property
    def voice(self) -> str:
        """Of the library of the benchmark's home."""
        return self.name.replace(" ", "-")


@dataclass(frozen=True, kw_only=True)
class Unheard:
    """A voice that the embedded model has never heard, and texts that it can say.

    Attributes:
        statement: of consent, for the product's records.
        say: what it says itself, at the corpus's rate.
        learnt: what a fine-tune learns from.
        judged: what is spoken before and after.
        known: what the verifier knows it by; nobody trains on that.
    """

    statement: str
    say: Callable[[str], NDArray[np.float32]]
    learnt: Sequence[str]
    judged: Sequence[str]
    known: Sequence[str]

    @property
    def consent(self) -> tuple[str, ...]:
        """Options of the product's commands."""
        return "--consent", self.statement, "--consent-by", "The benchmark"


@dataclass(frozen=True, kw_only=True)
class Said:
    """One sentence spoken once: edits against its text, letters of the text, and likeness to the voice."""

    edits: int
    letters: int
    similarity: float


def main() -> None:
    """Make what is missing, judge, and write the report."""
    options = parse_options()
    torch.set_num_threads(1)
    home = options.folder / "home"
    unheard = unheard_voice(options)
    recordings = write_recordings(options.folder / "recordings", unheard)
    if not (home / "datasets" / _DATASET).is_dir():
        command(home, "dataset", "build", str(recordings), "--name", _DATASET, "--whisper", "none", *unheard.consent)
    ways = [Way(name="full", options=("--method", "full"))]
    ways += [Way(name=f"rank {rank}", options=("--method", "lora", "--lora-rank", str(rank))) for rank in options.ranks]
    runs = {way.name: fine_tune(home, way, unheard, options) for way in ways}
    said = judge_all(options, home, unheard, runs)
    report = write_report(options, home, unheard, runs, said)
    print(report)
    if options.output is not None:
        options.output.write_text(report, encoding="utf-8")


def unheard_voice(options: argparse.Namespace) -> Unheard:
    """The voice that the command line asks for."""
    say, sayings = sayings_of(options.voice)
    if options.voice == PERSON:
        judged = sayings[_NUM_KEPT_PROMPTS:][: options.sentences]
        learnt = sayings[_NUM_KEPT_PROMPTS + len(judged) :][: options.recordings]
        # Published under a licence that permits adaptations; what is made of them stays in the benchmark's folder.
        return Unheard(statement="speaker-agreed", say=say, learnt=learnt, judged=judged, known=judged)
    texts, held_out = (TextStream(load_text_sources(), seed=77 + part, held_out=bool(part)) for part in (0, 1))
    fitting = (text for text in map(texts.text, itertools.count()) if _LETTERS[0] <= len(text) <= _LETTERS[1])
    return Unheard(
        statement="synthetic",
        say=say,
        learnt=list(itertools.islice(fitting, options.recordings)),
        judged=sayings[: options.sentences],
        known=[held_out.text(index) for index in range(_NUM_PROFILE_SENTENCES)],
    )


def write_recordings(folder: Path, unheard: Unheard) -> Path:
    """What is learnt from, each with its text beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(unheard.learnt):
        path = folder / f"{number:03}.wav"
        if not path.is_file():
            soundfile.write(path, unheard.say(text), engines.SAMPLE_RATE_HZ)
            path.with_suffix(".txt").write_text(text, encoding="utf-8")
    return folder


def command(home: Path, *arguments: str) -> None:
    """Run `app.py` in the benchmark's home, as a user would."""
    environment = os.environ | {"ENCORE_HOME": str(home)}
    subprocess.run([sys.executable, "app.py", *arguments], cwd=PROJECT_FOLDER, env=environment, check=True)


def fine_tune(home: Path, way: Way, unheard: Unheard, options: argparse.Namespace) -> RunRecord:
    """The finished run of a way, made now if there is none yet."""
    if (run := _finished(home, way)) is None:
        arguments = ["finetune", _DATASET, "--voice", way.voice, "--preset", options.preset, *way.options]
        command(home, *arguments, "--set", f"seed={options.seed}", *unheard.consent)
        run = _finished(home, way)
    assert run is not None, f"the run for {way.name} has not finished"
    return run


def _finished(home: Path, way: Way) -> RunRecord | None:
    if not home.is_dir():
        return None
    done = [run for run in Runs(Home(home)).list() if run.voice == way.voice and run.state is RunState.DONE]
    return done[0] if done else None


def judge_all(
    options: argparse.Namespace, home: Path, unheard: Unheard, runs: Mapping[str, RunRecord]
) -> dict[str, list[Said]]:
    """Every sentence by the base model and by each way's voice."""
    base = resolve_model("mini")
    models: dict[str, Callable[[], tuple[VoiceModel, VoicePrompt]]] = {BEFORE: lambda: _zero_shot(base, home, runs)}
    for name, run in runs.items():
        folder = options.folder / "exports" / name
        if not folder.is_dir():
            folder.parent.mkdir(exist_ok=True)
            Runs(Home(home)).export(run.id, folder, merged=True)
        models[name] = lambda folder=folder: _tuned(folder / "custom_voice")  # type: ignore[misc]
    said = {}
    for name, load in models.items():
        kept = options.folder / f"judged-{name}-{len(unheard.judged)}.json"
        if not kept.is_file():
            judged = judge(*load(), unheard, seed=options.seed, name=name)
            kept.write_text(json.dumps([asdict(one) for one in judged]), encoding="utf-8")
        said[name] = [Said(**one) for one in json.loads(kept.read_text(encoding="utf-8"))]
    return said


def _zero_shot(base: Path, home: Path, runs: Mapping[str, RunRecord]) -> tuple[VoiceModel, VoicePrompt]:
    model = VoiceModel.load(base, precision="fp32", device="cpu")
    run = next(iter(runs.values()))
    # The reference clip is the same for all ways: they learnt from one dataset.
    plan = EvaluationPlan.read(RunFolder.of(home, run.id).evaluation_plan)
    return model, clone_voice(model, read_reference(plan.reference_clip))


def _tuned(folder: Path) -> tuple[VoiceModel, VoicePrompt]:
    model = VoiceModel.load(folder, precision="fp32", device="cpu")
    return model, VoicePrompt(speaker_name=next(iter(model.config.talker.spk_id)))


def judge(model: VoiceModel, voice: VoicePrompt, unheard: Unheard, *, seed: int, name: str) -> list[Said]:
    """Speak the sentences, and have them heard and compared."""
    synthesizer, recogniser, verifier = Synthesizer(model), Recogniser(), load_verifier()
    known = profile([unheard.say(text) for text in unheard.known], verifier)
    said = []
    for number, text in enumerate(unheard.judged):
        take = synthesizer.speak(TakeRequest(text=text, voice=voice, seed=seed + number))
        sound = at_rate(take.waveform, take.sample_rate, JUDGE_SAMPLE_RATE_HZ)
        heard = jiwer.process_characters(key(text), key(recogniser.transcribe(sound)))
        edits = heard.substitutions + heard.deletions + heard.insertions
        likeness = float(verifier.embed(sound) @ known)
        said.append(Said(edits=edits, letters=len(key(text)), similarity=likeness))
        print(f"\r{name}: {number + 1} of {len(unheard.judged)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return said


def write_report(
    options: argparse.Namespace,
    home: Path,
    unheard: Unheard,
    runs: Mapping[str, RunRecord],
    said: Mapping[str, Sequence[Said]],
) -> str:
    """The table, with everything that is needed to make it again."""
    some = next(iter(runs.values()))
    head = [
        f"# Full fine-tune{' and adapters' if options.ranks else ''}, mini, {_KINDS[options.voice]}",
        "",
        f"{datetime.datetime.now(tz=datetime.UTC).date()}, preset {options.preset}, {len(unheard.learnt)} recordings, "
        f"{len(unheard.judged)} sentences, seed {options.seed}; {some.num_steps} steps",
        "",
        *(f"- {fact}" for fact in describe_machine("cpu")),
        "",
        HOW_TO_READ.format(num_profile=len(unheard.known), num_draws=f"{_NUM_DRAWS:,}"),
        "",
        line("", ["chosen", "similarity", "difference", "characters wrong", "difference", "minutes", "state", "size"]),
        line("---", ["---"] * 8),
    ]
    draw = np.random.default_rng(options.seed)
    rows = [line(BEFORE, ["", *_scores(said[BEFORE], None, draw), "", "", ""])]
    for name, run in runs.items():
        chosen = f"step {int((run.best_checkpoint or '-0').rpartition('-')[2])}"
        rows.append(line(name, [chosen, *_scores(said[name], said[BEFORE], draw), *_costs(options, home, run)]))
    return "\n".join([*head, *rows]) + "\n"


def _scores(said: Sequence[Said], before: Sequence[Said] | None, draw: np.random.Generator) -> list[str]:
    likeness, wrong = _numbers(said)
    if before is None:
        return [f"{likeness.mean():.3f}", "", f"{100 * _rate(wrong):.1f} %", ""]
    likeness_before, wrong_before = _numbers(before)
    gain = likeness - likeness_before
    picks = draw.integers(len(said), size=(_NUM_DRAWS, len(said)))
    low, high = np.quantile(gain[picks].mean(axis=1), (0.025, 0.975))
    change = 100 * (_rate(wrong) - _rate(wrong_before))
    least, most = np.quantile([100 * (_rate(wrong[one]) - _rate(wrong_before[one])) for one in picks], (0.025, 0.975))
    return [
        f"{likeness.mean():.3f}",
        f"{gain.mean():+.3f} ({low:+.3f} to {high:+.3f})",
        f"{100 * _rate(wrong):.1f} %",
        f"{change:+.1f} points ({least:+.1f} to {most:+.1f})",
    ]


def _numbers(said: Sequence[Said]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Similarities, and pairs of edits and letters."""
    return np.array([one.similarity for one in said]), np.array([(one.edits, one.letters) for one in said], float)


def _rate(wrong: NDArray[np.float64]) -> float:
    edits, letters = wrong.sum(axis=0)
    return float(edits / letters)


def _costs(options: argparse.Namespace, home: Path, run: RunRecord) -> list[str]:
    measures = [one.measures for one in Runs(Home(home)).metrics(run.id)]
    seconds = sum(one["seconds_per_step"] for one in measures)
    state = max(one.get("state_bytes", 0.0) for one in measures)
    name = "full" if run.job.lora is None else f"rank {run.job.lora_rank}"
    folder = options.folder / "exports" / name / "custom_voice"
    if run.job.lora is not None:
        folder = options.folder / "exports" / f"{name} adapter"
        if not folder.is_dir():
            Runs(Home(home)).export(run.id, folder)
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return [f"{seconds / 60:.1f}", f"{state / 1e6:.0f} MB", f"{size / 1e6:.1f} MB"]


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.methods", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--folder", type=Path, required=True, help="for recordings, runs and takes; it is kept")
    parser.add_argument("--voice", choices=list(_KINDS), default=ENGINE, help="an engine's, or a person's")
    parser.add_argument("--recordings", type=int, default=80, help="sentences that are learnt from")
    parser.add_argument("--sentences", type=int, default=48, help="that are judged")
    parser.add_argument(
        "--ranks", type=int, nargs="*", default=[4, 16, 64], help="of adapters; none: all weights alone"
    )
    parser.add_argument("--preset", default="standard")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="write the report here as well")
    return parser.parse_args()


if __name__ == "__main__":
    main()
