"""Each gate lets good clips through, warns, and rejects with a sentence that names the number."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from backend.dataset.clips import gates as verdicts
from backend.dataset.clips.gates import GateResult, Verdict, overall
from backend.dataset.clips.thresholds import GateSettings

SETTINGS = GateSettings()
ACCEPTED, WARNED, REJECTED = Verdict.ACCEPTED, Verdict.WARNED, Verdict.REJECTED
SENTENCE = "The quick brown fox jumps over the lazy dog."


@pytest.mark.parametrize(
    ("gate", "values"),
    [
        (
            lambda value, settings: verdicts.check_range(verdicts.TOO_SHORT, verdicts.TOO_LONG, value, settings),
            {6.0: ACCEPTED, 1.5: WARNED, 13.0: WARNED, 0.6: REJECTED, 16.0: REJECTED},
        ),
        (verdicts.LEVEL.check, {-20.0: ACCEPTED, -45.0: WARNED, -60.0: REJECTED}),
        (verdicts.CLIPPING.check, {0.0: ACCEPTED, 0.005: WARNED, 0.02: REJECTED}),
        (verdicts.NOISE.check, {40.0: ACCEPTED, 15.0: WARNED, 5.0: REJECTED}),
        (verdicts.SILENCE.check, {0.2: ACCEPTED, 0.6: WARNED, 0.9: REJECTED}),
        (verdicts.BANDWIDTH.check, {11_000.0: ACCEPTED, 5_500.0: WARNED, 3_400.0: REJECTED}),
        (verdicts.CONFIDENCE.check, {0.95: ACCEPTED, 0.5: WARNED, 0.1: REJECTED}),
    ],
    ids="length level clipping noise silence bandwidth confidence".split(),
)
def test_one_number_decides(gate: Callable[[float, GateSettings], GateResult], values: dict[float, Verdict]):
    for value, verdict in values.items():
        result = gate(value, SETTINGS)
        assert (result.verdict, result.value) == (verdict, value)
        assert bool(result.sentence) == (verdict is not ACCEPTED)


@pytest.mark.parametrize(
    ("text", "seconds", "verdict"),
    [
        (SENTENCE, 3.0, ACCEPTED),
        (SENTENCE, 9.0, WARNED),
        ("Yes.", 9.0, REJECTED),
        (SENTENCE, 1.3, WARNED),
        (SENTENCE * 4, 3.0, REJECTED),
        ("今天天气很好我们一起去公园散步吧", 4.0, ACCEPTED),
        ("오늘은 날씨가 참 좋습니다", 2.5, ACCEPTED),
    ],
)
def test_a_text_has_to_fit_the_length_of_its_sound(text: str, seconds: float, verdict: Verdict):
    assert verdicts.speaking_rate_gate(text, seconds, SETTINGS).verdict is verdict


def test_a_stranger_is_far_away_and_unusual():
    limits = SETTINGS.own_speaker
    assert verdicts.speaker_gate(0.5, 20.0, limits).verdict is REJECTED
    assert verdicts.speaker_gate(0.2, 5.0, limits).verdict is WARNED
    assert verdicts.speaker_gate(0.5, 1.0, limits).verdict is ACCEPTED  # a set of shouting and whispering
    assert verdicts.speaker_gate(0.05, 9.0, limits).verdict is ACCEPTED  # a set of clips that are nearly the same


def test_the_same_sound_is_rejected_and_the_same_text_only_mentioned():
    assert verdicts.DUPLICATE_AUDIO.check(1.0, SETTINGS, twin="a.wav at 0:03").verdict is REJECTED
    assert "a.wav at 0:03" in verdicts.DUPLICATE_AUDIO.check(1.0, SETTINGS, twin="a.wav at 0:03").sentence
    assert verdicts.DUPLICATE_AUDIO.check(0.4, SETTINGS, twin="").verdict is ACCEPTED
    assert [verdicts.duplicate_text_gate(count).verdict for count in (0, 2)] == [ACCEPTED, WARNED]


def test_the_heaviest_verdict_wins():
    results = [verdicts.LEVEL.check(-20.0, SETTINGS), verdicts.LEVEL.check(-45.0, SETTINGS)]
    assert overall(results) is WARNED
    assert overall([*results, verdicts.missing_text_gate("There is no text.")]) is Verdict.NEEDS_TEXT
    assert overall([verdicts.failure_gate("It broke."), verdicts.missing_text_gate("There is no text.")]) is REJECTED
    assert overall([]) is ACCEPTED


def test_thresholds_are_settings():
    strict = GateSettings(quiet_speech_dbfs=-15.0)
    assert verdicts.LEVEL.check(-20.0, strict).verdict is WARNED


def test_every_limit_is_a_setting_and_rejecting_is_beyond_warning():
    table = [gate for gate in vars(verdicts).values() if isinstance(gate, verdicts.Gate)]
    assert len(table) == 11
    for gate in table:
        rejected, warned = getattr(SETTINGS, gate.rejected), getattr(SETTINGS, gate.warned)
        assert rejected <= warned if gate.direction == "below" else rejected >= warned
