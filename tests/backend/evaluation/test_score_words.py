"""What scores say: who measured, beside what, and no likeness that was not measured."""

from __future__ import annotations

from backend.evaluation.score_words import describe_errors, describe_hearings, describe_likeness
from backend.evaluation.scores import Hearing, Measures, summarize
from tests.backend.evaluation.test_scores import take

ALSO = Hearing(listener="pocketsphinx", transcript="hollow", character_error=0.5, word_error=1.0)


def test_a_likeness_that_strangers_reach_is_none() -> None:
    assert describe_likeness(Measures(verified_similarity=0.83, verifier="GE2E")) == "0.83 by GE2E"
    low = describe_likeness(Measures(verified_similarity=0.41, verifier="GE2E", speaker_similarity=0.99))
    assert low == "0.41 by GE2E: no more like the voice than a stranger's"
    assert describe_likeness(Measures(verified_similarity=0.83)) == "0.83 by the speaker verifier"


def test_without_a_verifier_it_is_the_models_own_opinion() -> None:
    assert describe_likeness(Measures(speaker_similarity=0.9)) == "0.90, the model's own opinion"
    assert describe_likeness(Measures()) == ""


def test_listeners_stand_side_by_side() -> None:
    heard = take(transcript="hello", transcriber="whisper base", character_error=0.1, also_heard=(ALSO,))
    assert describe_hearings(heard) == "heard by whisper base: “hello”, heard by pocketsphinx: “hollow”"
    scores = summarize([heard], {"": {"pocketsphinx": 0.25}})
    assert describe_errors(scores) == (
        "10.0% by whisper base; 50.0% by pocketsphinx (25.0% in the speaker's own recordings)"
    )


def test_scores_of_an_earlier_version_name_no_listener() -> None:
    assert describe_hearings(Measures(transcript="hello")) == "heard: “hello”"
    assert describe_errors(summarize([take(character_error=0.1)])) == "10.0% by a listener of an earlier version"
    assert describe_errors(summarize([take()])) == ""
