"""Sound without a mark: people, and every speech engine that Debian packages; and how high it scores.

    apt-get install asterisk-core-sounds-{en,es,fr,it,ru}-g722 espeak-ng flite freetts festival festvox-kallpc16k \
        festvox-kdlpc16k festvox-us-slt-hts festvox-italp16k festvox-itapc16k festvox-ru festvox-ca-ona-hts \
        festvox-czech-dita festvox-czech-krb festvox-czech-machac festvox-czech-ph festvox-suopuhe-lj \
        festvox-suopuhe-mv fortunes

What of these is not installed is left out. open-jtalk is packaged as well, but no voice that it could speak with.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import soundfile
from pydantic import BaseModel, ConfigDict

from backend.watermark.detector import detect
from tests.benchmarks.report import line
from tests.benchmarks.watermark_takes import KEY, Sound
from training.pretrain.corpus.own_sentences import read_g722
from training.pretrain.corpus.text_sources import load_text_sources

CLIP_EVERY_SECONDS = {5: 30, 30: 90}
"""Each recording is looked at whole, and in clips of so many seconds, beginning every so often."""

_PEOPLE = Path("/usr/share/asterisk/sounds")
_FREETTS = Path("/usr/share/java/freetts.jar")
_PROMPTS_SECONDS = 120.0
"""Prompts of people are a few seconds long: so much of them is joined."""

_TEXT_CHARACTERS = 1500
"""Of a recording that an engine makes; about a minute and a half."""

_ENGINE_SECONDS = 300
_ESPEAK = (
    "en-us", "en-gb", "en-gb-scotland", "en-gb-x-rp", "de", "fr-fr", "es", "it", "ru", "nl", "pl", "sv", "pt-br", "fi",
    "tr", "cs", "hu", "ro", "el", "en-us+f2", "en-us+m3", "en-gb+f4", "en-us+croak", "en-us+whisper",
)  # fmt: skip
_FLITE = ("kal", "kal16", "awb", "rms", "slt")
_FESTIVAL = (
    "kal_diphone", "ked_diphone", "cmu_us_slt_arctic_hts", "lp_diphone", "pc_diphone", "msu_ru_nsh_clunits",
    "upc_ca_ona_hts", "czech_dita", "czech_krb", "czech_machac", "czech_ph", "suo_fi_lj_diphone", "hy_fi_mv_diphone",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SpeechProgram:
    """A voice of a program that reads a file and writes another."""

    engine: str
    voice: str

    @property
    def name(self) -> str:
        """Of its recordings."""
        return f"{self.engine} {self.voice}"

    def command(self, text: Path, sound: Path) -> list[str]:
        """What says a text."""
        options = {
            "espeak-ng": ["espeak-ng", "-v", self.voice, "-f", str(text), "-w", str(sound)],
            "flite": ["flite", "-voice", self.voice, "-f", str(text), "-o", str(sound)],
            "festival": ["text2wave", "-eval", f"(voice_{self.voice})", str(text), "-o", str(sound)],
            "freetts": [
                "java",
                "-jar",
                str(_FREETTS),
                "-voice",
                self.voice,
                "-file",
                str(text),
                "-dumpAudio",
                str(sound),
            ],
        }
        return options[self.engine]


class HeardUnmarked(BaseModel):
    """What was looked at of one recording.

    Attributes:
        source: who speaks.
        log10_p: of each clip and of the whole.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    name: str
    seconds: float
    log10_p: tuple[float, ...]
    num_marked: int


def speech_programs() -> list[SpeechProgram]:
    """Those that are installed."""
    found = []
    for engine, program, voices in (
        ("espeak-ng", "espeak-ng", _ESPEAK),
        ("flite", "flite", _FLITE),
        ("festival", "text2wave", _FESTIVAL),
        ("freetts", "java", ("kevin16", "kevin") if _FREETTS.exists() else ()),
    ):
        if shutil.which(program) is not None:
            found += [SpeechProgram(engine=engine, voice=voice) for voice in voices]
    return found


def make_unmarked(folder: Path, hours: float) -> None:
    """Collect so much sound in `folder`: what there is of people, the rest by all engines in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_people(folder)
    programs = speech_programs()
    sentences = load_text_sources().sentences if programs else ()
    texts = _texts(sentences)
    turn = 0
    while programs and (seconds := kept_seconds(folder)) < hours * 3600:
        print(f"\rwithout a mark: {seconds / 3600:.2f} h", end="", file=sys.stderr, flush=True)
        for program in list(programs):
            path, text = folder / f"{program.name}-{turn:03}.flac", next(texts)
            if not path.exists() and not _say(program, text, path):
                print(f"\n{program.name} does not speak and is left out", file=sys.stderr)
                programs.remove(program)
        turn += 1
    print(file=sys.stderr)


def kept_seconds(folder: Path) -> float:
    """Of all recordings in a folder."""
    return sum(soundfile.info(path).duration for path in folder.glob("*.flac"))


def _texts(sentences: Sequence[str]) -> Iterator[str]:
    text = ""
    while True:
        for sentence in sentences:
            text += sentence + " "
            if len(text) > _TEXT_CHARACTERS:
                yield text
                text = ""


def _say(program: SpeechProgram, text: str, path: Path) -> bool:
    with TemporaryDirectory() as folder:
        source, sound = Path(folder) / "text.txt", Path(folder) / "sound.wav"
        source.write_text(text, encoding="utf-8")
        try:
            subprocess.run(program.command(source, sound), capture_output=True, check=True, timeout=_ENGINE_SECONDS)
            samples, rate = soundfile.read(sound, dtype="float32")
        except (subprocess.SubprocessError, OSError, soundfile.LibsndfileError):
            return False
        if not len(samples):
            return False
        _write(path, samples, rate)
    return True


def _write_people(folder: Path) -> None:
    for speaker in sorted(_PEOPLE.glob("*_*_*")):
        if speaker.is_symlink() or any(folder.glob(f"a person {speaker.name}-*")):
            continue
        pieces: list[Sound] = []
        number = 0
        for file in [*sorted(speaker.rglob("*.g722")), None]:
            if file is not None and "silence" not in str(file):
                pieces.append(read_g722(file))
            seconds = sum(map(len, pieces)) / 16_000
            if seconds and (file is None or seconds > _PROMPTS_SECONDS):
                _write(folder / f"a person {speaker.name}-{number:03}.flac", np.concatenate(pieces), 16_000)
                pieces, number = [], number + 1


def _write(path: Path, samples: Sound, rate: int) -> None:
    partial = path.with_suffix(".partial")
    soundfile.write(partial, samples, rate, format="FLAC", subtype="PCM_16")
    partial.rename(path)


def look_at_unmarked(recordings: Sequence[Path], results: Path) -> None:
    """Look at recordings whole and in clips; one line each is added to `results`, and none is looked at again."""
    known = {one.name for one in read_unmarked(results)}
    with results.open("a", encoding="utf-8") as file:
        for number, path in enumerate(recordings):
            if path.name not in known:
                file.write(_look_at(path).model_dump_json() + "\n")
                file.flush()
            print(f"\rlooked at: {number + 1} of {len(recordings)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def _look_at(path: Path) -> HeardUnmarked:
    samples, rate = soundfile.read(path, dtype="float32")
    parts = [samples]
    for seconds, hop in CLIP_EVERY_SECONDS.items():
        starts = range(0, len(samples) - seconds * rate, hop * rate)
        parts += [samples[start : start + seconds * rate] for start in starts]
    found = [detect(part, rate, KEY) for part in parts]
    return HeardUnmarked(
        source=path.stem.rpartition("-")[0],
        name=path.name,
        seconds=len(samples) / rate,
        log10_p=tuple(one.log10_p for one in found),
        num_marked=sum(one.is_marked for one in found),
    )


def read_unmarked(results: Path) -> list[HeardUnmarked]:
    """What was looked at so far."""
    if not results.exists():
        return []
    lines = results.read_text(encoding="utf-8").splitlines()
    return [HeardUnmarked.model_validate_json(one) for one in lines if one.endswith("}")]


def unmarked_rows(heard: Sequence[HeardUnmarked]) -> Iterator[str]:
    """One row per source: how much was heard, in how many looks, how many were called marked, the least chance."""
    sources: dict[str, list[HeardUnmarked]] = defaultdict(list)
    for one in heard:
        sources[one.source].append(one)
    for name, ones in [*sorted(sources.items()), ("all", list(heard))]:
        minutes = sum(one.seconds for one in ones) / 60
        chances = [chance for one in ones for chance in one.log10_p]
        num_marked = sum(one.num_marked for one in ones)
        yield line(name, [f"{minutes:.0f} min", str(len(chances)), str(num_marked), f"{min(chances):.1f}"])
