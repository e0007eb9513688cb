"""Recordings made on the spot by flite, with the texts they say."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.programs import require_program

SENTENCES = (
    "The birch canoe slid on the smooth planks.",
    "Glue the sheet to the dark blue background.",
    "It is easy to tell the depth of a well.",
    "These days a chicken leg is a rare dish.",
    "Rice is often served in round bowls.",
    "The juice of lemons makes fine punch.",
    "The box was thrown beside the parked truck.",
    "The hogs were fed chopped corn and garbage.",
)


def speak(path: Path, text: str, voice: str = "slt") -> Path:
    """Write a WAV file in which a voice says a text."""
    require_program("flite")
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["flite", "-voice", voice, "-t", text, "-o", str(path)], check=True, timeout=60)
    return path


def speak_folder(folder: Path, sentences: tuple[str, ...] = SENTENCES, voice: str = "slt") -> Path:
    """One WAV with a text file beside it per sentence."""
    for index, sentence in enumerate(sentences):
        wav = speak(folder / f"{index:02}.wav", sentence, voice)
        wav.with_suffix(".txt").write_text(sentence)
    return folder
