"""A comparison from choosing sides to keeping the winner, with a real checkpoint and the sample voices."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from backend.audio.loudness import measure_loudness
from backend.comparisons.comparison import LETTERS
from backend.comparisons.contenders import find_side
from backend.comparisons.errors import ComparisonError
from backend.comparisons.make_comparison import ComparisonOrder, ComparisonProgress, FinishedComparison, match_loudness
from backend.errors import EncoreError
from backend.evaluation.take_scores import read_own_wav
from backend.serving.requests import SynthesisRequest
from backend.settings import Settings
from backend.studio import Studio
from backend.voices.consent import Consent
from backend.voices.errors import VoiceNameTaken
from tests.backend.comparisons.examples import comparison
from tests.backend.voices.checkpoints import SPEAKER, fine_tuned_checkpoint
from tests.golden import GOLDEN_CHECKPOINT
from training.model.prompt.length import expected_seconds

RATE = 24_000


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    studio = Studio(Settings(home=tmp_path_factory.mktemp("home")))
    studio.load_model(str(GOLDEN_CHECKPOINT), precision="fp32", device="cpu")
    return studio


@pytest.fixture(scope="module")
def sides(studio):
    return {side.key: side for side in studio.comparisons.list_sides()}


@pytest.fixture(scope="module")
def finished(studio, sides, tmp_path_factory):
    """One blind comparison of a sample in both ways, and the steps on the way to it."""
    folder = tmp_path_factory.mktemp("takes")
    chosen = (sides["sample:iris:in-context:"], sides["sample:iris:x-vector:"])
    order = ComparisonOrder(sides=chosen, text="Hello there.", seed=5)
    return list(studio.comparisons.compare(studio.loaded, order, lambda name: folder / name))


def test_samples_can_be_compared_on_the_first_visit(sides):
    assert {"sample:iris:in-context:", "sample:owen:x-vector:", "sample:rufus:in-context:"} <= sides.keys()


def test_progress_comes_first_and_the_comparison_last(finished):
    *progress, last = finished
    assert isinstance(last, FinishedComparison)
    assert all(isinstance(step, ComparisonProgress) for step in progress)
    assert {step.doing for step in progress} == {"loading", "speaking", "measuring"}


def test_takes_are_loud_alike_and_measured(finished, studio):
    comparison, paths = finished[-1].comparison, finished[-1].paths
    assert set(paths) == {"A", "B"}
    loudnesses = [measure_loudness(*read_own_wav(path)) for path in paths.values()]
    assert abs(loudnesses[0] - loudnesses[1]) < 0.2
    assert {take.side.way for take in comparison.takes} == {"in-context", "x-vector"}
    for take in comparison.takes:
        samples, rate = read_own_wav(paths[take.letter])
        assert take.seconds == pytest.approx(len(samples) / rate, abs=1e-3)
        assert take.scores.duration_ratio == pytest.approx(take.seconds / expected_seconds("Hello there.", "auto"))
        assert -1 <= take.scores.speaker_similarity <= 1
    assert studio.comparisons.votes.get(comparison.id) == comparison


def test_the_winner_is_kept_as_a_voice(finished, studio):
    comparing, comparison = studio.comparisons, finished[-1].comparison
    with pytest.raises(ComparisonError, match="votes are even"):
        comparing.keep(studio.loaded, comparison.id, "Iris")
    letter = next(take.letter for take in comparison.takes if take.side.way == "x-vector")
    comparing.votes.vote(comparison.id, letter)
    voice = comparing.keep(studio.loaded, comparison.id, "Iris by sound")
    assert voice.transcript is None
    assert voice.consent.statement == "synthetic"
    assert voice.provenance["chosen_in_comparison"] == comparison.id
    assert studio.voices.get("iris by sound").reference.is_file()
    with pytest.raises(VoiceNameTaken):
        comparing.keep(studio.loaded, comparison.id, "Iris by sound")


def test_letters_are_given_out_by_chance_only_where_it_is_blind(studio, sides, tmp_path):
    chosen = (sides["sample:iris:x-vector:"], sides["sample:owen:x-vector:"], sides["sample:rufus:x-vector:"])
    numbers = itertools.count()
    order = ComparisonOrder(sides=chosen, text="Hm.", seed=1, is_blind=False)
    steps = studio.comparisons.compare(studio.loaded, order, lambda name: tmp_path / f"{next(numbers)}-{name}")
    comparison = list(steps)[-1].comparison
    assert [(take.letter, take.side.id) for take in comparison.takes] == list(
        zip(LETTERS, ("iris", "owen", "rufus"), strict=True)
    )


def test_a_voice_of_the_library_speaks_in_every_way_it_can(studio, tmp_path):
    reference = studio.sample_reference("owen")
    consent = None
    with pytest.raises(EncoreError, match="consent"):
        studio.save_voice("Owen", reference, consent=consent)
    from_sample = next(side for side in studio.comparisons.list_sides() if side.id == "owen")
    voice = studio.comparisons.contenders.keep(from_sample, "Owen", studio.loaded.name, {})
    ways = [side.way for side in studio.comparisons.list_sides() if side.id == voice.id]
    assert ways == ["in-context", "x-vector"]
    in_context, by_sound = (
        studio.loaded.prompt(SynthesisRequest(voice=voice, mode=mode, text="Hm."))
        for mode in ("in-context", "x-vector")
    )
    assert in_context.is_in_context
    assert not by_sound.is_in_context
    assert (in_context.speaker == by_sound.speaker).all()
    with pytest.raises(EncoreError, match="cannot be spoken like that"):
        studio.loaded.speak(SynthesisRequest(voice=voice, mode="fine-tuned", text="Hm."))


def test_a_stopped_comparison_ends_without_a_result(studio, sides, tmp_path):
    order = ComparisonOrder(
        sides=(sides["sample:iris:x-vector:"], sides["sample:owen:x-vector:"]), text="Say it again. " * 60, seed=1
    )
    steps = list(studio.comparisons.compare(studio.loaded, order, lambda name: tmp_path / name, cancelled=lambda: True))
    assert not any(isinstance(step, FinishedComparison) for step in steps)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("keys", "text", "words"),
    [
        (["sample:iris:x-vector:"], "Hello.", "two or three"),
        (["sample:iris:x-vector:"] * 2, "Hello.", "two or three"),
        (["sample:iris:x-vector:", "sample:owen:x-vector:"], " ", "no text"),
        (["sample:iris:x-vector:", "sample:owen:x-vector:"], "x" * 1001, "the limit is 1000"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_words(sides, keys, text, words):
    with pytest.raises(EncoreError, match=words):
        ComparisonOrder(sides=tuple(sides[key] for key in keys), text=text).check()


def test_a_deleted_voice_cannot_be_compared(sides):
    with pytest.raises(ComparisonError, match="no longer exists"):
        find_side(tuple(sides.values()), "voice:gone:x-vector:")


def test_loudness_is_that_of_the_take_that_allows_least():
    time = np.arange(RATE) / RATE
    tone = np.sin(2 * np.pi * 400 * time).astype(np.float32)
    peaky = np.random.default_rng(0).normal(0, 0.002, RATE).astype(np.float32)
    peaky[::4000] = 0.9  # its peaks allow hardly any gain
    matched = match_loudness([(0.5 * tone, RATE), (peaky, RATE), (np.zeros(RATE, np.float32), RATE)])
    levels = [measure_loudness(samples, RATE) for samples, _ in matched]
    assert levels[0] == pytest.approx(levels[1], abs=0.1)
    assert math.isinf(levels[2])
    assert all(np.abs(samples).max() <= 1 for samples, _ in matched)
    assert matched[0][1] == pytest.approx(levels[0] - measure_loudness(0.5 * tone, RATE), abs=0.1)


def test_a_fine_tuned_voice_speaks_with_its_own_checkpoint_and_with_the_base_model(studio, tmp_path):
    voice = studio.voices.add_fine_tuned(
        "Anna tuned",
        {"custom_voice": fine_tuned_checkpoint(tmp_path / "export", scale=0.5)},
        consent=Consent.give("Anna Example", "own-voice"),
        model="mini",
        reference=studio.sample_reference("rufus"),
        transcript="I repair clocks.",
    )
    sides = {side.way: side for side in studio.comparisons.list_sides() if side.id == voice.id}
    assert list(sides) == ["fine-tuned", "in-context", "x-vector"]
    contenders = studio.comparisons.contenders
    tuned = SynthesisRequest(voice=voice, mode=contenders.find(sides["fine-tuned"]).mode, text="Hm.", seed=1)
    assert studio.loaded.prompt(tuned).speaker_name == SPEAKER
    assert studio.loaded.statistics().keys() == {"base", voice.id}
    zero_shot = tuned.model_copy(update={"mode": contenders.find(sides["in-context"]).mode})
    assert studio.loaded.prompt(zero_shot).is_in_context
    order = ComparisonOrder(sides=(sides["fine-tuned"], sides["x-vector"]), text="Hm.", seed=1)
    finished = list(studio.comparisons.compare(studio.loaded, order, lambda name: tmp_path / name))[-1]
    assert {take.side.way for take in finished.comparison.takes} == {"fine-tuned", "x-vector"}
    # The way meant for it, under its name: nothing new is made. Another name is not ignored.
    assert contenders.keep(sides["fine-tuned"], "anna tuned", studio.loaded.name, {}).id == voice.id
    another = contenders.keep(sides["fine-tuned"], "Another", studio.loaded.name, {})
    assert (another.name, another.kind, another.consent) == ("Another", "fine-tuned", voice.consent)
    assert another.variants.keys() == voice.variants.keys()
    assert another.id != voice.id
    # Its zero-shot side won: that becomes a voice of its own.
    by_sound = contenders.keep(sides["x-vector"], "Anna by sound", studio.loaded.name, {})
    assert (by_sound.kind, by_sound.transcript) == ("zero-shot", None)
    assert by_sound.consent == voice.consent
    studio.delete_voice("Anna tuned")
    with pytest.raises(EncoreError, match="no voice"):
        contenders.find(sides["fine-tuned"])


def test_keep_keeps_what_all_votes_say_under_the_name_that_was_typed(studio, sides):
    """The winner of the last round was kept, whatever the rounds before had said."""
    comparisons = studio.comparisons
    ahead, behind = sides["sample:iris:in-context:"], sides["sample:owen:in-context:"]

    def vote(verdict):
        made = comparison(ahead, behind)
        comparisons.votes.add(made)
        comparisons.votes.vote(made.id, verdict)
        return made.id

    for verdict in ("A", "A", "same"):
        vote(verdict)
    last = vote("B")
    assert comparisons.preferred(last) == ahead
    kept = comparisons.keep(studio.loaded, last, "As I typed it")
    assert (kept.name, kept.provenance["sample"]) == ("As I typed it", "iris")
    even = vote("B")
    assert comparisons.preferred(even) is None
    with pytest.raises(ComparisonError, match="votes are even"):
        comparisons.keep(studio.loaded, even, "Nobody")
    assert [(side.way, votes.num_decided) for side, votes in comparisons.standing(kept)] == []
