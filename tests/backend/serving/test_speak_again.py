"""A part of a take spoken again: in its place, with the stream's seams, all others bit by bit the same."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.audio.pcm16 import to_pcm16
from backend.serving.requests import Reference, SynthesisRequest
from backend.serving.speak_again import put_in_place, request_again, spoken_from
from backend.serving.speech.audio_stream import AudioStream, TimeLeft
from backend.serving.speech.crossfade import CROSSFADE_SECONDS
from backend.takes.errors import PartNotRepeatable, TakeTooShort
from backend.takes.parts import TakePart
from backend.takes.take import Take, TakeFacts, TakeOrigin
from backend.voices.consent import Consent
from tests.backend.serving.speech.test_audio_stream import SENTENCE
from training.model.generation.finish_reason import FinishReason

RATE = 24_000
OVERLAP = round(CROSSFADE_SECONDS * RATE)
ORIGIN = TakeOrigin(made_by="studio", voice="Ann", model_name="mini", is_fine_tuned=False, consent=None)


def take_of(facts, tmp_path, **changes):
    known = {"id": "a", "owner": "", "number": 1, "made_at": "2026-01-01T00:00:00Z", "num_bytes": 1}
    return Take(**dict(facts) | known | {"path": tmp_path / "a.wav"} | changes)


def facts_of(lengths, **changes):
    starts = np.cumsum([0, *[length - OVERLAP for length in lengths[:-1]]])
    parts = tuple(
        TakePart(
            text=f"Part {n}.",
            seed=n,
            finish_reason=FinishReason.EOS,
            start_seconds=start / RATE,
            seconds=length / RATE,
            expected_seconds=1.0,
        )
        for n, (start, length) in enumerate(zip(starts, lengths, strict=True), 1)
    )
    known = {"text": "All.", "is_in_context": False, "language": "auto", "sampling": None, "seeds": (1,)}
    known |= {"seconds": sum(lengths) / RATE, "real_time_factor": 0.5, "seconds_to_first_audio": 0.1}
    known |= {"finish_reason": FinishReason.EOS, "parts": parts}
    return TakeFacts(**dict(ORIGIN) | known | changes)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_all_other_parts_stay_bit_by_bit_what_they_were(tmp_path_factory, data):
    lengths = data.draw(st.lists(st.integers(4 * OVERLAP, 12 * OVERLAP), min_size=1, max_size=5))
    number = data.draw(st.integers(1, len(lengths)))
    length = data.draw(st.integers(4 * OVERLAP, 12 * OVERLAP))
    noise = np.random.default_rng(data.draw(st.integers(0, 99)))
    facts = facts_of(lengths)
    before = noise.integers(-32767, 32767, sum(lengths) - OVERLAP * (len(lengths) - 1), dtype=np.int16)
    spoken = noise.uniform(-1, 1, length).astype(np.float32)
    take = take_of(facts, tmp_path_factory.getbasetemp())
    after, changes = put_in_place(before, RATE, take, number, spoken, facts_of([length], seeds=(77,)))

    def inside(samples, parts, index):
        start = round(parts[index].start_seconds * RATE)
        end = start + round(parts[index].seconds * RATE)
        return samples[start + (OVERLAP if index else 0) : end - (OVERLAP if index < len(parts) - 1 else 0)]

    for index in range(len(lengths)):
        found = inside(after, changes["parts"], index)
        if index == number - 1:
            begin = OVERLAP if index else 0
            assert np.array_equal(found, to_pcm16(spoken)[begin : begin + len(found)])
        else:
            assert np.array_equal(found, inside(before, facts.parts, index))
    assert len(after) == len(before) - lengths[number - 1] + length


def test_a_stream_knows_where_each_of_its_parts_is(engine, request_of, tmp_path):
    stream = AudioStream.of_engine(
        engine, replace(request_of, text=SENTENCE * 8, max_frames=8), streaming=True, origin=ORIGIN
    )
    seen, audio = [], []
    for chunk in stream:
        audio.append(chunk)
        seen.append(len(stream.parts))
    whole = np.concatenate(audio)
    parts = stream.facts().parts
    # As they finish, not at the end.
    assert {1, 2} <= set(seen)
    assert tuple(part.text for part in parts) == stream.segments
    ends = [part.start_seconds + part.seconds for part in parts]
    assert ends[-1] * RATE == pytest.approx(len(whole))
    for part, end in zip(parts[1:], ends, strict=False):
        assert (end - part.start_seconds) * RATE == pytest.approx(OVERLAP)
    # The same part again, as it is spoken alone, changes nothing but the seams.
    again = AudioStream.of_engine(
        engine, replace(request_of, text=parts[1].text, max_frames=8), streaming=True, origin=ORIGIN
    )
    spoken = np.concatenate(list(again))
    take = take_of(stream.facts(), tmp_path)
    after, changes = put_in_place(to_pcm16(whole), RATE, take, 2, spoken, again.facts())
    assert len(after) == len(whole)
    changed = np.flatnonzero(np.abs(after.astype(int) - to_pcm16(whole)) > 4) / RATE
    seams = (parts[1].start_seconds, parts[2].start_seconds)
    assert all(any(seam <= second <= seam + 2 * CROSSFADE_SECONDS for seam in seams) for second in changed)
    assert changes["parts"][2].start_seconds == pytest.approx(parts[2].start_seconds)


def test_a_take_far_too_short_for_its_text_is_an_error(engine, request_of, in_context_voice):
    request = replace(request_of, text=SENTENCE, voice=in_context_voice, max_frames=3)
    stream = AudioStream.of_engine(engine, request, streaming=True, origin=ORIGIN)
    list(stream)
    with pytest.raises(TakeTooShort, match=r"Too short \(0.2 s for 16 words\). Does the transcript match"):
        stream.check_length()
    stopped = AudioStream.of_engine(engine, replace(request, max_frames=40), streaming=True, origin=ORIGIN)
    next(stopped)
    stopped.cancel()
    list(stopped)
    stopped.check_length()
    assert stopped.facts().spoken_text.endswith("…")


def test_the_estimate_neither_jumps_nor_goes_back_and_forth():
    # 200 s of work, of which each part turns out a fifth shorter or longer than it was guessed to be.
    totals, left = [], TimeLeft()
    for now in range(1, 200):
        part = now // 20
        guess = (200 - now) * (0.8 if part % 2 else 1.2)
        totals.append(now + left.estimate(guess, float(now)))
    jumps = np.abs(np.diff(totals)) / np.asarray(totals[1:])
    # Each guess by itself jumps by a third.
    assert jumps[20:].max() < 0.05
    assert totals[-1] == pytest.approx(200, rel=0.05)


def test_progress_goes_by_characters_also_within_a_part(engine, request_of):
    stream = AudioStream.of_engine(engine, replace(request_of, text=SENTENCE * 8, max_frames=60), streaming=True)
    shares = []
    for _ in stream:
        shares.append(stream.progress().share_done)
    assert shares == sorted(shares)
    assert len(set(shares)) > len(stream.segments)
    assert shares[-1] <= 1


def test_what_spoke_a_take_speaks_its_part_again_while_it_is_there(tmp_path):
    recording = tmp_path / "ann.wav"
    recording.write_bytes(b"sound")
    voice = Reference(name="Ann", recording=recording, transcript="Hello.", consent=Consent.give("Ann", "own-voice"))
    request = SynthesisRequest(voice=voice, text="All.", instruction="Softly.", made_by="studio")
    origin = spoken_from(request)
    assert origin.recording_sha256 == hashlib.sha256(b"sound").hexdigest()
    take = take_of(facts_of([9000, 9000], spoken_from=origin, mark=7, speed=1.5, consent=voice.consent), tmp_path)
    again = request_again(take, 2, voices=None)
    assert (again.text, again.voice, again.mark, again.speed, again.seed) == ("Part 2.", voice, 7, 1.5, None)
    assert again.instruction == "Softly."
    recording.write_bytes(b"another")
    with pytest.raises(PartNotRepeatable, match="Add it again"):
        request_again(take, 1, voices=None)
    with pytest.raises(PartNotRepeatable, match="no part 3"):
        request_again(take, 3, voices=None)
    with pytest.raises(PartNotRepeatable, match="not kept"):
        request_again(take_of(facts_of([9000]), tmp_path), 1, voices=None)
