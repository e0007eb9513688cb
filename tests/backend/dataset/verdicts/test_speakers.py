"""The stranger in a set is found; reference and held-out clips are chosen alike each time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from backend.dataset.clips.encoded_clip import ClipVoice
from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.thresholds import GateSettings
from backend.dataset.verdicts.decide_verdicts import (
    ReferenceCandidate,
    choose_held_out,
    choose_reference,
    review_speakers,
)
from backend.dataset.verdicts.speakers import speaker_distances
from tests.real_voices import REAL_VOICE_HZ, drawn_prompts, needs_real_voice, read_g722, short_recordings
from training.model.speaker_verifier import load_verifier

SETTINGS = GateSettings()


def voices(*counts: int, width: int = 64, spread: float = 0.03) -> list[list[float]]:
    """Embeddings of several speakers in a row, `counts` of each."""
    generator = np.random.default_rng(0)
    embeddings = []
    for count in counts:
        speaker = generator.normal(size=width) / np.sqrt(width)
        embeddings += [list(speaker + generator.normal(size=width) * spread) for _ in range(count)]
    return embeddings


def clips_of(embeddings: list[list[float]]) -> list[ClipVoice]:
    return [ClipVoice(embedding=np.array(embedding, np.float32)) for embedding in embeddings]


def verdicts(embeddings: list[list[float]]) -> list[Verdict]:
    return verdicts_on(clips_of(embeddings))


def verdicts_on(clips: list[ClipVoice]) -> list[Verdict]:
    reviewed = review_speakers(dict(enumerate(clips)), SETTINGS)
    return [gate.verdict for _, gate in reviewed.values() if gate is not None]


def test_strangers_are_found_and_the_others_are_not():
    assert verdicts(voices(12, 2)) == [Verdict.ACCEPTED] * 12 + [Verdict.REJECTED] * 2


def test_clips_of_one_speaker_are_not_called_strangers():
    assert set(verdicts(voices(20))) == {Verdict.ACCEPTED}


def test_the_same_clip_many_times_has_no_strangers():
    assert set(verdicts([[1.0, 2.0, 3.0]] * 5)) == {Verdict.ACCEPTED}


def test_a_silent_embedding_is_no_division_by_zero():
    assert np.isfinite(speaker_distances(clips_of([[0.0, 0.0], [1.0, 0.0], [1.0, 0.1]])).distances).all()


def test_the_verifier_decides_where_it_knows_all_clips():
    """Alike for the model, which knows no people; two speakers for the verifier."""
    prints = [np.array(one, np.float32) for one in voices(12, 2, spread=0.01)]
    alike = np.ones(8, np.float32)
    known = [ClipVoice(embedding=alike, voiceprint=one) for one in prints]
    assert verdicts_on(known) == [Verdict.ACCEPTED] * 12 + [Verdict.REJECTED] * 2
    assert set(verdicts_on([*known[:-1], ClipVoice(embedding=alike)])) == {Verdict.ACCEPTED}, "one is of an older build"


@needs_real_voice
def test_of_real_people_the_other_one_is_found():
    verifier = load_verifier()
    assert verifier is not None
    own = [prompt.samples() for prompt in drawn_prompts(20)]
    others = short_recordings(3, shortest=2.5, longest=6.0)
    others.pop("en_US_f_Allison", None)
    for name, paths in others.items() or [("", [])]:
        sounds = [*own, *map(read_g722, paths)]
        clips = [
            ClipVoice(embedding=np.ones(8, np.float32), voiceprint=verifier.embed(sound, sample_rate=REAL_VOICE_HZ))
            for sound in sounds
        ]
        found = verdicts_on(clips)
        assert sum(verdict is not Verdict.ACCEPTED for verdict in found[: len(own)]) <= 1
        assert Verdict.REJECTED not in found[: len(own)]
        assert Verdict.ACCEPTED not in found[len(own) :], name


@given(st.sets(st.text("0123456789abcdef", min_size=8, max_size=8), min_size=1, max_size=600))
def test_held_out_clips_are_few_and_never_the_reference(clip_ids: set[str]):
    reference = min(clip_ids)
    held_out = choose_held_out(clip_ids, reference, SETTINGS)
    assert held_out == choose_held_out(sorted(clip_ids), reference, SETTINGS)
    assert reference not in held_out
    assert held_out <= clip_ids
    assert len(held_out) <= SETTINGS.max_held_out
    if len(clip_ids) >= 4:
        assert len(held_out) >= 1
        assert len(clip_ids) - len(held_out) >= 3
    else:
        assert not held_out


def candidate(clip_id: str, **changes: float | bool) -> ReferenceCandidate:
    facts = {"seconds": 7.0, "is_clean": True, "distance": 0.1, "speech_over_noise_db": 30.0} | changes
    return ReferenceCandidate(clip_id=clip_id, **facts)


def test_the_reference_is_clean_then_of_good_length_then_near_the_centre():
    warned = candidate("warned", is_clean=False, distance=0.0)
    short, far, noisy = (
        candidate("short", seconds=3.0),
        candidate("far", distance=0.3),
        candidate("noisy", speech_over_noise_db=15.0),
    )
    assert choose_reference([warned, short, far, noisy, candidate("best")], SETTINGS) == "best"
    assert choose_reference([warned, short, far], SETTINGS) == "far"
    assert choose_reference([warned, short], SETTINGS) == "short"
    assert choose_reference([warned], SETTINGS) == "warned"
