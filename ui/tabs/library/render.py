"""What the Library tab says: voices, where they come from, who agreed, and how to use them from a program. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from backend.voices.voice import Voice
from ui.html.messages import note
from ui.html.templates import render
from ui.html.words import count_of

EMPTY = "No voice is saved yet. Add a recording or choose a sample on the Voice tab, give it a name and save it."
IMPORT_NOTE = (
    "A voice file holds the recording, the consent and, of a fine-tune, the checkpoint. It is checked before anything "
    "of it is used."
)

ORIGINS = {
    "recordings": "Recordings",
    "sample": "Sample voice",
    "dataset": "Dataset",
    "checkpoint": "Checkpoint",
    "made_of": "Made of the voice",
}
"""What is shown of a voice's provenance; the rest is for programs."""


def voice_list(voices: Sequence[Voice], players: Mapping[str, Path], wins: Mapping[str, int]) -> Markup:
    """All voices, the newest first; `players` has the recording of each that has one, by id."""
    if not voices:
        return note(EMPTY)
    return render("library", "voices", rows=[_facts(voice, players, wins) for voice in reversed(voices)])


def _facts(voice: Voice, players: Mapping[str, Path], wins: Mapping[str, int]) -> dict[str, object]:
    """Of a voice, what the template shows."""
    how = "in context" if voice.transcript else "from the sound alone"
    num_wins = wins.get(voice.id, 0)
    return {
        "voice": voice,
        "kind": "Fine-tuned" if voice.kind == "fine-tuned" else f"Zero-shot, {how}",
        "player": players.get(voice.id),
        "won": f"Preferred in {count_of(num_wins, 'vote')}." if num_wins else "",
        "provenance": provenance_in_words(voice),
    }


def provenance_in_words(voice: Voice) -> str:
    """Where a voice comes from."""
    parts = []
    imported = voice.provenance.get("imported")
    if isinstance(imported, dict):
        parts.append(f"Imported from {imported.get('file', 'a voice file')}.")
    for key, words in ORIGINS.items():
        value = voice.provenance.get(key)
        # The file a sample was cut into is of no interest.
        if key == "recordings" and "sample" in voice.provenance:
            continue
        if isinstance(value, list):
            value = ", ".join(str(one) for one in value[:5]) + (" …" if len(value) > 5 else "")
        if value:
            parts.append(f"{words}: {value}.")
    return " ".join(parts) or "Its origin was not recorded."


def api_lines(voice: Voice, address: str, model: str) -> Markup:
    """Ready lines for a shell and for Python; the names of voices are quoted for both."""
    lines = {"curl": curl_line(voice, address), "python": python_lines(voice, address, model)}
    return render("library", "api_lines", **lines)


def curl_line(voice: Voice, address: str) -> str:
    """One command that writes speech to a file."""
    body = json.dumps({"voice": voice.name, "input": "Hello there.", "response_format": "wav"}, ensure_ascii=False)
    return (
        f"curl {address}/v1/audio/speech -H 'Content-Type: application/json' \\\n  -d {shlex.quote(body)} -o hello.wav"
    )


def python_lines(voice: Voice, address: str, model: str) -> str:
    """The same for a Python program."""
    return (
        "from openai import OpenAI\n\n"
        f'client = OpenAI(base_url="{address}/v1", api_key="encore")\n'
        f'speech = client.audio.speech.create(model={model!r}, voice={voice.name!r}, input="Hello there.")\n'
        'speech.write_to_file("hello.mp3")'
    )
