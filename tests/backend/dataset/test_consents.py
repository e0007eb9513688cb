"""Consent belongs to the recordings it was given for: by their content, whoever asks for a fine-tune of them."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from app import main
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.datasets import Datasets
from backend.dataset.storage.consent_table import ConsentTable
from backend.runs.errors import RunError
from backend.runs.planning.request import RunRequest
from backend.runs.runs import Runs
from backend.store.home import Home
from backend.voices.consent import Consent, SpokenProof, combine_consents, hash_of_file
from backend.voices.errors import ConsentInvalid, ConsentMissing
from tests.backend.dataset.spoken import SENTENCES, speak_folder
from tests.golden import GOLDEN_CHECKPOINT

ANN = Consent.give("Ann")
BEN = Consent.give("Ben", "speaker-agreed")
MACHINE = Consent.give("flite", "synthetic")


def people(datasets: Datasets, name: str = "ann") -> set[str | None]:
    return {None if one is None else one.who for one in datasets.consents(name).values()}


def start(home: Path, consent: Consent | None, dataset: str | Path = "ann") -> Consent | None:
    """Begin a fine-tune, but for its process; returns the consent it has."""
    runs = Runs(Home(home))
    request = RunRequest(
        model=str(GOLDEN_CHECKPOINT), dataset=dataset, voice=f"New {uuid.uuid4().hex[:6]}", options={"num_steps": 2}
    )
    plan = runs.plan(request)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backend.runs.runs.start_watchdog", lambda *_: 1)
        return runs.get(runs.start(plan, consent)).consent


def test_a_dataset_keeps_the_consent_it_was_made_with(
    datasets: Datasets, recordings: Path, job: Callable[..., BuildJob]
):
    datasets.build(job(recordings).agreed_by(ANN))
    assert people(datasets) == {"Ann"}
    for recording_id, consent in datasets.consents("ann").items():
        assert consent is not None
        assert consent.given_for == recording_id
    # Going on with the build asks for nothing and forgets nothing.
    datasets.build(job(recordings))
    assert people(datasets) == {"Ann"}


def test_a_consent_is_for_what_a_folder_held_when_it_was_given(
    datasets: Datasets, recordings: Path, job: Callable[..., BuildJob], tmp_path: Path
):
    folder = shutil.copytree(recordings, tmp_path / "folder")
    datasets.build(job(folder, "ben").agreed_by(BEN))
    speak_folder(tmp_path / "other", ["A large size in stockings is hard to sell."])
    shutil.copy(tmp_path / "other" / "00.wav", folder / "late.wav")
    (folder / "late.txt").write_text("A large size in stockings is hard to sell.")
    datasets.build(job(folder, "ben"))
    assert datasets.consents("ben")[hash_of_file(folder / "late.wav")] is None
    assert people(datasets, "ben") == {"Ben", None}


def test_a_fine_tune_takes_the_consent_of_the_dataset(home: Path, datasets: Datasets, recordings: Path, job):
    datasets.build(job(recordings).agreed_by(ANN))
    agreed = start(home, None)
    assert agreed is not None
    assert (agreed.who, agreed.statement, agreed.also) == ("Ann", "own-voice", ())


def test_the_consent_of_another_recording_is_refused(home: Path, datasets: Datasets, recordings: Path, job):
    """The sample voice of another tab once signed for a dataset of a person."""
    datasets.build(job(recordings).agreed_by(ANN))
    for dataset in ("ann", home / "datasets" / "ann", home / "datasets" / ".." / "datasets" / "ann"):
        with pytest.raises(ConsentInvalid, match="have their consent already: own-voice, by Ann"):
            start(home, MACHINE, dataset)
    assert Runs(Home(home)).list() == []


def test_an_old_dataset_is_asked_for_its_consent_once(home: Path, datasets: Datasets):
    assert people(datasets) == {None}
    with pytest.raises(ConsentMissing, match="ann has no consent yet for its recordings"):
        start(home, None)
    assert start(home, ANN) is not None
    assert people(datasets) == {"Ann"}
    agreed = start(home, None)
    assert agreed is not None
    assert agreed.who == "Ann"


def test_added_recordings_need_a_consent_of_their_own(
    home: Path, datasets: Datasets, recordings: Path, job: Callable[..., BuildJob], tmp_path: Path
):
    datasets.build(job(recordings).agreed_by(MACHINE))
    more = speak_folder(tmp_path / "more", ["A large size in stockings is hard to sell."])
    datasets.build(job([recordings, more]))
    with pytest.raises(ConsentMissing, match=f"1 of its {len(SENTENCES) + 1} recordings"):
        start(home, None)
    agreed = start(home, BEN)
    assert agreed is not None
    # A person's recording among synthetic ones makes it that person's voice.
    assert [(one.who, one.statement) for one in agreed.all] == [("Ben", "speaker-agreed"), ("flite", "synthetic")]
    assert people(datasets) == {"flite", "Ben"}


def test_what_was_read_aloud_proves_nothing_for_other_recordings(datasets: Datasets):
    first, *others = datasets.consents("ann")
    proof = SpokenProof(phrase="I agree.", heard="i agree", error_rate=0.0, similarity=0.9, recording=first)
    datasets.give_consent("ann", Consent.give("Ann", spoken=proof))
    consents = datasets.consents("ann")
    assert consents[first].spoken == proof
    assert others
    assert all(consents[other].spoken is None for other in others)


def test_consents_combine_whatever_their_order():
    given = [("1", MACHINE), ("2", ANN), ("3", BEN), ("4", ANN)]
    both = {combine_consents(order).digest for order in (given, given[::-1], given[2:] + given[:2])}
    assert len(both) == 1
    assert [one.who for one in combine_consents(given).all] == ["Ann", "Ben", "flite"]


@pytest.mark.parametrize("options", [[], ["--consent", "synthetic", "--consent-by", "flite"]])
def test_the_command_line_is_no_door_either(
    home: Path, datasets: Datasets, recordings: Path, job, capsys, monkeypatch, options: list[str]
):
    datasets.build(job(recordings).agreed_by(ANN))
    monkeypatch.setenv("ENCORE_HOME", str(home))
    monkeypatch.setattr("backend.runs.runs.start_watchdog", lambda *_: 1)
    where = str(home / "datasets" / "ann")
    fine_tune = ["finetune", where, "--voice", "New", "--model", str(GOLDEN_CHECKPOINT), "--detach"]
    assert main([*fine_tune, *options]) == (2 if options else 0)
    consents = [run.consent for run in Runs(Home(home)).list()]
    assert [one.who for one in consents if one is not None] == ([] if options else ["Ann"])
    assert main(["dataset", "show", "ann"]) == 0
    assert f"consent: own-voice by Ann, {ANN.given_at:%Y-%m-%d}" in capsys.readouterr().out


def test_a_dataset_that_is_deleted_takes_its_consents_along(home: Path, datasets: Datasets, recordings: Path, job):
    datasets.build(job(recordings).agreed_by(ANN))
    datasets.delete("ann")
    assert ConsentTable(Home(home).database).of("ann") == {}
    with pytest.raises(RunError):
        start(home, None)
