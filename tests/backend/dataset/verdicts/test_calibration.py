"""Texts are doubted by what is usual for the speaker, not by constants; who is not understood is not accused."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

import pytest

from backend.audio.span import Span
from backend.dataset.clips.gates import GateResult, Verdict
from backend.dataset.clips.measures import measure_sound
from backend.dataset.clips.stage_results import CutClip
from backend.dataset.clips.thresholds import GateSettings
from backend.dataset.clips.views import ClipDetails
from backend.dataset.verdicts.calibration import (
    calibrate,
    discrepancy,
    discrepancy_of,
    judge_texts,
    understood_too_little,
)
from backend.transcription.pocketsphinx_transcriber import POCKETSPHINX
from tests.backend.dataset.speechlike import RATE, speechlike

SETTINGS = GateSettings()
SENTENCES = (
    "Every morning I open the bakery before the lamps go out.",
    "My brother brings the milk and we drink our coffee.",
    "It keeps for a week, if nobody is hungry.",
    "There are ninety steps from the kitchen to the lamp.",
    "Storms come from the west here, mostly in November.",
    "We rang the bell for 4 hours until the crew was safe.",
    "A good clock tells you what is wrong, if you listen.",
    "How many pieces do you think there were?",
    "It took me eleven days to find out why it stopped.",
    "When I wind it, the whole room seems to wake up.",
)
SOUND = measure_sound(speechlike(0, 2.5), RATE)


def clip(
    text: str,
    heard: str | None,
    *,
    sureness: float = 0.9,
    transcriber: str = POCKETSPHINX,
    doubt: str = "",
    language: str = "en",
) -> ClipDetails:
    """A clip with a given text, in which something was heard."""
    cut = CutClip(
        span=Span(start_seconds=0.0, end_seconds=2.5),
        clip_id="clip",
        seconds=2.5,
        sound=SOUND,
        text=text,
        text_source="file",
        heard=heard,
        heard_words=tuple((word, sureness) for word in (heard or "").split()),
        transcriber="" if heard is None else transcriber,
        language=language,
        doubt=doubt,
    )
    return ClipDetails(
        recording_name="ann.wav",
        recording_audio_id="ann",
        original=cut,
        current=cut,
        text=text,
        text_source="file",
        discrepancy=discrepancy_of(cut, text),
    )


def misheard(text: str, share: float, choices: random.Random) -> str:
    """As a listener writes it that gets a share of the words wrong."""
    words = text.lower().rstrip(".?").split()
    return " ".join(word[::-1] if choices.random() < share else word for word in words)


def gates_of(clips: Sequence[ClipDetails]) -> list[GateResult | None]:
    return judge_texts(clips, SETTINGS)


def verdicts(clips: Sequence[ClipDetails]) -> list[Verdict | None]:
    return [gate.verdict if gate else None for gate in gates_of(clips)]


def test_right_texts_are_accepted_and_a_wrong_one_is_found() -> None:
    choices = random.Random(0)
    clips = [clip(text, misheard(text, 0.08, choices), sureness=0.6) for text in SENTENCES]
    assert verdicts(clips) == [Verdict.ACCEPTED] * len(clips)
    exchanged = [*clips[:-1], clip(SENTENCES[0], SENTENCES[-1])]
    assert verdicts(exchanged) == [Verdict.ACCEPTED] * 9 + [Verdict.REJECTED]


def test_what_differs_is_named() -> None:
    clips = [clip(text, text) for text in SENTENCES[1:]]
    shortened = gates_of([clip("Every morning I open the bakery before.", SENTENCES[0].lower()), *clips])[0]
    assert shortened is not None
    assert shortened.verdict is Verdict.REJECTED
    assert "heard 'the lamps go out', which the text does not say" in shortened.sentence.lower()
    assert shortened.value > shortened.limit
    other = gates_of([clip("It leads to the main men we eat.", "it leads to the main menu"), *clips])[0]
    assert other is not None
    assert "heard 'menu' where the text says 'men we eat'" in other.sentence.lower()


def test_a_listener_unfamiliar_with_the_voice_rejects_no_clip() -> None:
    choices = random.Random(1)
    clips = [clip(text, misheard(text, 0.9, choices)) for text in SENTENCES]
    assert verdicts(clips) == [None] * len(clips)
    assert understood_too_little(clips, SETTINGS) == [POCKETSPHINX]


def test_each_listener_is_judged_by_its_own_errors() -> None:
    choices = random.Random(1)
    poor = [clip(text, misheard(text, 0.9, choices)) for text in SENTENCES]
    good = [clip(text, text, transcriber="whisper base") for text in SENTENCES]
    assert verdicts([*poor, *good]) == [None] * len(poor) + [Verdict.ACCEPTED] * len(good)


def test_a_poor_listener_accuses_less() -> None:
    usual = [0.02, 0.05, 0.1, 0.03]
    good, poor = calibrate(usual * 5, SETTINGS), calibrate([0.2, 0.3, 0.35, 0.25] * 5, SETTINGS)
    assert good.warned_beyond < poor.warned_beyond <= poor.rejected_beyond
    # One text in ten that is wrong does not move the limits far.
    assert calibrate(usual * 9 + [1.0] * 4, SETTINGS).warned_beyond < good.warned_beyond + 0.1


def test_the_order_of_clips_does_not_matter() -> None:
    choices = random.Random(2)
    clips = [clip(text, misheard(text, choices.random() / 2, choices)) for text in SENTENCES]
    order = choices.sample(range(len(clips)), len(clips))
    shuffled = verdicts([clips[place] for place in order])
    assert [shuffled[order.index(place)] for place in range(len(clips))] == verdicts(clips)


def test_a_single_clip_is_judged_by_the_default_calibration() -> None:
    assert verdicts([clip(SENTENCES[0], SENTENCES[0])]) == [Verdict.ACCEPTED]
    assert verdicts([clip(SENTENCES[0], SENTENCES[1])]) == [Verdict.REJECTED]
    assert verdicts([]) == []


@pytest.mark.parametrize(
    "unheard",
    [
        clip("Guten Morgen!", None, language="de"),
        clip("...", "something"),
        # A listener that guessed is no witness.
        clip(SENTENCES[0], "thank you for watching", doubt="The transcriber was guessing here."),
    ],
    ids=["no listener", "no text", "guessed"],
)
def test_without_a_listener_a_text_is_taken_as_given(unheard: ClipDetails) -> None:
    assert unheard.discrepancy is None
    assert verdicts([unheard, clip(SENTENCES[0], SENTENCES[0])]) == [None, Verdict.ACCEPTED]


def test_silence_where_a_text_is_given_is_no_agreement() -> None:
    clips = [clip(text, text) for text in SENTENCES]
    found = gates_of([*clips, clip("Something was said here.", "", doubt="The transcriber detected no speech.")])[-1]
    assert found is not None
    assert found.verdict is Verdict.REJECTED
    assert "No words were heard" in found.sentence


def test_names_count_for_nothing() -> None:
    name, heard = "Call Digium about the server.", "call d g m about the server"
    assert clip(name, heard).discrepancy == 0.0
    assert clip("Digium", "anything").discrepancy == 0.0
    # A Whisper has no dictionary that lacks them.
    unexplained = clip(name, heard, transcriber="whisper base").discrepancy
    assert unexplained is not None
    assert unexplained > 0.1


def found_by(heard: str, sureness: float = 0.9, unjudged: Collection[str] = ()) -> float:
    words = tuple((word, sureness) for word in heard.split())
    return discrepancy(SENTENCES[2], heard, words, unjudged=frozenset(unjudged))


def test_words_the_listener_was_sure_of_weigh_more() -> None:
    assert found_by("it keeps for a night", 0.9) > found_by("it keeps for a night", 0.1) > found_by(SENTENCES[2]) == 0


@pytest.mark.parametrize("heard", ["we rang the bell for four hours until the crew was safe", SENTENCES[5]])
def test_numbers_may_be_written_either_way(heard: str) -> None:
    assert clip(SENTENCES[5], heard).discrepancy == 0.0
