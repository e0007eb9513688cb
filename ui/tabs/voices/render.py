"""What the Voices tab shows: a card for each voice, the space that fine-tunes take, and the trash. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from backend.comparisons.contenders import Contender
from backend.comparisons.preference import Standing
from backend.store.trash import Deleted
from backend.voices.styles import in_words
from backend.voices.voice import Voice
from training.model.hub.hub import short_name
from ui.html.messages import NOTHING
from ui.html.sides import WAY_WORDS
from ui.html.sound import sound_html
from ui.html.templates import render
from ui.html.words import consent_in_words, deleted_name, size_in_words
from ui.words.words import say

API_ADDRESS = "http://127.0.0.1:8000"
"""Where `app.py serve` listens by default."""

ORIGINS = {
    "recordings": "voices.from_recordings",
    "sample": "voices.from_sample",
    "dataset": "voices.from_dataset",
    "checkpoint": "voices.from_checkpoint",
    "made_of": "voices.from_voice",
}
"""What is shown of a voice's provenance; the rest is for programs."""

KINDS = {
    "take": "voices.kind_take",
    "voice": "voices.kind_voice",
    "dataset": "voices.kind_dataset",
    "run": "voices.kind_run",
}

Votes = Sequence[tuple[Contender, Standing]]
"""On the ways in which a voice speaks."""


@dataclass(frozen=True, kw_only=True)
class ShownVoice:
    """A voice with what is told of it.

    Attributes:
        avatar: its picture.
        sentence: a sentence in this voice as the page may fetch it; None where there is none.
        hint: said in place of it.
        model: that programs ask for.
    """

    voice: Voice
    avatar: Markup
    sentence: Path | None
    hint: str
    votes: Votes
    model: str


@dataclass(frozen=True, kw_only=True)
class Said:
    """The answer to what was pressed on a card.

    Attributes:
        voice_id: whose card it was.
        words: what is said there.
        deleted: what can be brought back; its card is an offer to do so.
        place: where that card was, counted from the first.
    """

    voice_id: str
    words: Markup | str = NOTHING
    deleted: Deleted | None = None
    place: int = 0


@dataclass(frozen=True, kw_only=True)
class RunSpace:
    """A fine-tune and what its files take."""

    id: str
    name: str
    when: str
    num_bytes: int
    is_active: bool


def shelf_html(voices: Sequence[ShownVoice], said: Said | None = None) -> Markup:
    """All voices, in the order given."""
    tiles = [tile_html(one, said.words if said is not None and said.voice_id == one.voice.id else "") for one in voices]
    if said is not None and said.deleted is not None:
        tiles.insert(said.place, render("voices", "gone", deleted=said.deleted))
    return render("voices", "shelf", tiles=tiles) if tiles else render("voices", "empty")


def tile_html(shown: ShownVoice, answer: str = "") -> Markup:
    """The card of one voice."""
    voice = shown.voice
    title = say("voices.in_this_voice", name=voice.name)
    return render(
        "voices",
        "tile",
        voice=voice,
        tag=say("voices.tuned") if voice.kind == "fine-tuned" else say("voices.zero_shot"),
        avatar=shown.avatar,
        sound=sound_html(shown.sentence, title, voice=voice.name) if shown.sentence is not None else "",
        hint=shown.hint,
        votes=[votes_in_words(say(WAY_WORDS[side.way]), standing) for side, standing in shown.votes],
        facts=_facts(voice),
        curl=curl_line(voice, API_ADDRESS),
        python=python_lines(voice, API_ADDRESS, shown.model),
        answer=answer,
    )


def space_html(runs: Sequence[RunSpace], trashed: Sequence[Deleted], answer: str = "") -> Markup:
    """What fine-tunes and the trash take, each with a way to free it."""
    return render(
        "voices",
        "space",
        runs=[{**vars(run), "size": size_in_words(run.num_bytes)} for run in runs],
        runs_size=size_in_words(sum(run.num_bytes for run in runs)),
        trashed=[
            {
                "id": one.id,
                "label": deleted_name(one),
                "kind": say(KINDS[one.kind]),
                "size": size_in_words(one.num_bytes),
                "until": f"{one.kept_until.astimezone():%Y-%m-%d %H:%M}",
            }
            for one in trashed
        ],
        trash_size=size_in_words(sum(one.num_bytes for one in trashed)),
        answer=answer,
    )


def votes_in_words(way: str, standing: Standing) -> str:
    """What votes say about one way in which a voice speaks."""
    if not standing.is_clear:
        verdict = say("voices.undecided")
    else:
        is_preferred = 2 * standing.num_won > standing.num_decided
        verdict = say("voices.preferred") if is_preferred else say("voices.passed_over")
    way = f"{way[:1].upper()}{way[1:]}"
    return say("voices.won", way=way, won=standing.num_won, number=standing.num_decided, verdict=verdict)


def _facts(voice: Voice) -> list[tuple[str, str]]:
    return [
        (say("voices.model"), short_name(voice.model)),
        (say("voices.made"), f"{voice.created_at.astimezone():%Y-%m-%d}"),
        (say("voices.consent"), consent_in_words(voice.consent)),
        (say("voices.origin"), provenance_in_words(voice)),
        *([(say("voices.styles"), in_words(voice.styles))] if voice.styles else []),
    ]


def provenance_in_words(voice: Voice) -> str:
    """Where a voice comes from."""
    parts = []
    imported = voice.provenance.get("imported")
    if isinstance(imported, dict):
        parts.append(say("voices.imported_from", file=imported.get("file", say("voices.a_file"))))
    for key, words in ORIGINS.items():
        value = voice.provenance.get(key)
        # The file a sample was cut into is of no interest.
        if key == "recordings" and "sample" in voice.provenance:
            continue
        if isinstance(value, list):
            value = ", ".join(str(one) for one in value[:5]) + (" …" if len(value) > 5 else "")
        if value:
            parts.append(f"{say(words)}: {value}.")
    return " ".join(parts) or say("voices.no_origin")


def curl_line(voice: Voice, address: str) -> str:
    """One command that writes speech to a file; a shell reads the name that was meant."""
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
