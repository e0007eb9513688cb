"""Datasets, plans and the system as a program drives the page: real server, real build process, real checkpoint."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
import whisper
from gradio_client import handle_file
from gradio_client.exceptions import AppError

from backend.audio.writing import write_wav
from backend.background_tasks import BackgroundTask, TaskCancelled
from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.views import BuildState
from backend.dataset.storage.dataset_table import DatasetTable
from backend.dataset.storage.lock import dataset_lock, is_locked
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import RunState
from backend.store.database import Database
from backend.store.home import Home
from backend.transcription.whisper_weights import hash_file
from backend.voices.consent import Consent, hash_of_file
from backend.voices.samples import get_sample
from tests.backend.runs.storage.test_records import record
from tests.backend.transcription.weights_server import DIGEST, serve_weights
from tests.backend.voices.checkpoints import fine_tuned_checkpoint
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import write_voice
from tests.ui.served_page import serve_page
from ui.tabs.dataset.clip_rows import select_clips
from ui.tabs.finetune import tab as tune_tab
from ui.tabs.finetune.plan import MAKING_CLIPS

# Gradio 6.31 counts its queue with calls that pandas 3 is going to remove.
pytestmark = pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")

PATIENCE_SECONDS = 120.0
WITHOUT_RAY = "0"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with serve_page(tmp_path_factory.mktemp("page"), device="cpu") as served:
        served.studio.load_model(str(GOLDEN_CHECKPOINT), device="cpu")
        yield served


@pytest.fixture
def client(page):
    client = page.session()
    # As opening the tab does; a dropdown takes only what it has been given to choose from.
    client.call("list_datasets")
    yield client
    client.close()


@pytest.fixture(scope="module")
def dataset(page):
    """The sample Iris, prepared through the page."""
    client = page.session()
    client.call("use_sample", name="iris")
    client.call("prepare_dataset", name="iris", whisper="none", actors=WITHOUT_RAY)
    until(lambda: not page.studio.datasets.progress("iris").is_running)
    # The process has its last word before it ends.
    until(lambda: not is_locked(page.folder / "home", "iris"))
    client.close()
    assert page.studio.datasets.progress("iris").state is BuildState.DONE
    return "iris"


def until(is_so):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.2)


def follow(client, api, words):
    """Ask as the page's timer does, until it says something."""
    answers = {}

    def has_come():
        answers.update(client.call(api))
        return any(re.search(words, str(answer)) for answer in answers.values())

    until(has_come)
    return answers


def deed(do, key, **fields):
    """What a row asks for."""
    return json.dumps({"do": do, "clip": key, **fields})


def clips_of(page, name):
    return page.studio.datasets.show(name).clips


def test_a_sample_becomes_clips_with_its_sentences(page, client, dataset):
    html = str(client.call("choose_dataset", chosen=dataset))
    assert "of 10 ready" in html
    assert "Every morning I open the bakery" in html
    address = re.search(r'data-play="([^"]+)"', html).group(1)
    assert httpx.get(page.address + address, timeout=PATIENCE_SECONDS).raise_for_status().content[:4] == b"RIFF"
    assert all(clip.text for clip in clips_of(page, dataset))


def test_a_text_is_corrected_a_verdict_overruled_and_both_applied(page, client, dataset, monkeypatch):
    client.call("choose_dataset", chosen=dataset)
    key = clips_of(page, dataset)[1].key
    clip = {"name": dataset}
    looks, clips = [], DatasetTable.clips
    monkeypatch.setattr(DatasetTable, "clips", lambda table, name: looks.append(name) or clips(table, name))
    assert (
        "You have changed clips"
        in client.call("edit_clip", **clip, deed=deed("text", key, text="The first thing is dough."))["stale"]
    )
    # Thousands of clips are read once to be judged and once to be shown.
    assert len(looks) == 2
    monkeypatch.undo()
    left_out = client.call("edit_clip", **clip, deed=deed("rejected", key))
    assert ["Left out 1", "rejected"] in left_out["clip-filter"]["choices"]
    rejected = select_clips(page.studio.datasets.show(dataset), "rejected", "order")
    assert [clip.text for clip in rejected] == ["The first thing is dough."]
    changed = next(clip for clip in clips_of(page, dataset) if clip.key == key)
    assert (changed.text, changed.verdict) == ("The first thing is dough.", Verdict.REJECTED)
    client.call("apply_changes", name=dataset)
    until(lambda: page.studio.datasets.show(dataset).rows_are_current)
    refused = client.call("edit_clip", **clip, deed=deed("text", key, text="  "))["clips"]
    assert "needs a text" in refused
    assert refused.index(key) < refused.index("needs a text"), "it stands in the row"


def test_a_cut_is_moved_with_padding(page, client, dataset):
    client.call("choose_dataset", chosen=dataset)
    before = clips_of(page, dataset)[2]
    span = before.details.current.span
    start, end = span.start_seconds + 0.3, span.end_seconds - 0.3
    client.call("edit_clip", name=dataset, deed=deed("cut", before.key, start=start - 0.1, end=end + 0.1))
    after = next(clip for clip in clips_of(page, dataset) if clip.key == before.key)
    cut = after.details.current.span
    assert (cut.start_seconds, cut.end_seconds) == pytest.approx((start - 0.1, end + 0.1), abs=0.01)
    assert after.clip_id != before.clip_id
    client.call("edit_clip", name=dataset, deed=deed("uncut", before.key))
    back = next(clip for clip in clips_of(page, dataset) if clip.key == before.key)
    assert back.clip_id == before.clip_id


def test_many_clips_are_judged_at_once_and_that_is_undone(page, client, dataset):
    client.call("choose_dataset", chosen=dataset)
    before = {clip.key: clip.verdict for clip in clips_of(page, dataset)}
    said = client.call("rejected_all", name=dataset)
    assert f"{len(before)} clips left out." in str(said)
    assert {clip.verdict for clip in clips_of(page, dataset)} == {Verdict.REJECTED}
    client.call("undo_all", name=dataset)
    assert {clip.key: clip.verdict for clip in clips_of(page, dataset)} == before


def test_styles_are_set_filtered_and_undone(page, client, dataset):
    client.call("choose_dataset", chosen=dataset)
    first, *others = [clip.key for clip in clips_of(page, dataset)]
    said = client.call("edit_clip", name=dataset, deed=deed("style", first, text="Excited"))
    assert "Style saved." in str(said["clips"])
    assert ["Style excited 1", "style:excited"] in said["clip-filter"]["choices"]
    said = client.call("style_all", name=dataset, wanted="style:", style="calm")
    assert f"{len(others)} clips have the style calm now." in str(said)
    assert page.studio.datasets.show(dataset).styles == {"calm": len(others), "excited": 1}
    client.call("undo_all", name=dataset)
    assert page.studio.datasets.show(dataset).styles == {"": len(others), "excited": 1}
    refused = client.call("style_all", name=dataset, style="<b>")
    assert "cannot be a style" in str(refused)
    client.call("style_all", name=dataset, style="")
    assert not any(page.studio.datasets.show(dataset).styles)


def test_cancelling_is_answered_at_once(page, client, dataset):
    """The build itself brings a clip or two to an end first."""
    answer = client.call("cancel_dataset", chosen=dataset)
    assert "Cancelling …" in answer["prepare-progress"]


def test_a_deleted_dataset_takes_its_uploads_along(page, client, dataset):
    client.call("choose_dataset", chosen=dataset)
    uploads = page.folder / "home" / "uploads"
    own = uploads / dataset
    assert any(own.rglob("*.wav"))
    job = page.studio.datasets._table.job(dataset)
    page.studio.datasets._table.save_job(job.model_copy(update={"name": "copy"}))
    client.call("list_datasets")
    client.call("choose_dataset", chosen="copy")
    assert "copy" in client.call("delete_dataset", chosen="copy")["dataset-deleted"]
    assert page.studio.datasets.list() == [dataset]
    assert any(own.rglob("*.wav")), "another dataset is made of them"


def test_copies_of_the_model_are_counted_in_whole_numbers(client):
    client.call("use_sample", name="iris")
    with pytest.raises(AppError, match='"many" is not a valid number of workers'):
        client.call("prepare_dataset", name="empty", whisper="none", actors="many")


def test_preparing_without_recordings_is_refused(page, client):
    with pytest.raises(AppError, match="no recording yet"):
        client.call("prepare_dataset", name="empty", whisper="none", actors=WITHOUT_RAY)


def wish(dataset, **fields):
    return {"dataset": dataset, "workers": "1", "device": "cpu", "steps": "6"} | fields


def plan(client, words, fields):
    """Fill in, and wait for a plan that says this."""
    first = str(client.call("plan", **fields))
    return first if re.search(words, first) else str(follow(client, "follow_plan", words))


def test_a_plan_tells_what_it_takes_and_what_is_wrong(client, dataset):
    client.call("open_finetune")
    assert "Each worker needs about" in plan(client, "6 steps", wish(dataset))
    wrong = plan(client, "cannot be fine-tuned yet", wish(dataset, learning_rate="much"))
    assert "learning_rate" in wrong


def test_changes_that_are_not_applied_are_never_learnt_without_silently(page, client, dataset, monkeypatch):
    """A run once learnt from the clips as they were before, and said nothing."""
    started = []
    monkeypatch.setattr(page.studio.runs, "start", lambda planned, _: started.append(planned.require_possible()) or "r")
    # What other tests changed here is applied, too.
    page.studio.datasets.rebuild_rows(dataset)
    client.call("choose_dataset", chosen=dataset)
    client.call("edit_clip", name=dataset, deed=deed("rejected", clips_of(page, dataset)[0].key))
    client.call("open_finetune")
    told = "these changes are not applied yet.*Apply the changes"
    assert re.search(told, plan(client, told, wish(dataset)))
    client.call("start_run", name="Iris", **wish(dataset))
    assert "not applied yet" in str(follow(client, "follow_start", told))
    assert started == []
    client.call("apply_changes", name=dataset)
    until(lambda: page.studio.datasets.show(dataset).rows_are_current)
    client.call("start_run", name="Iris", **wish(dataset))
    until(lambda: client.call("follow_start") and started)
    assert "not applied yet" not in plan(client, "6 steps", wish(dataset))


def test_a_plan_follows_when_changes_are_applied_meanwhile(page, client, dataset, monkeypatch):
    """It stayed refused until something else was chosen on the page."""
    monkeypatch.setattr(tune_tab, "SETTLED_SECONDS", 0.0)
    page.studio.datasets.rebuild_rows(dataset)
    client.call("edit_clip", name=dataset, deed=deed("rejected", clips_of(page, dataset)[1].key))
    client.call("open_finetune")
    assert "not applied yet" in plan(client, "not applied yet", wish(dataset))
    with dataset_lock(page.folder / "home", dataset):
        assert client.call("follow_plan")["timer"]["active"] is True, "somebody applies the changes just now"
    page.studio.datasets.rebuild_rows(dataset)
    assert "Each worker needs about" in str(follow(client, "follow_plan", "6 steps"))


def test_the_plan_for_what_was_typed_last_is_not_missed(client, dataset):
    """A look that began before the typing must not end the looking."""
    client.call("open_finetune")
    plan(client, "6 steps", wish(dataset))
    assert client.call("follow_plan")["timer"]["active"] is True


def test_the_consent_of_a_dataset_is_shown_and_not_asked_for_again(page, client, dataset):
    client.call("use_sample", name="rufus")
    client.call("open_finetune")
    shown = client.call("open_finetune", dataset=dataset)
    assert "Consent by The makers of Encore" in shown["tune-consents"]
    assert "No consent yet" not in shown["tune-consents"]


def test_without_consent_nothing_starts(page, client, dataset):
    """An old dataset has none, and a sample on the Voice tab once signed for it."""
    with Home(page.folder / "home").database.transaction() as connection:
        before = [tuple(row) for row in connection.execute("SELECT * FROM recording_consents")]
        connection.execute("DELETE FROM recording_consents")
    try:
        client.call("use_sample", name="owen")
        client.call("open_finetune")
        shown = client.call("open_finetune", dataset=dataset)
        assert "No consent yet for these recordings." in shown["tune-consents"]
        with pytest.raises(AppError, match="Choose one of the statements"):
            client.call("start_run", name="Iris", who="Ann", **wish(dataset))
        with pytest.raises(AppError, match="needs the name of the person"):
            client.call("start_run", name="Iris", statement="synthetic", **wish(dataset))
        client.call("ask_for_consent", dataset="+")
        client.call("state_tune_consent", dataset="+")
        with pytest.raises(AppError, match="stated for another recording"):
            client.call("start_run", name="Iris", statement="synthetic", who="Ann", **wish(dataset))
        assert page.studio.runs.list() == []
    finally:
        with Home(page.folder / "home").database.transaction() as connection:
            connection.executemany("INSERT INTO recording_consents VALUES (?, ?, ?)", before)


def test_another_voice_makes_another_dataset_and_leaves_the_chosen_one_alone(page, client, dataset):
    """Preparing once replaced the clips of the chosen dataset, with all edits, by those of another voice."""
    datasets = page.studio.datasets
    before = datasets.show(dataset)
    client.call("use_sample", name="rufus")
    client.call("list_datasets", chosen=dataset)
    client.call("prepare_dataset", chosen=dataset, name=dataset, mix=False, whisper="none", actors=WITHOUT_RAY)
    until(lambda: "rufus" in datasets.list() and not datasets.progress("rufus").is_running)
    until(lambda: not is_locked(page.folder / "home", "rufus"))
    assert datasets.show(dataset).clips == before.clips
    # The same name typed again is another one, too.
    client.call("prepare_dataset", name=dataset, whisper="none", actors=WITHOUT_RAY)
    until(lambda: f"{dataset}-2" in datasets.list() and not datasets.progress(f"{dataset}-2").is_running)
    until(lambda: not is_locked(page.folder / "home", f"{dataset}-2"))
    assert datasets.show(dataset).clips == before.clips
    client.call("list_datasets")
    client.call("choose_dataset", chosen="rufus")
    client.call("delete_dataset", chosen="rufus")
    assert "rufus" not in datasets.list()
    assert "is back" in client.call("undo_dataset")["dataset-deleted"]
    assert len(datasets.show("rufus").clips) == len(datasets.show(f"{dataset}-2").clips) > 0
    for name in ("rufus", f"{dataset}-2"):
        page.studio.trash.purge(datasets.delete(name).id)


def test_files_that_were_not_used_are_named_beside_the_result(page, client, tmp_path):
    datasets, silence, letter = page.studio.datasets, tmp_path / "silence.wav", tmp_path / "text.wav"
    write_wav(silence, np.zeros(48_000, np.float32), 24_000)
    letter.write_text("This is a letter, not a recording.")
    files = [handle_file(silence), handle_file(letter)]
    client.call("use_sample", name="iris")
    for name, with_voice, words in (("mixed", True, "Ready."), ("unusable", False, "It could not be prepared.")):
        client.call("prepare_dataset", name=name, files=files, mix=with_voice, whisper="none", actors=WITHOUT_RAY)
        until(lambda name=name: not datasets.progress(name).is_running)
        until(lambda name=name: not is_locked(page.folder / "home", name))
        shown = client.call("choose_dataset", chosen=name)["prepare-progress"]
        assert shown.index(words) < shown.index("2 files were not used")
        reasons = re.findall("<li>(.*?)</li>", shown)
        assert [[one in reason for reason in reasons].count(True) for one in ("silence.wav", "text.wav")] == [1, 1]
        assert "dataset show" not in shown
        page.studio.trash.purge(datasets.delete(name).id)


def save_voice(page, name, recording):
    consent, text = Consent.give("Bea Baker"), get_sample("rufus").reference_text
    return page.studio.save_voice(name, recording, consent=consent, transcript=text, origin="bea.wav")


def tune(client, voice):
    """The button on its card; returns what it changes."""
    # As opening the tabs does; a dropdown takes only what it has been given to choose from.
    client.call("open_finetune")
    return client.call("change_voice", order=json.dumps({"do": "tune", "id": voice.id}))


def test_a_voice_of_the_library_is_tuned_on_its_own_recording(page, client, dataset, tmp_path):
    """Data once opened with whatever was chosen on Speak, and never offered what the library has."""
    voice = save_voice(page, "Bea", page.studio.sample_reference("rufus"))
    uploaded = write_voice(tmp_path / "other.wav", seconds=5.0)
    client.call("examine", files=[handle_file(uploaded)])
    client.call("use_sample", name="owen")
    began = tune(client, voice)
    assert (began["voice-goal"], began["dataset"], began["dataset-name"]) == ("data", "", "")
    assert began["dataset-files"] is None
    shown = client.call("list_datasets", chosen="", name="")
    assert shown["dataset-mix"] == {**shown["dataset-mix"], "label": "Use from Speak: Bea", "value": True}
    assert shown["dataset-name"] == "Bea"
    assert "New, of the voice Bea" in str(client.call("open_finetune"))
    client.call(
        "prepare_dataset", name="Bea", mix=True, transcript=voice.transcript, whisper="none", actors=WITHOUT_RAY
    )
    until(lambda: not page.studio.datasets.progress("Bea").is_running)
    until(lambda: not is_locked(page.folder / "home", "Bea"))
    assert page.studio.datasets.progress("Bea").state is BuildState.DONE
    (recording,) = page.studio.datasets.job("Bea").recordings
    assert hash_of_file(Path(recording)) == hash_of_file(voice.reference)
    assert [one.who for one in page.studio.datasets.consents("Bea").values()] == ["Bea Baker"]
    assert [clip.text for clip in clips_of(page, "Bea")] == [voice.transcript]
    page.studio.trash.purge(page.studio.datasets.delete("Bea").id)
    page.studio.delete_voice(voice.id)
    assert client.call("list_datasets")["dataset-mix"]["visible"] is False, "its recording is gone"


def test_a_voice_that_is_chosen_on_speak_has_its_recording_on_data(page, client, dataset, tmp_path):
    """Data once asked for a voice to be chosen on Speak although one was."""
    voice = save_voice(page, "Ann", write_voice(tmp_path / "ann.wav"))
    client.call("use_voice", voice_id=voice.id)
    shown = client.call("list_datasets")
    assert shown["dataset-mix"] == {**shown["dataset-mix"], "label": "Use from Speak: Ann", "visible": True}
    assert "choose a voice" not in shown["dataset-sources"]
    page.studio.delete_voice(voice.id)


def test_a_tuned_voice_leads_to_its_dataset_and_not_to_the_last_run(page, client, dataset, tmp_path):
    """The finished run of another voice once stood there."""
    checkpoint = fine_tuned_checkpoint(tmp_path / "custom_voice")
    voice = page.studio.voices.add_fine_tuned(
        "Ann tuned",
        {"custom_voice": checkpoint},
        consent=Consent.give("Ann Author"),
        model="tiny",
        provenance={"dataset": dataset},
    )
    began = tune(client, voice)
    assert (began["voice-goal"], began["tune-dataset"]["value"], began["run"]) == ("tune", dataset, "")
    page.studio.delete_voice(voice.id)


def test_a_tuned_voice_whose_dataset_is_gone_leads_to_its_run(page, client, dataset, tmp_path):
    table = RunTable(Database(page.folder / "home"))
    for run_id in ("its-own", "the-last"):
        table.add(record(run_id, state=RunState.DONE, ended_at=2.0))
    voice = page.studio.voices.add_fine_tuned(
        "Cut off",
        {"custom_voice": fine_tuned_checkpoint(tmp_path / "custom_voice")},
        consent=Consent.give("Ann Author"),
        model="tiny",
        provenance={"dataset": "gone"},
        run_id="its-own",
    )
    began = tune(client, voice)
    assert (began["voice-goal"], began["run"]["value"]) == ("tune", "its-own")
    page.studio.delete_voice(voice.id)
    for run_id in ("its-own", "the-last"):
        page.studio.trash.purge(page.studio.runs.delete(run_id).id)


def test_a_name_that_was_not_typed_follows_what_it_is_made_of(page, client, dataset):
    """It once kept the name of the voice that was chosen before."""
    client.call("use_sample", name="owen")
    assert client.call("list_datasets")["dataset-name"] == "owen"
    client.call("use_sample", name="rufus")
    assert client.call("list_datasets", name="owen")["dataset-name"] == "rufus"
    assert client.call("choose_dataset", chosen=dataset)["dataset-name"] == dataset
    assert client.call("choose_dataset", chosen="")["dataset-name"] == "rufus"
    client.call("type_dataset_name", name="mine")
    assert "value" not in str(client.call("list_datasets", name="mine")["dataset-name"])
    client.call("type_dataset_name", name="")
    assert client.call("list_datasets", name="")["dataset-name"] == "rufus"


def test_the_name_of_a_tuned_voice_follows_its_dataset(page, client, dataset):
    client.call("use_sample", name="owen")
    client.call("open_finetune")
    assert client.call("open_finetune", dataset=dataset)["tune-voice"] == dataset
    assert client.call("name_tuned", dataset="+")["tune-voice"] == "owen"
    client.call("use_sample", name="rufus")
    assert client.call("open_finetune", dataset="+", name="owen", given_name="Ann")["tune-voice"] == "rufus"
    client.call("type_tuned_name", name="Mine")
    assert "value" not in str(client.call("name_tuned", dataset=dataset)["tune-voice"])
    assert "value" not in str(client.call("open_finetune", dataset=dataset, name="Mine")["tune-voice"])


def test_one_click_makes_clips_of_a_sample_and_starts_a_run(page, client, monkeypatch):
    started = []
    # All but the process that trains.
    monkeypatch.setattr(page.studio.runs, "start", lambda planned, consent: started.append(planned) or planned.run_id)
    client.call("use_sample", name="owen")
    assert "New, of the sample Owen" in str(client.call("open_finetune"))
    plan(client, "One click does it all", wish("+"))
    client.call("start_run", name="Owen's double", statement="synthetic", **wish("+"))
    until(lambda: client.call("follow_start") and started)
    (planned,) = started
    assert (planned.data.dataset, planned.data.estimate.num_steps, planned.job.voice) == ("owen", 6, "Owen's double")
    assert {clip.text for clip in clips_of(page, "owen")} == {one.text for one in get_sample("owen").sentences}


def test_a_cancelled_click_leaves_nothing(page, client):
    """An unfinished dataset stayed, which the next click did not go on with: it made another one."""
    before = set(page.studio.datasets.list())
    client.call("use_sample", name="rufus")
    client.call("open_finetune")
    client.call("start_run", name="Rufus's double", statement="synthetic", **wish("+"))
    assert "Cancelling …" in client.call("cancel_start")["start-status"]
    follow(client, "follow_start", "Nothing was kept")
    assert set(page.studio.datasets.list()) == before
    assert not any(one.kind == "dataset" and one.label == "rufus" for one in page.studio.trash.list())
    assert not list((page.folder / "home" / "uploads").glob("rufus/**/*.*"))


def test_clips_that_are_made_first_can_be_stopped(page, dataset):
    task = BackgroundTask(MAKING_CLIPS)
    task.cancel()  # before the first look at the build, whose process takes a second to begin
    datasets = page.studio.datasets
    job = DatasetTable(Home(page.folder / "home")).job(dataset).model_copy(update={"name": "stopped"})
    with pytest.raises(TaskCancelled):
        datasets.build_and_wait(job, lambda progress: task.report(progress.num_done, progress.num_total))
    until(lambda: not datasets.progress("stopped").is_running)
    assert datasets.progress("stopped").state is BuildState.CANCELLED


def test_the_system_is_examined(client):
    client.call("examine_system")
    answers = str(follow(client, "follow_system", "are free"))
    assert "Found, and what to do" in answers
    assert "Ray" in answers


def test_a_whisper_model_is_fetched_cancelled_and_continued(client, tmp_path, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")  # the tests' own server is on this machine
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "whisper"
    with serve_weights() as server:
        monkeypatch.setitem(whisper._MODELS, "base", server.address()["base"])
        server.pause_after = 3_000_000
        client.call("fetch_whisper", name="base")
        follow(client, "follow_system", "[0-3] MB of 5 MB")
        with pytest.raises(AppError, match="already running"):
            client.call("fetch_whisper", name="base")
        client.call("cancel_whisper")
        server.may_go_on.set()
        follow(client, "follow_system", "was stopped")
        assert not (folder / "base.pt").exists()
        client.call("fetch_whisper", name="base")
        follow(client, "follow_system", "Whisper base:</strong> it is here")
        assert server.ranges[1] is not None, "it began from the beginning again"
        assert hash_file(folder / "base.pt") == DIGEST
        assert not list(folder.glob("*.partial"))


@pytest.mark.parametrize("door", ["fetch_whisper", "load_model"])
def test_without_a_network_the_page_says_what_to_do(page, client, tmp_path, monkeypatch, door):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if door == "fetch_whisper":
        client.call("fetch_whisper", name="small")
        follow(client, "follow_system", r"small is not here and cannot be downloaded.*Put small\.pt into")
    else:
        client.call("load_model", name="Qwen/Qwen3-TTS-12Hz-0.6B-Base")
        page.wait_for_loading()
        assert "hf download" in page.studio.loading.problem
        assert page.studio.loaded.name == str(GOLDEN_CHECKPOINT)
