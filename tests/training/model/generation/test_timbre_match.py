"""Takes of a cloned voice are moved to the timbre of its recording, whatever else the batch holds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from tests.single_take import Synthesizer
from training.model.codec.quantizer import CodeVectors, EntryTable
from training.model.errors import ModelError, PromptError
from training.model.generation.take_batch import TakeBatch
from training.model.generation.take_request import TakeRequest, VoicePrompt, check_voice
from training.model.generation.timbre_match import MAX_MATCHED_SECONDS, TimbreMatch, _transport, match_timbre
from training.model.project import PROJECT_FOLDER
from training.model.voice_model import VoiceModel

NUM_FRAMES = 12


@pytest.fixture(scope="module")
def model(golden_model):
    return dataclasses.replace(golden_model, matches_timbre=True)


@pytest.fixture(scope="module")
def codes(model):
    """As of a recording of two seconds; of few codes, so that it is unlike what the talker makes."""
    return torch.randint(0, 8, (25, 16), generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def timbre(model, speaker, codes):
    found = match_timbre(model, speaker, codes, "What it says.")
    assert found is not None
    return found


def request_of(speaker, timbre, *, seed=5, codes=None):
    voice = VoicePrompt(
        speaker=speaker,
        timbre=timbre,
        reference_codes=codes,
        reference_text=None if codes is None else "What it says.",
    )
    return TakeRequest(text="Hello.", voice=voice, seed=seed, max_frames=NUM_FRAMES)


def points(seed, number, mean, spread):
    draw = np.random.default_rng(seed)
    turned = np.linalg.qr(draw.normal(size=(6, 6)))[0]
    return mean + (draw.normal(size=(number, 6)) * spread) @ turned


def test_with_many_frames_points_get_the_mean_and_the_spread_of_the_recording():
    own = points(1, 20_000, 0.5, np.array([3, 2, 1, 1, 0.5, 0.3]))
    wanted = points(2, 20_000, -1.0, np.array([1, 1, 2, 4, 1, 0.5]))
    match = _transport(own, wanted)
    moved = own @ match.matrix_EE.double().numpy().T + match.offset_E.double().numpy()
    assert moved.mean(axis=0) == pytest.approx(wanted.mean(axis=0), abs=0.01)
    before, after = (np.linalg.norm(np.cov(one.T) - np.cov(wanted.T)) for one in (own, moved))
    assert after < 0.05 * before


def test_what_a_voice_is_like_already_is_not_moved():
    own = points(1, 200, 0.5, np.array([3, 2, 1, 1, 0.5, 0.0]))
    match = _transport(own, own)
    assert match.matrix_EE == pytest.approx(torch.eye(6), abs=1e-3)
    assert match.offset_E == pytest.approx(torch.zeros(6), abs=1e-3)


def test_a_short_recording_changes_the_spread_less_than_a_long_one():
    own = points(1, 2000, 0.0, np.ones(6))
    wanted = points(2, 2000, 0.0, 3 * np.ones(6))
    short, long = (_transport(own, wanted[:number]).matrix_EE for number in (15, 2000))
    assert 1 < short.trace() / 6 < 2.4 < long.trace() / 6 < 3.1


def test_vectors_of_codes_are_sums_of_entries_and_their_codes_are_at_most_as_far_away():
    draw = torch.Generator().manual_seed(0)
    tables = [EntryTable(torch.randn(20, 5, generator=draw) / 2**book) for book in range(4)]
    vectors = CodeVectors(tables)
    codes_NQ = torch.randint(0, 20, (30, 4), generator=draw)
    wanted = sum(table.entries_VD[codes_NQ[:, book]] for book, table in enumerate(tables))
    assert torch.allclose(vectors.vectors(codes_NQ), wanted)
    anything = torch.randn(30, 5, generator=draw)
    left = [anything.norm(dim=1)]
    for number in range(1, 5):
        first = CodeVectors(tables[:number])
        left.append((anything - first.vectors(first.codes(anything))).norm(dim=1))
    assert left[-1].mean() < left[0].mean() / 2


def test_the_same_recording_gives_the_same_match(model, speaker, codes, timbre):
    again = match_timbre(model, speaker, codes, "What it says.")
    assert torch.equal(again.matrix_EE, timbre.matrix_EE)
    assert torch.equal(again.offset_E, timbre.offset_E)
    without_text = match_timbre(model, speaker, codes)
    assert not torch.equal(without_text.matrix_EE, timbre.matrix_EE)


def test_only_models_that_need_it_have_a_match_and_only_of_a_second_or_more(golden_model, model, speaker, codes):
    assert match_timbre(golden_model, speaker, codes) is None
    assert match_timbre(model, speaker, codes[:11]) is None
    assert match_timbre(model, speaker, codes[:12]) is not None


def test_a_text_that_cannot_be_what_is_said_is_not_read(model, speaker, codes):
    without_text = match_timbre(model, speaker, codes)
    endless = match_timbre(model, speaker, codes, "What it says, and so on. " * 20_000)
    assert torch.equal(endless.matrix_EE, without_text.matrix_EE)


def test_a_recording_of_nothing_but_one_sound_has_a_match_that_can_be_used(model, speaker):
    match = match_timbre(model, speaker, torch.full((40, 16), 3))
    assert match.fits(model)
    moved = match.moved(torch.full((16,), 5), model.acoustic_vectors)
    assert 0 <= moved.min() <= moved.max() < 64


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_the_match_of_other_precisions_is_about_the_same(speaker, codes, precision):
    def found(wanted):
        loaded = VoiceModel.load(PROJECT_FOLDER / "assets" / "mini", precision=wanted, device="cpu")
        embedding = torch.zeros(loaded.config.talker.hidden_size)
        return match_timbre(loaded, embedding, codes.repeat(8, 1), "What it says.")

    try:
        other = found(precision)
    except ModelError as error:
        pytest.skip(str(error))
    exact = found("fp32")
    change = (other.matrix_EE - exact.matrix_EE).norm() / (exact.matrix_EE - torch.eye(len(exact.offset_E))).norm()
    assert change < 0.3


def test_of_a_long_recording_the_beginning_is_used(model, speaker):
    long = torch.randint(0, 64, (400, 16), generator=torch.Generator().manual_seed(4))
    beginning = long[: round(MAX_MATCHED_SECONDS * 12.5)]
    whole = match_timbre(model, speaker, long)
    assert torch.equal(whole.matrix_EE, match_timbre(model, speaker, beginning).matrix_EE)


@pytest.mark.parametrize("continues", [False, True])
def test_a_take_is_what_the_talker_drew_with_its_acoustic_codes_moved(model, speaker, codes, timbre, continues):
    synthesizer = Synthesizer(model)
    reference = codes if continues else None
    drawn = synthesizer.speak(request_of(speaker, None, codes=reference))
    moved = synthesizer.speak(request_of(speaker, timbre, codes=reference))
    wanted = torch.stack([timbre.moved(frame, model.acoustic_vectors) for frame in drawn.codes])
    assert torch.equal(moved.codes, wanted)
    assert torch.equal(moved.codes[:, 0], drawn.codes[:, 0])
    assert not torch.equal(moved.codes, drawn.codes)
    assert len(moved.waveform) == len(drawn.waveform)


def test_takes_of_a_batch_are_moved_each_by_their_own_match(model, speaker, timbre):
    other = TimbreMatch(matrix_EE=timbre.matrix_EE * 0.5, offset_E=timbre.offset_E + 1)
    requests = [request_of(speaker, one, seed=7 + slot) for slot, one in enumerate((timbre, None, other))]
    batch = TakeBatch(model, num_slots=3, cache_length=256)
    for slot, request in enumerate(requests):
        batch.admit(slot, batch.lay_out(request), request.voice)
    frames = [[], [], []]
    while len(batch.free_slots) < 3:
        step = batch.step()
        for slot in step.spoke:
            frames[slot].append(step.codes_BQ[slot])
    for request, own in zip(requests, frames, strict=True):
        alone = TakeBatch(model, num_slots=3, cache_length=256)
        alone.admit(0, alone.lay_out(request), request.voice)
        expected = []
        while len(alone.free_slots) < 3:
            step = alone.step()
            expected += [step.codes_BQ[slot] for slot in step.spoke]
        assert torch.equal(torch.stack(own), torch.stack(expected))


def test_a_model_that_matches_timbre_keeps_its_talker_for_the_next_voice(speaker, codes):
    loaded = VoiceModel.load(PROJECT_FOLDER / "assets" / "mini", precision="fp32", device="cpu")
    assert loaded.matches_timbre
    TakeBatch(loaded, num_slots=1, cache_length=64)
    embedding = torch.zeros(loaded.config.talker.hidden_size)
    assert match_timbre(loaded, embedding, codes) is not None


def test_a_match_of_another_model_is_refused(golden_model, model, speaker, timbre):
    check_voice(model, VoicePrompt(speaker=speaker, timbre=timbre))
    narrow = TimbreMatch(matrix_EE=timbre.matrix_EE[:-1, :-1], offset_E=timbre.offset_E[:-1])
    broken = TimbreMatch(matrix_EE=timbre.matrix_EE * torch.nan, offset_E=timbre.offset_E)
    for one, of_model in ((narrow, model), (broken, model), (timbre, golden_model)):
        with pytest.raises(PromptError, match="another model"):
            check_voice(of_model, VoicePrompt(speaker=speaker, timbre=one))


def test_a_voice_keeps_its_match_without_its_context_and_loses_it_with_an_adapter(speaker, codes, timbre):
    voice = VoicePrompt(speaker=speaker, reference_codes=codes, reference_text="What it says.", timbre=timbre)
    assert voice.without_context() == VoicePrompt(speaker=speaker, timbre=timbre)
    assert voice.adapted(object()).timbre is None
    assert voice.adapted(object()).is_in_context
