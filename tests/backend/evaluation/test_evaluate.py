"""Judging: the same sentences and seeds for everybody, and numbers that follow what is heard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from backend.evaluation.evaluate import evaluate, load_scorers, own_errors
from backend.evaluation.likeness_table import who_sounds_like_whom
from backend.evaluation.plan import EvaluationPlan, plan_evaluation
from backend.evaluation.take_scores import Scorers
from backend.transcription.transcript import Transcript
from tests.backend.runs.small_dataset import write_small_dataset
from tests.golden import GOLDEN_CHECKPOINT
from training.data.code_rows import ROWS_FILE, CodeRow, read_card, read_code_rows, write_card, write_code_rows
from training.model.voice_model import VoiceModel


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_dataset(tmp_path_factory.mktemp("datasets") / "mine")


def load_model() -> VoiceModel:
    """Anew each time: a synthesizer empties the model it is given."""
    return VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu")


def plan(dataset: Path, num_held_out: int = 1, num_standard: int = 1, seed: int = 0) -> EvaluationPlan:
    card, rows = read_card(dataset), read_code_rows(dataset / ROWS_FILE)
    return plan_evaluation(
        dataset, card, rows, GOLDEN_CHECKPOINT, num_held_out=num_held_out, num_standard=num_standard, seed=seed
    )


class Parrot:
    """A transcriber that hears the expected texts in turn."""

    piece_seconds = 30.0

    def __init__(self, texts: Sequence[str], name: str = "parrot") -> None:
        self._texts, self.name = iter(texts), name

    def transcribe(self, samples_16k: NDArray[np.float32], language: str | None = None) -> Transcript:
        assert language is None
        assert samples_16k.ndim == 1
        return Transcript(text=next(self._texts), language="en", words=())


def with_rows(dataset: Path, folder: Path, change: dict[str, object], language: str = "auto") -> Path:
    """The same dataset with other rows."""
    rows = [CodeRow(**{**vars(row), **change}) for row in read_code_rows(dataset / ROWS_FILE)]
    folder.mkdir()
    write_code_rows(folder / ROWS_FILE, rows)
    write_card(folder, read_card(dataset).model_copy(update={"language": language}))
    return folder


def test_sentences_are_held_out_ones_and_standard_ones(dataset: Path) -> None:
    own, *standard = plan(dataset, num_held_out=1, num_standard=2).sentences
    row = next(row for row in read_code_rows(dataset / ROWS_FILE) if row.text == own.text)
    assert row.held_out
    assert own.held_out
    assert own.expected_seconds == pytest.approx(row.seconds)
    assert [sentence.held_out for sentence in standard] == [False, False]


def test_a_style_has_the_clip_that_is_best_to_continue(dataset: Path, tmp_path: Path) -> None:
    """Trained on rather than held out, of some seconds, and near the middle of its style."""
    card, rows = read_card(dataset), read_code_rows(dataset / ROWS_FILE)
    middle = list(rows[3].speaker_embedding)
    away = [-value for value in middle]
    changes: list[dict[str, object]] = [
        {"style": "calm", "held_out": True, "seconds": 7.0, "speaker_embedding": middle},
        {"style": "calm", "seconds": 2.0, "speaker_embedding": middle},
        {"style": "calm", "seconds": 7.0, "speaker_embedding": away},
        {"style": "calm", "seconds": 6.0, "speaker_embedding": middle},
        {"style": "sad", "seconds": 1.0, "held_out": True},
        {},
    ]
    told = [replace(row, **change) for row, change in zip(rows, changes, strict=False)]
    numbers = {"num_held_out": 1, "num_standard": 1, "seed": 0}
    found = plan_evaluation(dataset, card, told, GOLDEN_CHECKPOINT, **numbers).styles
    assert [(style.name, style.text) for style in found] == [("calm", told[3].text), ("sad", told[4].text)]
    assert [style.clip for style in found] == [dataset / "audio" / f"{told[at].clip_id}.wav" for at in (3, 4)]
    told_so = plan_evaluation(dataset, card, told, GOLDEN_CHECKPOINT, follows_instructions=True, **numbers).styles
    assert [(style.name, style.clip, style.text) for style in told_so] == [("calm", None, None), ("sad", None, None)]


def test_seeds_depend_on_the_run_alone(dataset: Path) -> None:
    assert plan(dataset) == plan(dataset)
    assert plan(dataset).sentences[0].seed != plan(dataset, seed=1).sentences[0].seed


def test_expected_seconds_follow_the_persons_pace(dataset: Path, tmp_path: Path) -> None:
    slow = with_rows(dataset, tmp_path / "slow", {"seconds": 10.0})
    assert plan(slow).sentences[1].expected_seconds > 3 * plan(dataset).sentences[1].expected_seconds


@pytest.mark.parametrize(("change", "language"), [({}, "german"), ({"text": "Это предложение сказано здесь."}, "auto")])
def test_english_sentences_are_for_english(
    dataset: Path, tmp_path: Path, change: dict[str, object], language: str
) -> None:
    foreign = with_rows(dataset, tmp_path / "foreign", change, language)
    assert [sentence.held_out for sentence in plan(foreign, 2, 2).sentences] == [True, True]


def test_evaluating_a_model_twice_gives_the_same_scores(dataset: Path, tmp_path: Path) -> None:
    chosen = plan(dataset)
    scorers = load_scorers(chosen, (), None)
    assert scorers.verifier is None
    folder = tmp_path / "takes" / "base"
    takes, again = (evaluate(load_model(), chosen, scorers, folder) for _ in range(2))
    # Where memory happens to lie changes the last bit of a matrix product: this number is equal to rounding.
    first, second = ([take.speaker_similarity for take in each] for each in (takes, again))
    assert first == pytest.approx(second, abs=1e-5)
    unmeasured = {"speaker_similarity": 0.0}
    assert [take.model_copy(update=unmeasured) for take in takes] == [
        take.model_copy(update=unmeasured) for take in again
    ]
    assert [take.file for take in takes] == ["takes/base/00.wav", "takes/base/01.wav"]
    for take in takes:
        assert (tmp_path / take.file).stat().st_size == 44 + 2 * round(take.seconds * 24_000)
        assert -1 <= take.speaker_similarity <= 1
        assert take.character_error is None
        assert take.verified_similarity is None


def test_what_speaks_zero_shot_is_judged_with_the_timbre_that_it_serves_with(dataset: Path, tmp_path: Path) -> None:
    chosen = plan(dataset)
    scorers = Scorers(own=load_model())

    def speak(name: str, *, matches: bool, is_zero_shot: bool) -> NDArray[np.float32]:
        model = replace(load_model(), matches_timbre=matches)
        takes = evaluate(model, chosen, scorers, tmp_path / "takes" / name, is_zero_shot=is_zero_shot)
        return np.concatenate([soundfile.read(tmp_path / take.file, dtype="float32")[0] for take in takes])

    plain = speak("plain", matches=False, is_zero_shot=True)
    learnt = speak("learnt", matches=True, is_zero_shot=False)
    matched = speak("matched", matches=True, is_zero_shot=True)
    # Where memory happens to lie changes the last bit.
    assert np.abs(learnt - plain).max() < 1e-3
    assert np.abs(matched - plain).max() > 1e-2


def test_transcripts_are_compared_with_the_sentences(dataset: Path, tmp_path: Path) -> None:
    chosen = plan(dataset)
    first, second = chosen.sentences
    scorers = Scorers(
        own=load_model(),
        transcribers=(Parrot([first.text.upper(), "something else"]), Parrot([first.text] * 2, "budgie")),
    )
    right, wrong = evaluate(load_model(), chosen, scorers, tmp_path / "takes" / "base")
    assert right.word_error == 0
    assert wrong.word_error == 1
    assert wrong.transcript == "something else"
    assert second.text == wrong.text
    assert [list(take.character_errors()) for take in (right, wrong)] == [["parrot", "budgie"]] * 2
    assert (right.also_heard[0].word_error, wrong.also_heard[0].word_error) == (0, 1)


def test_listeners_hear_the_persons_own_recordings_once(dataset: Path) -> None:
    chosen = plan(dataset)
    right, wrong = Parrot(chosen.clip_texts), Parrot(["none of it at all"] * len(chosen.clips), "budgie")
    assert len(chosen.clip_texts) == len(chosen.clips) > 0
    errors = own_errors(chosen, [right, wrong], {})
    assert errors[""]["parrot"] == 0
    assert errors[""]["budgie"] > 0.4
    deaf = Parrot([], "budgie")
    assert own_errors(chosen, [deaf], errors) == {"": {"budgie": errors[""]["budgie"]}}
    assert own_errors(chosen.model_copy(update={"clip_texts": ()}), [Parrot([])], {}) == {"": {}}


def test_each_speaker_is_compared_with_all_of_them(dataset: Path, tmp_path: Path) -> None:
    ann, ben = (plan(dataset).model_copy(update={"voice": name}) for name in ("Ann", "Ben"))
    ben = ben.model_copy(update={"target": tuple(-value for value in ben.target)})
    both = ann.model_copy(update={"more_speakers": (ben,)})
    takes = evaluate(load_model(), both, load_scorers(both, (), None), tmp_path / "takes" / "base")
    assert [take.speaker for take in takes] == ["Ann", "Ann", "Ben", "Ben"]
    assert [take.position for take in takes] == [0, 1, 2, 3]
    assert [take.file for take in takes] == [f"takes/base/{number:02}.wav" for number in range(4)]
    for take in takes:
        # Without a verifier the model's own encoder compares.
        assert list(take.likeness) == ["Ann", "Ben"]
        assert take.likeness["Ann"] == pytest.approx(-take.likeness["Ben"], abs=1e-6)
        assert take.likeness[take.speaker] == pytest.approx(take.speaker_similarity)
    table = who_sounds_like_whom(takes)
    assert [sum(row.counts) for row in table.rows] == [2, 2]
    assert not any(take.likeness for take in evaluate(load_model(), ann, load_scorers(ann, (), None), tmp_path / "one"))


def test_an_evaluation_can_be_cancelled(dataset: Path, tmp_path: Path) -> None:
    chosen = plan(dataset)
    scorers = Scorers(own=load_model())
    assert evaluate(load_model(), chosen, scorers, tmp_path / "a" / "b", cancelled=lambda: True) == []
