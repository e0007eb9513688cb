"""What the library tab says: voices, where they come from, who agreed, and how to use them from a program. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from backend.voices.voice import Voice
from ui.html.base import consent_in_words, file_url, short_name

EMPTY = (
    '<p class="note">No voice is saved yet. Add a recording or choose a sample on the Voice tab, give it a name and '
    "save it.</p>"
)

ORIGINS = {
    "recordings": "Recordings",
    "sample": "Sample voice",
    "dataset": "Dataset",
    "checkpoint": "Checkpoint",
    "made_of": "Made of the voice",
}
"""What is shown of a voice's provenance; the rest is for programs."""


def voice_list(voices: Sequence[Voice], players: Mapping[str, Path], wins: Mapping[str, int]) -> str:
    """All voices, the newest first; `players` has the recording of each that has one, by id."""
    if not voices:
        return EMPTY
    cards = "".join(voice_card(voice, players.get(voice.id), wins.get(voice.id, 0)) for voice in reversed(voices))
    return f'<ul class="voices">{cards}</ul>'


def voice_card(voice: Voice, player: Path | None, num_wins: int) -> str:
    """One voice."""
    name = escape(voice.name)
    sound = (
        f'<audio controls preload="none" src="{file_url(player)}" aria-label="The recording of {name}"></audio>'
        if player is not None
        else '<div class="facts">It has no recording of its own.</div>'
    )
    how = "in context" if voice.transcript else "from the sound alone"
    kind = "Fine-tuned" if voice.kind == "fine-tuned" else f"Zero-shot, {how}"
    won = "" if not num_wins else f" Preferred in {num_wins} {'vote' if num_wins == 1 else 'votes'}."
    return (
        f"<li><h3>{name}</h3><p>{kind}, with {escape(short_name(voice.model))}. Language: "
        f"{escape('automatic' if voice.language == 'auto' else voice.language.title())}. "
        f"Made on {voice.created_at:%Y-%m-%d}.{won}</p>{sound}"
        f'<div class="facts">{escape(consent_in_words(voice.consent))}</div>'
        f'<div class="facts">{escape(provenance_in_words(voice))}</div></li>'
    )


def provenance_in_words(voice: Voice) -> str:
    """Where a voice comes from."""
    parts = []
    imported = voice.provenance.get("imported")
    if isinstance(imported, dict):
        parts.append(f"Imported from {imported.get('file', 'a voice file')}.")
    for key, words in ORIGINS.items():
        value = voice.provenance.get(key)
        # The file a sample was cut into says nothing to anybody.
        if key == "recordings" and "sample" in voice.provenance:
            continue
        if isinstance(value, list):
            value = ", ".join(str(one) for one in value[:5]) + (" …" if len(value) > 5 else "")
        if value:
            parts.append(f"{words}: {value}.")
    return " ".join(parts) or "Where it comes from was not written down."


def api_lines(voice: Voice, address: str, model: str) -> str:
    """Ready lines for a shell and for Python; the names of voices are quoted for both."""
    python = escape(python_lines(voice, address, model))
    return (
        '<div class="api"><p>Start the API with <code>python app.py serve</code>, then in a shell:</p>'
        f'<pre tabindex="0" aria-label="curl command"><code>{escape(curl_line(voice, address))}</code></pre>'
        "<p>or in Python, with OpenAI's package:</p>"
        f'<pre tabindex="0" aria-label="Python lines"><code>{python}</code></pre></div>'
    )


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
