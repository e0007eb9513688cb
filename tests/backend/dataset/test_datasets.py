"""A dataset from recordings with texts: what is in it, that it is done once, and what people change about it."""

from __future__ import annotations

import json
import shutil
import wave
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile
from safetensors.torch import load_file, save_file

from backend.audio.encoding import StreamEncoder
from backend.audio.span import Span
from backend.audio.writing import write_wav
from backend.dataset.build.assemble_clips import clip_key
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.stage_counts import STAGES
from backend.dataset.clips.views import BuildState
from backend.dataset.datasets import Datasets
from backend.dataset.errors import (
    DatasetBusy,
    DatasetEmpty,
    DatasetNameInvalid,
    DatasetNameTaken,
    DatasetNotFound,
    EditInvalid,
)
from backend.dataset.storage.lock import dataset_lock
from backend.errors import OutputInvalid
from backend.store.database import Database
from backend.store.home import Home
from backend.store.trash import Trash
from tests.backend.dataset.spoken import SENTENCES, speak, speak_folder
from tests.golden import GOLDEN_CHECKPOINT
from training.data.code_rows import codes_of, read_card, read_code_rows


def test_every_sentence_becomes_a_row_and_every_bad_file_a_reason(datasets: Datasets, home: Path):
    view = datasets.show("ann")
    assert view.state is BuildState.DONE
    assert sorted(clip.text for clip in view.clips) == sorted(SENTENCES)
    reasons = {Path(recording.name).name: recording.problem for recording in view.recordings if recording.problem}
    assert reasons.keys() == {"broken.wav", "text.wav"}
    folder = home / "datasets" / "ann"
    card, rows = read_card(folder), read_code_rows(folder / "rows.parquet")
    assert {row.text for row in rows} == set(SENTENCES)
    assert card.reference_clip_id in {row.clip_id for row in rows if not row.held_out}
    assert [row.held_out for row in rows].count(True) == 1
    for row in rows:
        with wave.open(str(folder / "audio" / f"{row.clip_id}.wav")) as audio:
            assert (audio.getframerate(), audio.getnchannels(), audio.getsampwidth()) == (24_000, 1, 2)
            assert audio.getnframes() / 24_000 == pytest.approx(row.seconds)
        assert codes_of(row, card.num_codebooks).shape[0] == pytest.approx(row.seconds * 12.5, abs=1)
        assert np.isfinite(row.speaker_embedding).all()


def test_building_again_does_nothing(datasets: Datasets, recordings: Path, job: Callable[..., BuildJob]):
    before = datasets.show("ann")
    view = datasets.build(job(recordings))
    stages = {stage.stage: stage for stage in datasets.progress("ann").stages}
    assert stages.keys() == set(STAGES)
    assert [stage.num_done - stage.num_reused for stage in stages.values()] == [0, 0, 0, 0]
    assert stages["tokenize"].num_reused == len(SENTENCES)
    assert view.digest == before.digest
    assert view.clips == before.clips


def test_only_what_is_new_is_done(datasets: Datasets, recordings: Path, job: Callable[..., BuildJob], tmp_path: Path):
    speak(tmp_path / "more" / "new.wav", "A large size in stockings is hard to sell.")
    (tmp_path / "more" / "new.txt").write_text("A large size in stockings is hard to sell.")
    view = datasets.build(job([recordings, tmp_path / "more"]))
    assert len(view.clips) == len(SENTENCES) + 1
    worked = [datasets.progress("ann").stage(stage) for stage in ("decode", "cut", "tokenize")]
    assert [stage.num_done - stage.num_reused for stage in worked] == [1, 1, 1]


def test_the_same_recording_under_other_names_is_one(tmp_path: Path, recordings: Path, job: Callable[..., BuildJob]):
    """The same bytes are recognised as a file, the same sound in another file as a clip."""
    folder = speak_folder(tmp_path / "again", SENTENCES[:5])
    (folder / "copy.wav").write_bytes((folder / "00.wav").read_bytes())
    with wave.open(str(folder / "01.wav")) as audio:
        samples = np.frombuffer(audio.readframes(audio.getnframes()), "<i2") / 32768
        write_wav(folder / "quieter.wav", samples * 0.5, audio.getframerate())
        encoder = StreamEncoder("mp3", audio.getframerate())
    (folder / "sent.mp3").write_bytes(encoder.header() + encoder.encode(samples[3_333:]) + encoder.finish())
    for name in ("quieter", "sent"):
        (folder / f"{name}.txt").write_text(SENTENCES[1])
    datasets = Datasets(Home(tmp_path / "home"))
    view = datasets.build(job(folder))
    assert "is the same file as" in next(r.problem for r in view.recordings if r.name.endswith("copy.wav"))
    by_name = {Path(clip.details.recording_name).name: clip for clip in view.clips}
    for name in ("quieter.wav", "sent.mp3"):
        assert by_name[name].verdict is Verdict.REJECTED
        assert any("duplicates again/01.wav" in reason for reason in by_name[name].reasons)
    assert view.count(Verdict.REJECTED) == 2


def test_a_person_overrules_edits_and_chooses(datasets: Datasets, home: Path):
    clips = {clip.text: clip for clip in datasets.show("ann").clips}
    first, second, third = (clips[sentence].key for sentence in SENTENCES[:3])
    digest = datasets.show("ann").digest
    datasets.overrule("ann", first, Verdict.REJECTED)
    datasets.edit_text("ann", second, "  Glue the sheet,  please. ")
    datasets.choose_reference("ann", third)
    assert not datasets.show("ann").rows_are_current
    card = datasets.rebuild_rows("ann")
    view = datasets.show("ann")
    rows = read_code_rows(home / "datasets" / "ann" / "rows.parquet")
    assert view.rows_are_current
    assert card.digest != digest
    assert SENTENCES[0] not in {row.text for row in rows}
    assert "Glue the sheet, please." in {row.text for row in rows}
    assert view.reference is not None
    assert (view.reference.key, view.reference.clip_id) == (third, card.reference_clip_id)
    datasets.overrule("ann", first, None)
    datasets.edit_text("ann", second, None)
    datasets.choose_reference("ann", None)
    assert datasets.rebuild_rows("ann").digest == digest


def test_styles_are_set_in_bulk_kept_and_taken_back(
    datasets: Datasets, home: Path, recordings: Path, job: Callable[..., BuildJob]
):
    keys = [clip.key for clip in datasets.show("ann").clips]
    digest, verdicts = datasets.show("ann").digest, [clip.verdict for clip in datasets.show("ann").clips]
    assert datasets.set_styles("ann", dict.fromkeys(keys[:3], " Calm ")) == dict.fromkeys(keys[:3])
    before = datasets.set_styles("ann", {keys[2]: "excited", keys[3]: "excited"})
    assert before == {keys[2]: "calm", keys[3]: None}
    view = datasets.show("ann")
    assert view.styles == {"": len(keys) - 4, "calm": 2, "excited": 2}
    assert [clip.verdict for clip in view.clips] == verdicts
    assert not view.rows_are_current
    assert datasets.rebuild_rows("ann").digest != digest
    styles = {row.text: row.style for row in read_code_rows(home / "datasets" / "ann" / "rows.parquet")}
    assert styles == {clip.text: clip.style for clip in view.clips if clip.is_usable}
    assert datasets.build(job(recordings)).styles == view.styles, "another build keeps them"
    datasets.set_styles("ann", before)
    assert datasets.show("ann").styles["calm"] == 3
    datasets.set_styles("ann", dict.fromkeys(keys))
    assert datasets.rebuild_rows("ann").digest == digest, "without styles it is the same data as ever"
    with pytest.raises(EditInvalid, match="cannot be a style"):
        datasets.set_styles("ann", {keys[0]: "<b>"})
    with pytest.raises(DatasetNotFound, match="no clip 'nobody'"):
        datasets.set_styles("ann", {keys[0]: "calm", "nobody": "calm"})
    assert not any(datasets.show("ann").styles), "nothing is half done"


def test_styles_go_out_and_come_back_with_the_texts(datasets: Datasets, job: Callable[..., BuildJob], tmp_path: Path):
    keys = [clip.key for clip in datasets.show("ann").clips]
    datasets.set_styles("ann", {keys[0]: "calm", keys[1]: "whisper"})
    datasets.export("ann", tmp_path / "out")
    expected = {clip.text: clip.style for clip in datasets.show("ann").clips}
    view = datasets.build(job(tmp_path / "out", name="again"))
    assert {clip.text: clip.style for clip in view.clips} == expected
    key = next(clip.key for clip in view.clips if clip.style == "calm")
    datasets.set_styles("again", {key: ""})
    assert "calm" not in datasets.show("again").styles, "the user may say that it has none"
    datasets.set_styles("again", {key: None})
    assert datasets.show("again").styles["calm"] == 1, "what came with it is still known"


def test_an_edit_of_one_clip_writes_only_its_row(datasets: Datasets, home: Path):
    key = next(clip.key for clip in datasets.show("ann").clips if clip.verdict is Verdict.ACCEPTED)

    def row_numbers() -> dict[str, int]:
        with Database(home).reading() as connection:
            return {row["key"]: row["rowid"] for row in connection.execute("SELECT rowid, key FROM dataset_clips")}

    before = row_numbers()
    datasets.overrule("ann", key, Verdict.ACCEPTED)
    after = row_numbers()
    assert {each for each in before if after[each] != before[each]} == {key}
    datasets.overrule("ann", key, None)


def test_a_moved_cut_is_cut_and_tokenized_anew_and_survives_the_next_build(
    datasets: Datasets, recordings: Path, job: Callable[..., BuildJob]
):
    clip = datasets.show("ann").clips[0]
    span = clip.details.current.span
    datasets.move_cut("ann", clip.key, span.start_seconds + 0.5, span.end_seconds)
    moved = next(other for other in datasets.show("ann").clips if other.key == clip.key)
    assert moved.clip_id != clip.clip_id
    assert moved.seconds == pytest.approx(clip.seconds - 0.5, abs=0.15)
    assert not moved.details.is_tokenized
    assert moved.audio.is_file()
    datasets.rebuild_rows("ann")
    moved = next(other for other in datasets.show("ann").clips if other.key == clip.key)
    assert moved.details.is_tokenized
    again = datasets.build(job(recordings))
    assert next(other for other in again.clips if other.key == clip.key).clip_id == moved.clip_id


def test_after_another_version_of_the_model_all_clips_get_its_codes(tmp_path: Path, job: Callable[..., BuildJob]):
    model = shutil.copytree(GOLDEN_CHECKPOINT, tmp_path / "model")
    datasets = Datasets(Home(tmp_path / "home"))
    datasets.build(job(speak_folder(tmp_path / "spoken", SENTENCES[:4]), model=str(model)))
    rows_file = tmp_path / "home" / "datasets" / "ann" / "rows.parquet"
    before = {row.text: row for row in read_code_rows(rows_file)}
    weights_file = model / "speech_tokenizer" / "model.safetensors"
    weights = load_file(weights_file)
    kernel = weights["encoder.encoder.layers.0.conv.weight"]
    save_file(weights | {"encoder.encoder.layers.0.conv.weight": -2 * kernel}, weights_file)

    clip = datasets.show("ann").clips[0]
    span = clip.details.current.span
    datasets.move_cut("ann", clip.key, span.start_seconds + 0.5, span.end_seconds)
    datasets.rebuild_rows("ann")

    after = {row.text: row for row in read_code_rows(rows_file)}
    num_codebooks = read_card(rows_file.parent).num_codebooks
    codes = {text: [codes_of(rows[text], num_codebooks) for rows in (before, after)] for text in before}
    assert not any(np.array_equal(*pair) for pair in codes.values())
    assert all(one.details.is_tokenized for one in datasets.show("ann").clips)
    # What they are is known now, so the next change takes up what is here.
    datasets.edit_text("ann", clip.key, "Something else is said.")
    assert datasets.rebuild_rows("ann").num_codebooks == num_codebooks


def test_edits_that_leave_no_clip_are_refused(datasets: Datasets):
    key = datasets.show("ann").clips[0].key
    with pytest.raises(EditInvalid, match="needs a text"):
        datasets.edit_text("ann", key, "  ")
    for start, end in ((0.0, 99.0), (-1.0, 1.0), (1.0, 1.1), (2.0, 1.0)):
        with pytest.raises(EditInvalid, match="cannot be cut"):
            datasets.move_cut("ann", key, start, end)
    datasets.overrule("ann", key, Verdict.REJECTED)
    with pytest.raises(EditInvalid, match="cannot be the reference clip"):
        datasets.choose_reference("ann", key)
    with pytest.raises(DatasetNotFound, match="no clip 'nobody'"):
        datasets.overrule("ann", "nobody", None)


def test_two_at_once_are_refused(datasets: Datasets, home: Path, recordings: Path, job: Callable[..., BuildJob]):
    with dataset_lock(home, "ann"):
        for change in (
            lambda: datasets.build(job(recordings)),
            lambda: datasets.start_build(job(recordings)),
            lambda: datasets.rebuild_rows("ann"),
            lambda: datasets.delete("ann"),
        ):
            with pytest.raises(DatasetBusy, match="just now"):
                change()
    assert datasets.show("ann").state is BuildState.DONE


def test_two_builds_of_the_same_recordings_share_what_they_make(
    tmp_path: Path, built_home: Path, recordings: Path, job: Callable[..., BuildJob]
):
    home = tmp_path / "home"
    Database(home)
    with ThreadPoolExecutor(2) as pool:
        views = list(pool.map(lambda name: Datasets(Home(home)).build(job(recordings, name)), ("ann", "bob")))
    wanted = Datasets(Home(built_home)).show("ann")
    assert [view.digest for view in views] == [wanted.digest] * 2
    assert [clip.clip_id for clip in views[0].clips] == [clip.clip_id for clip in views[1].clips]
    assert not [path for path in home.rglob("*") if path.name.endswith(".partial") or path.parent.name == "incoming"]


def test_originals_are_kept_where_asked(tmp_path: Path, job: Callable[..., BuildJob]):
    folder = speak_folder(tmp_path / "rec", SENTENCES[:3])
    home = tmp_path / "home"
    given = {file.read_bytes() for file in folder.glob("*.wav")}
    datasets = Datasets(Home(home))
    datasets.build(job(folder))
    assert not given & {file.read_bytes() for file in (home / "artifacts").glob("??/*.wav")}
    datasets.build(job(folder, keeps_originals=True))
    assert given <= {file.read_bytes() for file in (home / "artifacts").glob("??/*.wav")}


def test_export_is_what_other_tools_read(datasets: Datasets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As Qwen3-TTS's prepare_data.py and dataset.py do it: they open the paths as they are, and take 24 kHz only."""
    num_clips = datasets.export("ann", tmp_path / "out")
    monkeypatch.chdir(tmp_path / "out")
    lines = [
        json.loads(line.strip())
        for name in ("train_raw.jsonl", "held_out_raw.jsonl")
        for line in Path(name).read_text(encoding="utf-8").splitlines()
    ]
    assert num_clips == len(lines) == len(SENTENCES)
    assert {line["text"] for line in lines} == set(SENTENCES)
    assert len({line["ref_audio"] for line in lines}) == 1, "references of one length, to be put into one batch"
    for line in lines:
        assert line.keys() == {"audio", "text", "ref_audio"}
        for path in (line["audio"], line["ref_audio"]):
            samples, rate = soundfile.read(path, dtype="float32")
            assert (rate, samples.ndim) == (24_000, 1)
            assert 0.01 < np.abs(samples).max() <= 1.0
    with pytest.raises(OutputInvalid, match="not empty"):
        datasets.export("ann", tmp_path / "out")


def test_what_was_cut_elsewhere_is_exported_before_it_has_codes(datasets: Datasets, tmp_path: Path):
    clip = next(clip for clip in datasets.show("ann").clips if not clip.is_reference)
    span = clip.details.current.span
    datasets.move_cut("ann", clip.key, span.start_seconds + 0.3, span.end_seconds)
    assert datasets.export("ann", tmp_path / "out") == len(SENTENCES)


def test_a_deleted_dataset_is_gone(datasets: Datasets, home: Path):
    uploaded = home / "uploads" / "ann" / "000" / "one.wav"
    uploaded.parent.mkdir(parents=True)
    uploaded.write_bytes(b"sound")
    before, clips = datasets.show("ann"), datasets.show("ann").clips
    datasets.edit_text("ann", clips[0].key, "What was typed.")
    edited, trash = datasets.show("ann"), Trash(Home(home))
    deleted = datasets.delete("ann")
    assert datasets.list() == []
    assert not (home / "datasets" / "ann").exists()
    with pytest.raises(DatasetNotFound):
        datasets.show("ann")
    trash.restore(deleted.id)
    assert datasets.show("ann") == edited != before
    assert datasets.folder("ann").is_dir()
    trash.purge(datasets.delete("ann").id)
    assert not uploaded.exists()


def test_no_recordings_and_no_texts_are_said_plainly(tmp_path: Path, job: Callable[..., BuildJob]):
    home = tmp_path / "home"
    datasets = Datasets(Home(home))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetEmpty):
        datasets.build(job(tmp_path / "empty"))
    assert datasets.progress("ann").state is BuildState.FAILED
    speak(tmp_path / "mute" / "one.wav", SENTENCES[0])
    with pytest.raises(DatasetEmpty, match="add texts"):
        datasets.build(job(tmp_path / "mute"))
    # Nothing is wrong with the sound: with a text it can be trained on.
    view = datasets.show("ann")
    assert "taken as given, and clips without one need yours" in view.notice
    assert [(clip.verdict, clip.is_usable) for clip in view.clips] == [(Verdict.NEEDS_TEXT, False)]
    datasets.edit_text("ann", view.clips[0].key, SENTENCES[0])
    assert [clip.verdict for clip in datasets.show("ann").clips] == [Verdict.ACCEPTED]
    assert datasets.rebuild_rows("ann").transcribers == ()


def test_in_a_language_that_nothing_here_hears_texts_are_taken_as_given(
    tmp_path: Path, job: Callable[..., BuildJob], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "downloads"))
    monkeypatch.setenv("ENCORE_OFFLINE", "1")
    speak(tmp_path / "rec" / "one.wav", SENTENCES[0]).with_suffix(".txt").write_text("Guten Morgen, liebe Sorgen.")
    speak(tmp_path / "rec" / "two.wav", SENTENCES[1])
    datasets = Datasets(Home(tmp_path / "home"))
    view = datasets.build(job(tmp_path / "rec", whisper=None, language="german"))
    assert "knows English only" in view.notice
    assert "Whisper" in view.notice
    assert [clip.verdict for clip in view.clips] == [Verdict.ACCEPTED, Verdict.NEEDS_TEXT]


def test_when_all_is_rejected_the_reasons_are_there(tmp_path: Path, job: Callable[..., BuildJob]):
    speak(tmp_path / "rec" / "one.wav", SENTENCES[0])
    (tmp_path / "rec" / "one.txt").write_text("No. " * 80)
    home = tmp_path / "home"
    datasets = Datasets(Home(home))
    with pytest.raises(DatasetEmpty, match="None of the 1 clips"):
        datasets.build(job(tmp_path / "rec"))
    view = datasets.show("ann")
    assert (view.state, view.digest, view.count(Verdict.REJECTED)) == (BuildState.FAILED, None, 1)
    assert view.clips[0].reasons
    datasets.overrule("ann", view.clips[0].key, Verdict.ACCEPTED)
    assert datasets.rebuild_rows("ann").reference_clip_id == view.clips[0].clip_id


@pytest.mark.parametrize("name", ["", "../up", "a b", "x" * 65, ".hidden", "ümlaut"])
def test_names_that_are_no_folder_names_are_refused(name: str, tmp_path: Path):
    with pytest.raises(DatasetNameInvalid):
        BuildJob.parse(name, [tmp_path])


def test_clip_keys_never_change(datasets: Datasets):
    """Edits of datasets that earlier versions built are found by these keys."""
    clip = datasets.show("ann").clips[0].details.original
    cut = clip.model_copy(update={"span": Span(start_seconds=1.25, end_seconds=4.5)})
    assert clip_key("0123456789abcdef" * 2, cut) == "bd7b3b37dd69"


def test_a_build_takes_no_recording_out_of_a_dataset_unasked(
    datasets: Datasets, home: Path, job: Callable[..., BuildJob], tmp_path: Path
):
    """Preparing with a chosen dataset once replaced its clips and edits by those of another voice."""
    clip = datasets.show("ann").clips[0]
    datasets.edit_text("ann", clip.key, "What was typed.")
    before = datasets.show("ann")
    other = speak_folder(tmp_path / "other", ["A large size in stockings is hard to sell."])
    for build in (datasets.build, datasets.start_build):
        with pytest.raises(DatasetNameTaken, match=rf"{len(SENTENCES)} clips, 1 edit\).*call this one ann-2"):
            build(job(other))
    assert datasets.show("ann") == before
    added = datasets.build(datasets.added_to("ann", job(other)))
    assert len(added.clips) == len(SENTENCES) + 1
    assert next(one for one in added.clips if one.key == clip.key).text == "What was typed."
    replaced = datasets.build(job(other), replaces=True)
    assert [one.text for one in replaced.clips] == ["A large size in stockings is hard to sell."]
    (deleted,) = Trash(Home(home)).list("dataset")
    instead = datasets.restore(deleted)
    assert instead is not None
    assert datasets.show("ann") == added
    assert Trash(Home(home)).list() == (instead,)
