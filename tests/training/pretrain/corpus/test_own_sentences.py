"""Voices that say sentences of their own: always the same for a text, and changed as other voices are."""

from __future__ import annotations

import numpy as np
import pytest

from training.pretrain.corpus import own_sentences, tts_engines
from training.pretrain.corpus.speakers import FESTIVAL, RECORDED, by_name, foreign_speakers
from training.pretrain.errors import CorpusError

OWN_VOICES = ("asterisk-ru", "msu_ru_nsh_clunits")


def is_installed(voice: str) -> bool:
    return any(speaker.name == voice for speaker in tts_engines.installed_foreign_speakers())


@pytest.mark.parametrize("voice", OWN_VOICES)
def test_a_sentence_is_the_same_for_a_text_and_another_for_others(voice: str):
    if not is_installed(voice):
        pytest.skip(f"the voice {voice} is not installed (asterisk-core-sounds-ru-g722, festival, festvox-ru)")
    speaker = by_name()[voice]
    one, again, *others = (tts_engines.synthesize(speaker, text) for text in ("One.", "One.", "Two.", "Three."))
    assert np.array_equal(one, again)
    assert not any(np.array_equal(one, other) for other in others)
    assert all(len(sound) > 0.3 * tts_engines.SAMPLE_RATE_HZ for sound in (one, *others))


def test_pitch_and_rate_that_cannot_be_set_change_with_the_tract():
    fixed = [speaker for speaker in foreign_speakers() if speaker.engine in (FESTIVAL, RECORDED)]
    assert all(speaker.f0 == speaker.formants == speaker.rate for speaker in fixed)
    assert {speaker.voice for speaker in fixed if speaker.says_own_sentences} == set(OWN_VOICES)


@pytest.mark.parametrize("voice", OWN_VOICES)
def test_what_changes_pitch_and_rate_changes_the_tract_as_well(voice: str):
    own = [speaker for speaker in foreign_speakers() if speaker.voice == voice]
    assert len(own) > 20
    assert own[0].formants == 1.0
    assert all(speaker.says_own_sentences for speaker in own)
    if not is_installed(voice):
        pytest.skip(f"the voice {voice} is not installed (asterisk-core-sounds-ru-g722, festival, festvox-ru)")
    plain = next(speaker for speaker in own[1:] if speaker.timbre is None)
    lengths = [len(tts_engines.synthesize(speaker, "One.")) for speaker in (own[0], plain)]
    assert lengths[0] / lengths[1] == pytest.approx(plain.formants, rel=0.08)


@pytest.mark.parametrize(("name", "missing"), [("recorded", "_recordings"), ("own_sentence", "_sentences")])
def test_a_missing_voice_is_named(name: str, missing: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(own_sentences, missing, lambda: ())
    with pytest.raises(CorpusError, match=r"Install (asterisk-core-sounds-ru-g722|festvox-ru)"):
        getattr(own_sentences, name)("One.")
