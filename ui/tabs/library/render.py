"""What the Voices tab says: voices, where they come from, who agreed, and how to use them from a program. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from backend.comparisons.contenders import WAYS, Contender
from backend.comparisons.preference import Standing
from backend.voices.voice import Voice
from ui.html.messages import note
from ui.html.sound import sound_html
from ui.html.templates import render

EMPTY = "No voice is saved yet. Add a recording or choose a sample on the Speak tab, give it a name and save it."
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


Votes = Sequence[tuple[Contender, Standing]]
"""On the ways in which a voice speaks."""


def voice_list(voices: Sequence[Voice], players: Mapping[str, Path], votes: Mapping[str, Votes]) -> Markup:
    """All voices, the newest first; `players` and `votes` have the recording and the votes of each, by id."""
    if not voices:
        return note(EMPTY)
    return render(
        "library", "voices", rows=[_facts(voice, players, votes.get(voice.id, ())) for voice in reversed(voices)]
    )


def _facts(voice: Voice, players: Mapping[str, Path], votes: Votes) -> dict[str, object]:
    """Of a voice, what the template shows."""
    how = "in context" if voice.transcript else "from the sound alone"
    player = players.get(voice.id)
    return {
        "voice": voice,
        "kind": "Fine-tuned" if voice.kind == "fine-tuned" else f"Zero-shot, {how}",
        "sound": sound_html(player, f"The recording of {voice.name}", voice=voice.name) if player else "",
        "won": " ".join(votes_in_words(WAYS[side.way], standing) for side, standing in votes),
        "provenance": provenance_in_words(voice),
    }


def votes_in_words(way: str, standing: Standing) -> str:
    """What votes say about one way in which a voice speaks."""
    if not standing.is_clear:
        verdict = "undecided"
    else:
        verdict = "clearly preferred" if 2 * standing.num_won > standing.num_decided else "clearly not preferred"
    return f"{way[:1].upper()}{way[1:]}: won {standing.num_won} of {standing.num_decided}, {verdict}."


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
