"""The best checkpoint is the one that sounds best, and the person is told when none was worth it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from backend.evaluation.scores import CheckpointScores, EvaluatedTake, ListenerErrors
from backend.runs.process.select_checkpoint import choose, quality, standard_error_of_difference, winner
from backend.runs.storage.records import BASE, CheckpointRecord

FAIR = CheckpointScores(
    num_takes=4,
    character_error=0.05,
    word_error=0.1,
    speaker_similarity=0.6,
    verified_similarity=0.6,
    duration_ratio=1.0,
    finished_share=1.0,
    clipped_share=0.0,
)


def point(step: int, *, errors: Sequence[float] = (), **changes: object) -> CheckpointRecord:
    scores = FAIR.model_copy(update=changes)
    name = f"step-{step:08d}" if step else BASE
    takes = tuple(take(position, error) for position, error in enumerate(errors))
    return CheckpointRecord(name=name, step=step, saved_at=0.0, state="evaluated", scores=scores, takes=takes)


def take(position: int, error: float) -> EvaluatedTake:
    return EvaluatedTake(
        position=position,
        text="Said.",
        held_out=False,
        seed=position,
        seconds=1.0,
        expected_seconds=1.0,
        finish_reason="eos",
        file=f"{position}.wav",
        character_error=error,
    )


def test_the_most_similar_intelligible_checkpoint_wins() -> None:
    points = [
        point(0),
        point(10, verified_similarity=0.7),
        point(20, verified_similarity=0.8, character_error=0.6),
        point(30, verified_similarity=0.75),
    ]
    choice = choose(points)
    assert choice.best == "step-00000030"
    assert choice.beats_base is True
    assert "better than zero-shot" in choice.verdict
    assert "0.60 → 0.75" in choice.verdict


def test_the_verdict_gives_the_standard_error_of_a_difference() -> None:
    before, after = (0.1, 0.2, 0.3, 0.4), (0.2, 0.2, 0.5, 0.4)
    # Differences of 0.1, 0, 0.2 and 0: their standard deviation is 0.0957, and half of it with four sentences.
    assert standard_error_of_difference(point(0, errors=before), point(10, errors=after)) == pytest.approx(
        0.0479, abs=1e-4
    )
    assert "(by chance ±5%)" in choose([point(0, errors=before), point(10, errors=after)]).verdict
    assert standard_error_of_difference(point(0, errors=before[:2]), point(10, errors=after)) is None


@pytest.mark.parametrize(
    ("after", "beats"),
    [
        # Half of the sentences have fewer errors and half have more: .03 fewer on average, where chance makes .04.
        ((0.3, 0.1, 0.3, 0.18), False),
        # Each has .03 fewer.
        ((0.22, 0.22, 0.22, 0.22), True),
    ],
)
def test_fewer_errors_within_chance_beat_nothing(after: tuple[float, ...], beats: bool) -> None:
    before = (0.25, 0.25, 0.25, 0.25)
    points = [
        point(0, errors=before, character_error=0.25, verified_similarity=0.8),
        point(10, errors=after, character_error=sum(after) / 4, verified_similarity=0.79),
    ]
    assert choose(points).beats_base is beats
    # A voice that is more alike beats zero-shot whatever chance says of its words.
    alike = points[1].scores.model_copy(update={"verified_similarity": 0.85})
    assert choose([points[0], points[1].model_copy(update={"scores": alike})]).beats_base is True


def test_the_verdict_says_that_none_beats_zero_shot() -> None:
    choice = choose([point(0), point(10, verified_similarity=0.55), point(20, verified_similarity=0.4)])
    assert (choice.best, choice.beats_base) == ("step-00000010", False)
    assert choice.verdict.startswith("No checkpoint beats zero-shot")


@pytest.mark.parametrize(
    ("changes", "gains", "is_behind"),
    [
        ({"verified_similarity": 0.62}, {"likeness"}, False),
        ({"verified_similarity": 0.61}, set(), False),
        ({"verified_similarity": 0.55}, {"likeness"}, True),
        ({"verified_similarity": 0.9, "character_error": 0.12}, {"likeness", "words"}, True),
        ({"verified_similarity": 0.63, "character_error": 0.08}, {"likeness", "words"}, False),
        ({"finished_share": 0.75, "duration_ratio": 2.0}, {"endings", "pace"}, True),
    ],
)
def test_what_changed_beyond_chance_is_named(changes: dict[str, float], gains: set[str], is_behind: bool) -> None:
    choice = choose([point(0), point(10, **changes)])
    assert (set(choice.gains), choice.is_behind) == (gains, is_behind)
    assert choice.likeness == (0.6, changes.get("verified_similarity", 0.6))


def test_numbers_that_read_alike_are_judged_alike() -> None:
    by_number = {after: choose([point(0), point(10, verified_similarity=after)]).gains for after in (0.6151, 0.6249)}
    assert by_number[0.6151] == by_number[0.6249] == {"likeness": 0.02}


def test_the_winner_is_the_base_model_where_no_checkpoint_is_better() -> None:
    better, worse = [point(0), point(10, verified_similarity=0.7)], [point(0), point(10, verified_similarity=0.5)]
    assert winner("step-00000010", better) == "step-00000010"
    assert winner("step-00000010", worse) == BASE
    assert winner("step-00000010", better[1:]) == "step-00000010"
    assert winner(None, better) is None


def of_speakers(step: int, **similarities: float) -> CheckpointRecord:
    """A checkpoint of several speakers, who are so much like themselves."""
    own = {name: FAIR.model_copy(update={"verified_similarity": value}) for name, value in similarities.items()}
    mean = sum(similarities.values()) / len(own)
    return point(step, verified_similarity=mean, speakers=own)


def test_several_speakers_are_chosen_by_their_mean_and_the_worst_is_named() -> None:
    points = [of_speakers(0, Ann=0.6, Ben=0.6), of_speakers(10, Ann=0.9, Ben=0.4), of_speakers(20, Ann=0.7, Ben=0.65)]
    choice = choose(points)
    assert (choice.best, choice.beats_base) == ("step-00000020", True)
    assert choice.verdict.startswith(
        "The 2 fine-tuned voices at step 20 are better than zero-shot cloning, on average: speaker similarity 0.60 →"
    )
    assert "The worst voice is Ben: speaker similarity 0.60 → 0.65" in choice.verdict
    worse = choose([points[0], points[1]]).verdict
    assert "The worst voice is Ben, which zero-shot cloning does better: speaker similarity 0.60 → 0.40" in worse


def test_a_fast_and_a_slow_speaker_are_not_right_on_average() -> None:
    paces = {name: FAIR.model_copy(update={"duration_ratio": ratio}) for name, ratio in (("Ann", 0.5), ("Ben", 1.5))}
    assert quality(FAIR.model_copy(update={"speakers": paces})) < quality(FAIR) - 0.1


def test_a_similar_but_unintelligible_checkpoint_does_not_win() -> None:
    choice = choose([point(0), point(10, verified_similarity=0.9, character_error=0.12)])
    assert choice.beats_base is False


def test_of_two_equal_checkpoints_the_earlier_wins() -> None:
    assert choose([point(20), point(10), point(30)]).best == "step-00000010"


def test_the_independent_verifier_outweighs_the_models_own_encoder() -> None:
    flattered = FAIR.model_copy(update={"speaker_similarity": 0.99, "verified_similarity": 0.5})
    assert quality(flattered) < quality(FAIR)


def test_the_verdict_calls_the_models_own_encoder_biased() -> None:
    changes = {"verified_similarity": None, "speaker_similarity": 0.8}
    assert "biased" in choose([point(0, verified_similarity=None), point(10, **changes)]).verdict


def test_babble_and_cut_off_words_lower_the_quality() -> None:
    for changes in ({"duration_ratio": 3.0}, {"duration_ratio": 0.3}, {"finished_share": 0.5}, {"clipped_share": 0.1}):
        assert quality(FAIR.model_copy(update=changes)) < quality(FAIR)


def test_without_transcriber_the_verdict_says_that_no_words_were_checked() -> None:
    points = [point(0, character_error=None), point(10, character_error=None, verified_similarity=0.7)]
    assert "words were not checked" in choose(points).verdict


def test_nothing_evaluated_means_no_recommendation() -> None:
    waiting = CheckpointRecord(name="step-00000010", step=10, saved_at=0.0, state="waiting")
    assert choose([point(0), waiting]).best is None
    assert choose([point(10)]).beats_base is None


def test_checkpoints_heard_by_different_listeners_are_compared_by_what_is_not_the_listeners_fault() -> None:
    """Whisper came in the middle of a run: the later checkpoint has fewer errors and is the worse one."""
    before = {"transcriber": "pocketsphinx", "character_error": 0.22, "own_character_error": 0.2}
    after = {"transcriber": "whisper base", "character_error": 0.15, "own_character_error": 0.01}
    choice = choose([point(0, **before), point(10, **before), point(20, **after)])
    assert choice.best == "step-00000010"
    assert "heard by pocketsphinx (20% of the speaker's own recordings)" in choice.verdict
    assert "heard by pocketsphinx and then by whisper base" in choose([point(0, **before), point(20, **after)]).verdict


def test_a_listener_that_heard_all_of_them_is_who_compares() -> None:
    def errors(share: float) -> tuple[ListenerErrors, ...]:
        return (ListenerErrors(listener="pocketsphinx", character_error=share, own_character_error=0.2),)

    points = [
        point(0, transcriber="pocketsphinx", character_error=0.5, own_character_error=0.2),
        point(10, transcriber="whisper base", character_error=0.01, also_heard=errors(0.4)),
        point(20, transcriber="whisper base", character_error=0.02, also_heard=errors(0.3)),
    ]
    assert choose(points).best == "step-00000020"


def test_the_verifier_counts_only_where_it_heard_all() -> None:
    """Its file was removed in the middle of a run: two encoders' similarities are not compared with each other."""
    points = [
        point(0, verified_similarity=0.6, speaker_similarity=0.7),
        point(10, verified_similarity=None, speaker_similarity=0.75),
        point(20, verified_similarity=0.62, speaker_similarity=0.9),
    ]
    choice = choose(points)
    assert choice.best == "step-00000020"
    assert "0.70 → 0.90 (the model's own opinion, which is biased)" in choice.verdict


def test_the_verdict_says_that_a_stranger_is_as_like() -> None:
    verdict = choose([point(0, verified_similarity=0.4), point(10, verified_similarity=0.6)]).verdict
    assert "0.40 → 0.60 (no more like the speaker than a stranger)" in verdict
    assert "stranger" not in choose([point(0), point(10, verified_similarity=0.8)]).verdict
