"""The rail of voices: a card for each that can speak now, with its picture and its sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from backend.voices.consent import hash_of_file
from backend.voices.samples import SampleVoice, list_samples
from backend.voices.voice import Voice
from ui.context import PageContext
from ui.html.avatar import avatar_html
from ui.html.templates import render
from ui.source import Source
from ui.words.words import say


@dataclass(frozen=True, kw_only=True)
class VoiceCard:
    """A voice that can be chosen.

    Attributes:
        kind: recording, sample or voice, as of a `Source`.
        key: which one of these.
        title: what its play button plays.
        sound: its recording as the page may fetch it; None where there is none.
        is_stop: whether Tab stops here; in a group it does so once.
    """

    kind: str
    key: str
    name: str
    tag: str
    title: str
    sound: Path | None
    avatar: Markup
    is_chosen: bool = False
    is_stop: bool = False


def rail_html(context: PageContext, source: Source | None) -> Markup:
    """All voices: the recording at hand, the library with the newest first, the samples. Raises EncoreError."""
    voices = context.studio.voices.list()
    cards = [
        *_recording_cards(source, voices),
        *(_library_card(context, voice, source) for voice in reversed(voices)),
        *(_sample_card(context, sample, source) for sample in list_samples()),
    ]
    return render("rail", "rail", cards=_with_stop(cards), new=say("speak.new"), group=say("speak.voices"))


def _recording_cards(source: Source | None, voices: Sequence[Voice]) -> list[VoiceCard]:
    if source is None or source.kind != "recording":
        return []
    avatar = avatar_html(source.preview, source.name)
    return [
        VoiceCard(
            kind="recording",
            key=source.recording_key,
            name=source.name,
            tag=say("speak.saved" if _is_saved(source, voices) else "speak.not_saved"),
            title=source.name,
            sound=source.preview,
            avatar=avatar,
            is_chosen=True,
        )
    ]


def _is_saved(source: Source, voices: Sequence[Voice]) -> bool:
    """Whether a voice of the library was made of the recording at hand, and of no other."""
    if source.reference is None or not source.reference.is_file():
        return False
    return hash_of_file(source.reference) in {voice.consent.given_for for voice in voices}


def _library_card(context: PageContext, voice: Voice, source: Source | None) -> VoiceCard:
    sound = context.files.place(voice.reference) if voice.reference is not None else None
    return VoiceCard(
        kind="voice",
        key=voice.id,
        name=voice.name,
        tag=say("speak.tuned") if voice.kind == "fine-tuned" else say("speak.zero_shot"),
        title=say("speak.recording_of", name=voice.name),
        sound=sound,
        avatar=avatar_html(sound, voice.id),
        is_chosen=source is not None and source.voice_id == voice.id,
    )


def _sample_card(context: PageContext, sample: SampleVoice, source: Source | None) -> VoiceCard:
    sound = context.files.place(context.studio.sample_reference(sample.name))
    name = sample.name.title()
    return VoiceCard(
        kind="sample",
        key=sample.name,
        name=name,
        tag=say("speak.sample"),
        title=say("speak.recording_of", name=name),
        sound=sound,
        avatar=avatar_html(sound, sample.name),
        is_chosen=source is not None and source.sample == sample.name,
    )


def _with_stop(cards: Sequence[VoiceCard]) -> list[dict[str, object]]:
    """The chosen card is where Tab stops, or else the first."""
    stop = next((card for card in cards if card.is_chosen), cards[0] if cards else None)
    return [{**vars(card), "is_stop": card is stop} for card in cards]
