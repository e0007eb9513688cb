"""Where a checkpoint loses what is said: its chain taken apart, by a judge that had no part in making it.

    python -m tests.benchmarks.voice_chain mini FOLDER ... --output tests/benchmarks/results/DATE-chain.md

Per voice and checkpoint: the share of characters that pocketsphinx gets wrong in the voice's own sound, in what the
codec makes of it, and in takes of its clones. Of the voices one is known to every checkpoint (slt), three are kept out
of all training:
rms of the same engine, ked of another one (festival), and a person, whose prompts Asterisk plays in English.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tests.benchmarks.machine import describe_machine
from tests.benchmarks.report import line
from tests.benchmarks.voice import SENTENCES, Bench
from tests.benchmarks.voice_report import Column
from tests.benchmarks.voice_sources import REFERENCE_SENTENCES, Source, source_of
from training.model.hub.hub import resolve_model
from training.model.speaker_verifier import SpeakerVerifier, load_verifier
from training.model.voice_model import VoiceModel
from training.pretrain.corpus.own_sentences import read_g722
from training.pretrain.corpus.speakers import by_name
from training.pretrain.corpus.tts_engines import synthesize, tidy

_WRONG = "characters wrong (95 % interval)"
_KED = "(voice_ked_diphone)"
_PROMPTS = Path("/usr/share/asterisk/sounds/en_US_f_Allison")
_PROMPT_TEXTS = Path("/usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz")
# Prompts of about a sentence, without digits, sounds in brackets or words that nobody has in a dictionary.
_PROMPT_LETTERS = (30, 90)
_UNREADABLE = re.compile(r"[\[\]{}<>0-9/*#]|\.\.\.")


def main() -> None:
    """Measure, print the report and write it to a file if asked to."""
    options = parse_options()
    torch.set_num_threads(options.threads)
    verifier = load_verifier()
    if verifier is None:
        sys.exit("The weights of the verifier in assets/verifier are missing or damaged.")
    rows = [
        line("checkpoint", ["voice", "way", _WRONG, "similarity", "by CAM++", "length : source's"]),
        line("---", ["---"] * 6),
    ]
    for name in options.models:
        model = VoiceModel.load(resolve_model(name), precision="fp32", device="cpu")
        bench = Bench(model, verifier, seed=options.seed)
        for voice in options.voices:
            source, sentences = _voice(voice, verifier, options.sentences)
            for column in bench.columns([source], sentences, takes=options.takes):
                rows.append(line(Path(name).name, [voice, column.name, *_measured(column)]))
                print(rows[-1], flush=True)
    report = "\n".join(
        [
            "# The chain taken apart",
            "",
            f"{datetime.datetime.now(tz=datetime.UTC).date()}, {options.sentences} sentences, seed {options.seed}",
            "",
            *(f"- {fact}" for fact in describe_machine("cpu")),
            "",
            *rows,
        ]
    )
    print(report)
    if options.output is not None:
        options.output.write_text(report + "\n", encoding="utf-8")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.voice_chain", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("models", nargs="+", help="mini, checkpoint folders or hub names")
    parser.add_argument("--voices", nargs="+", default=["slt", "rms", "ked", "person"])
    parser.add_argument("--sentences", type=int, default=24, help="how many of each voice")
    parser.add_argument("--no-takes", dest="takes", action="store_false", help="judge the codec alone")
    parser.add_argument("--threads", type=int, default=1, help="of the processor")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="write the report here as well")
    return parser.parse_args()


def sayings_of(name: str) -> tuple[Callable[[str], NDArray[np.float32]], list[str]]:
    """What says a text in a voice, and the texts that there are for it."""
    if name == "person":
        prompts = _prompts()
        return lambda text: _level(read_g722(prompts[text])), list(prompts)
    sentences = [sentence for sentence in SENTENCES.read_text(encoding="utf-8").splitlines() if sentence.strip()]
    if name == "ked":
        if shutil.which("text2wave") is None:
            sys.exit("festival is not installed. Install it with: apt-get install festival festvox-kdlpc16k")
        return _festival, sentences
    speaker = by_name()[name]
    return lambda text: synthesize(speaker, text).astype(np.float32) / np.float32(32768), sentences


def _voice(name: str, verifier: SpeakerVerifier, num_sentences: int) -> tuple[Source, list[str]]:
    """A voice and the sentences it is judged on."""
    say, sayings = sayings_of(name)
    if name == "person":
        references, said = sayings[:2], sayings[2 : 2 + num_sentences]
        return source_of(name, say, verifier, references, references), said
    return source_of(name, say, verifier, REFERENCE_SENTENCES), sayings[:num_sentences]


def _festival(text: str) -> NDArray[np.float32]:
    command = ["text2wave", "-eval", _KED, "-o", "/dev/stdout"]
    said = subprocess.run(command, input=text.encode(), capture_output=True, check=True)
    # Its header does not say how long a stream is.
    samples = np.frombuffer(said.stdout[44:], "<i2").astype(np.float32) / np.float32(32768)
    return _level(samples)


def _prompts() -> dict[str, Path]:
    """Text to recording, longest first: what is said in a sentence or two."""
    if not _PROMPT_TEXTS.is_file() or not _PROMPTS.is_dir():
        sys.exit("Install the prompts with: apt-get install asterisk-core-sounds-en asterisk-core-sounds-en-g722")
    found = {}
    for row in gzip.decompress(_PROMPT_TEXTS.read_bytes()).decode(errors="replace").splitlines():
        name, _, text = row.partition(": ")
        path = _PROMPTS / f"{name}.g722"
        low, high = _PROMPT_LETTERS
        if low <= len(text) <= high and not _UNREADABLE.search(text) and path.is_file():
            found[text.strip()] = path
    return dict(sorted(found.items(), key=lambda pair: (-len(pair[0]), pair[0])))


def _level(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    tidied = tidy(samples)
    assert tidied is not None, "a voice said nothing"
    return tidied.astype(np.float32) / np.float32(32768)


def _measured(column: Column) -> Sequence[str]:
    judged = column.judged
    similarity = float(np.mean([one.similarity for one in judged]))
    length = float(np.median([one.length_ratio for one in judged]))
    low, high = column.character_error_interval()
    second = [one.second_similarity for one in judged if one.second_similarity is not None]
    by_second = f"{np.mean(second):.2f}" if second else ""
    return f"{column.character_error:.3f} ({low:.3f} to {high:.3f})", f"{similarity:.2f}", by_second, f"{length:.2f}"


if __name__ == "__main__":
    main()
