"""A voice is told how to speak: its codes change, an unknown style is refused, and takes can be repeated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from backend.serving.pool.engine_pool import EnginePool
from backend.serving.requests import Reference, RunCheckpoint, SynthesisRequest
from backend.serving.speak_again import request_again, spoken_from
from backend.serving.synthesizer import Synthesizer
from backend.store.home import Home
from backend.voices.errors import VoiceError, VoiceStyleUnknown
from backend.voices.registry import Voices
from backend.voices.styles import StyleClip
from backend.voices.voice import Voice
from tests.backend.serving.api.served import CONSENT, MODEL, TEXT, load
from tests.backend.serving.conftest import codes_of
from tests.backend.serving.test_speak_again import facts_of, take_of
from tests.backend.voices.checkpoints import fine_tuned_checkpoint
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import write_voice
from training.model.generation.take_request import TakeRequest


@pytest.fixture(scope="module")
def voices(tmp_path_factory: pytest.TempPathFactory) -> Voices:
    """`Tuned` has two styles with clips, `Told` one that is an instruction, `Plain` none."""
    folder = tmp_path_factory.mktemp("styles")
    registry = Voices(Home(folder / "home"))
    recordings = [write_voice(folder / f"{seconds}.wav", seconds) for seconds in (1.2, 1.6, 2.4)]
    styles = [
        StyleClip(name=name, clip=clip, text=f"{name}.")
        for name, clip in zip(("calm", "very loud"), recordings[1:], strict=True)
    ]
    custom_voice = fine_tuned_checkpoint(folder / "custom_voice")
    made = {"consent": CONSENT, "model": MODEL}
    registry.add_fine_tuned(
        "Tuned",
        {"custom_voice": custom_voice, "base": GOLDEN_CHECKPOINT},
        reference=recordings[0],
        transcript="Hello.",
        styles=styles,
        **made,
    )
    registry.add_fine_tuned("Told", {"custom_voice": custom_voice}, styles=[StyleClip(name="whisper")], **made)
    small = fine_tuned_checkpoint(folder / "small")
    config = json.loads((small / "config.json").read_text())
    (small / "config.json").write_text(json.dumps(config | {"tts_model_size": "0b6"}))
    registry.add_fine_tuned("Small", {"custom_voice": small}, styles=[StyleClip(name="whisper")], **made)
    registry.create_zero_shot("Plain", recordings[0], **made)
    return registry


@pytest.fixture(scope="module")
def synthesizer() -> Iterator[Synthesizer]:
    synthesizer = Synthesizer(MODEL, GOLDEN_CHECKPOINT, EnginePool(load, max_engines=3))
    yield synthesizer
    synthesizer.close()


def request_for(voice: Voice | Reference | RunCheckpoint, style: str = "", **fields: object) -> SynthesisRequest:
    return SynthesisRequest(voice=voice, text=TEXT, style=style, seed=3, is_streamed=False, **fields)


def samples_of(synthesizer: Synthesizer, request: SynthesisRequest) -> bytes:
    return b"".join(chunk.tobytes() for chunk in synthesizer.speak(request))


def test_codes_change_with_the_style(voices: Voices, synthesizer: Synthesizer) -> None:
    """And with nothing else: twice the same style with one seed is the same take."""
    voice = voices.get("Tuned")
    taken = []
    for style in ("calm", "very loud", "calm"):
        prompt = synthesizer.prompt(request_for(voice, style))
        stream = synthesizer.engine.submit(TakeRequest(text=TEXT, voice=prompt, seed=3, max_frames=12))
        list(stream)
        taken.append(codes_of(stream))
    assert not torch.equal(taken[0], taken[1])
    assert torch.equal(taken[0], taken[2])
    calm, usual = (samples_of(synthesizer, request_for(voice, style)) for style in ("Calm ", ""))
    assert calm != usual


def test_a_style_continues_its_clip_with_the_voices_own_embedding(voices: Voices, synthesizer: Synthesizer) -> None:
    voice = voices.get("Tuned")
    prompt = synthesizer.prompt(request_for(voice, "calm"))
    assert prompt.is_in_context
    assert prompt.reference_text == "calm."
    own = synthesizer.prompt(request_for(voices.get("Plain"))).speaker
    assert own is not None
    assert prompt.speaker is not None
    assert torch.equal(prompt.speaker, own), "both have the same reference"
    assert synthesizer.prompt(request_for(voice, "CALM")) is prompt, "it is analysed once"


def test_a_style_without_a_clip_is_the_instruction(voices: Voices, synthesizer: Synthesizer) -> None:
    told, usual = (samples_of(synthesizer, request_for(voices.get("Told"), style)) for style in ("whisper", ""))
    assert told != usual
    with pytest.raises(VoiceError, match="does not follow"):
        synthesizer.speak(request_for(voices.get("Small"), "whisper"))


def test_a_style_it_was_not_trained_with_is_refused_with_those_it_has(
    voices: Voices, synthesizer: Synthesizer, tmp_path: Path
) -> None:
    with pytest.raises(VoiceStyleUnknown, match=r"no style 'angry'\. It has: calm, very loud\. Choose one\."):
        synthesizer.speak(request_for(voices.get("Tuned"), "angry"))
    recording = Reference(name="me", recording=write_voice(tmp_path / "me.wav", 1.2))
    run = RunCheckpoint(name="run", checkpoint=GOLDEN_CHECKPOINT)
    for voice in (voices.get("Plain"), recording, run):
        with pytest.raises(VoiceStyleUnknown, match="has no styles"):
            synthesizer.speak(request_for(voice, "calm"))


def test_a_way_that_continues_nothing_has_no_style(voices: Voices, synthesizer: Synthesizer) -> None:
    voice = voices.get("Tuned")
    for mode in ("x-vector", "fine-tuned"):
        with pytest.raises(VoiceError, match="which this way of speaking does not"):
            synthesizer.speak(request_for(voice, "calm", mode=mode))
    base = synthesizer.prompt(request_for(voice, "calm", mode="in-context"))
    assert base.reference_text == "calm.", "the base model continues the clip as well"


def test_a_lost_clip_is_said(voices: Voices, synthesizer: Synthesizer) -> None:
    voice = voices.get("Tuned")
    lost = voice.model_copy(update={"styles": (*voice.styles, voice.styles[0].model_copy(update={"name": "sad"}))})
    with pytest.raises(VoiceError, match="lost the clip of its style sad"):
        synthesizer.prompt(request_for(lost, "sad"))


def test_a_take_remembers_its_style_and_is_spoken_in_it_again(
    voices: Voices, synthesizer: Synthesizer, tmp_path: Path
) -> None:
    request = request_for(voices.get("Tuned"), "Very Loud")
    stream = synthesizer.speak(request)
    list(stream)
    facts = stream.facts()
    assert facts.style == "very loud"
    assert facts.is_fine_tuned
    take = take_of(facts_of([9000], spoken_from=spoken_from(request)), tmp_path)
    assert request_again(take, 1, voices).style == "Very Loud"
