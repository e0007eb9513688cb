"""What the dataset tab says, without a page: progress, clips in order, differences, nothing foreign unescaped."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from backend.audio.span import Span
from backend.dataset.clips.gates import GateResult, Verdict
from backend.dataset.clips.measures import SoundMeasures
from backend.dataset.clips.stage_results import CutClip, Lost
from backend.dataset.clips.views import (
    BuildProgress,
    BuildState,
    ClipDetails,
    ClipRow,
    DatasetView,
    RecordingDetails,
    RecordingView,
    StageProgress,
)
from ui.tabs.dataset import clip_rows
from ui.tabs.dataset import render as render_dataset
from ui.tabs.dataset.clip_rows import Answer, HeardClip
from ui.words.words import say

EVIL = "<script>alert('x')</script>"


def clip(key: str, *, seconds=4.0, verdict=Verdict.ACCEPTED, noise_dbfs=-60.0, text="Hello.", **details) -> ClipRow:
    sound = SoundMeasures(
        speech_dbfs=-20.0, noise_dbfs=noise_dbfs, clipped_share=0, silence_share=0, bandwidth_hz=8000, fingerprint="00"
    )
    span = Span(start_seconds=1.0, end_seconds=1.0 + seconds)
    cut = CutClip(span=span, clip_id=key, seconds=seconds, sound=sound, text=text, text_source="file")
    fields = {"recording_name": "ann.wav", "recording_audio_id": "a", "original": cut, "current": cut, "text": text}
    return ClipRow(
        key=key,
        clip_id=key,
        seconds=seconds,
        verdict=verdict,
        held_out=False,
        is_reference=key == "a",
        audio=Path(f"/clips/{key}.wav"),
        details=ClipDetails(**({"text_source": "file"} | fields | details)),
    )


def dataset(*clips: ClipRow, recordings=()) -> DatasetView:
    return DatasetView(
        name="ann",
        model="mini",
        language="english",
        state=BuildState.DONE,
        problem="",
        folder=Path("/datasets/ann"),
        digest="d",
        rows_are_current=True,
        recordings=recordings,
        clips=clips,
    )


def progress(state=BuildState.RUNNING, **fields) -> BuildProgress:
    stages = (StageProgress(stage="decode", num_done=3, num_total=4, num_reused=1, seconds_left=90.0),)
    return BuildProgress(
        name="ann",
        state=state,
        problem=fields.get("problem", ""),
        stages=stages,
        process_id=1,
        started_at=0.0,
        heartbeat_at=1.0,
        finished_at=fields.get("finished_at"),
    )


def test_progress_is_one_bar_with_its_stages_and_one_time_left():
    html = render_dataset.progress_html(progress())
    assert html.count('role="progressbar"') == 1
    assert "Reading 3 / 4, 1 from before" in html
    assert "Reading …" in html
    assert html.count("about 2 min left") == 1
    assert 'aria-valuenow="4"' in html, "three of four recordings are read, which is little of the work"
    assert html.count("<li") == 4


def test_before_the_first_result_it_says_what_is_waited_for():
    nothing_yet = progress().model_copy(update={"stages": ()})
    assert "Starting Ray, usually 20 s" in render_dataset.progress_html(nothing_yet)
    assert "Ray" not in render_dataset.progress_html(nothing_yet, uses_ray=False)
    assert "Waiting for room on the cluster" in render_dataset.progress_html(nothing_yet, is_there=True)


def test_a_build_that_is_being_cancelled_says_so():
    html = render_dataset.progress_html(progress(), is_cancelling=True)
    assert "Cancelling …" in html
    assert "left" not in html


@pytest.mark.parametrize("state", [state for state in BuildState if state is not BuildState.RUNNING])
def test_every_end_of_a_build_is_shown_escaped(state):
    html = render_dataset.progress_html(progress(state, problem=EVIL, finished_at=61.0))
    assert 'role="progressbar"' not in html
    assert EVIL not in html
    assert "alert(" in html


def recording(name: str, problem: str = "", num_clips: int = 0) -> RecordingView:
    return RecordingView(
        name=name, recording_id=name, seconds=1.0, num_clips=num_clips, problem=problem, details=RecordingDetails()
    )


UNUSABLE = (
    recording("up/empty.wav", "up/empty.wav is empty. Record again."),
    recording("up/silence.wav", "No speech was found in it."),
)


def test_files_that_were_not_used_are_named_beside_the_result():
    used = recording("up/ann.wav", num_clips=3)
    html = render_dataset.progress_html(progress(BuildState.DONE, finished_at=61.0), recordings=(used, *UNUSABLE))
    assert html.index("Ready.") < html.index("2 files were not used") < html.index("up/empty.wav is empty.")
    assert "silence.wav: No speech was found in it." in html
    assert 'class="says mixed"' in html
    assert '<details class="why" open>' in html
    all_used = render_dataset.progress_html(progress(BuildState.DONE, finished_at=61.0), recordings=(used,))
    assert "not used" not in all_used
    assert 'class="says good"' in all_used
    many = [recording(f"{number}.wav", "No speech was found in it.") for number in range(25)]
    html = render_dataset.progress_html(progress(BuildState.DONE, finished_at=61.0), recordings=many)
    assert "25 files were not used" in html
    assert "and 5 more" in html


def test_a_build_of_unusable_files_only_gives_their_reasons():
    failed = progress(BuildState.FAILED, problem="No clip could be cut from any recording.", finished_at=61.0)
    html = render_dataset.progress_html(failed, recordings=UNUSABLE)
    assert "It could not be prepared." in html
    assert "up/empty.wav is empty." in html
    assert "silence.wav: No speech was found in it." in html
    # What failed otherwise says nothing of files of the build before.
    full = progress(BuildState.FAILED, problem="The disk is full.", finished_at=61.0)
    assert "not used" not in render_dataset.progress_html(full, recordings=(recording("a.wav", "", 2), *UNUSABLE))


def test_statistics_name_every_file_that_was_not_used():
    html = render_dataset.statistics_html(dataset(clip("a"), recordings=UNUSABLE))
    assert "Not used: 2" in html
    assert "silence.wav: No speech was found in it." in html


def test_totals_count_what_can_be_learned_from():
    lost = Lost(span=Span(start_seconds=2, end_seconds=3), problem="No text.")
    recording = RecordingView(
        name="b.wav", recording_id="b", seconds=9.0, num_clips=1, problem="", details=RecordingDetails(lost=(lost,))
    )
    view = dataset(
        clip("a", seconds=60.0),
        clip("b", seconds=30.0, verdict=Verdict.WARNED),
        clip("c", seconds=30.0, verdict=Verdict.REJECTED),
        recordings=(recording,),
    )
    html = render_dataset.summary_html(view, [None])
    assert "1.5 min" in html
    assert "of 10 ready" in html
    assert 'stroke-dasharray="15 100"' in html
    assert "3 clips · 1 good · 1 doubtful · 1 left out" in html
    assert "No consent yet for 1 recordings" in html
    statistics = render_dataset.statistics_html(view)
    assert "1.5 of 2.0 min" in statistics
    assert "b.wav, 2.0 to 3.0 s: No text." in statistics
    assert render_dataset.plots_html(view).count("<svg") == 2, "nobody has a distance to the speaker yet"


def test_who_listened_is_named_and_who_needs_a_text_is_asked():
    silent = clip("b", verdict=Verdict.NEEDS_TEXT, text="", text_source="none")
    heard = clip("a", text_source="whisper", text="hello")
    heard = replace(heard, details=heard.details.model_copy(update={"current": with_listener(heard)}))
    given = replace(clip("c", discrepancy=0.1), details=heard.details.model_copy(update={"text_source": "file"}))
    view = dataset(heard, silent, given)
    assert "Heard by pocketsphinx." in render_dataset.statistics_html(view)
    totals = render_dataset.summary_html(view, [])
    assert "1 need a text" in totals
    assert "Type what is said in clips without a text." in totals
    assert [one.key for one in clip_rows.select_clips(view, "needs your text", "order")] == ["b"]
    table = clip_rows.clip_list(view.clips, view, {})
    assert "transcribed by pocketsphinx" in table
    assert "Needs your text" in table


def with_listener(row: ClipRow) -> CutClip:
    return row.details.current.model_copy(update={"transcriber": "pocketsphinx"})


def test_clips_are_filtered_and_sorted():
    view = dataset(
        clip("a", seconds=4.0, noise_dbfs=-30.0),
        clip("b", seconds=9.0, verdict=Verdict.REJECTED, distance=0.5),
        clip("c", seconds=2.0, verdict=Verdict.WARNED, person_verdict=Verdict.WARNED),
    )

    def keys(wanted="all", sort="order"):
        return "".join(one.key for one in clip_rows.select_clips(view, wanted, sort))

    assert keys() == "abc"
    assert keys(sort="longest") == "bac"
    assert keys(sort="shortest") == "cab"
    assert keys(sort="worst") == "bca"
    assert keys(sort="noise") == "abc"
    assert keys(sort="speaker")[0] == "b"
    assert keys("rejected") == "b"
    assert keys("edited") == "c"


def test_filters_say_how_many_clips_pass():
    view = dataset(clip("a"), clip("b", verdict=Verdict.REJECTED, person_verdict=Verdict.REJECTED))
    choices = [("All 2", "all"), ("Good 1", "accepted"), ("Doubtful 0", "warned"), ("Left out 1", "rejected")]
    assert clip_rows.filter_choices(view) == [*choices, ("Changed by you 1", "edited")]


def test_styles_are_filters_and_stand_in_their_rows():
    view = dataset(clip("a", style="calm"), clip("b"), clip("c", style='"loud', given_style='"loud'))
    choices = clip_rows.filter_choices(view)
    assert choices[-4:] == [
        ("Changed by you 1", "edited"),
        ("No style 1", "style:"),
        ('Style "loud 1', 'style:"loud'),
        ("Style calm 1", "style:calm"),
    ]
    assert [one.key for one in clip_rows.select_clips(view, "style:calm", "order")] == ["a"]
    assert [one.key for one in clip_rows.select_clips(view, "style:", "order")] == ["b"]
    html = clip_rows.clip_list(view.clips, view, {})
    assert html.count('class="clip-style"') == 3
    assert 'aria-label="Style of clip 1" value="calm"' in html
    assert html.count('value="&#34;loud"') == 2, "in its row and among those to choose from"
    assert "Style" not in str(clip_rows.filter_choices(dataset(clip("b")))), "nobody is asked about what is not there"


def test_a_row_has_player_text_reason_and_buttons_and_is_escaped():
    gates = (GateResult(gate="noise", verdict=Verdict.REJECTED, value=1, limit=2, sentence=f"Too noisy. {EVIL}"),)
    one = clip('k"1', text=EVIL, verdict=Verdict.REJECTED, gates=gates, recording_name=EVIL)
    heard = {one.key: HeardClip(path=Path('/page/x"y.wav'), envelope=(0.1, 0.9))}
    answers = {one.key: Answer(tone="bad", words=EVIL)}
    html = clip_rows.clip_list([one], dataset(one), heard, answers=answers)
    assert "<script" not in html
    assert html.count("data-play=") == 1
    assert "Much noise behind the voice" in html
    assert "Too noisy." in html
    assert 'data-clip="k&#34;1"' in html
    for label in ("What clip 1 says", "Accept clip 1", "Leave out clip 1", "Start of clip 1", "End of clip 1"):
        assert f'aria-label="{label}"' in html
    assert 'role="alert"' in html


def test_every_reason_is_six_words_at_most():
    for key in clip_rows.REASONS.values():
        assert len(say(key).split()) <= 6, key


def test_the_handles_stand_where_the_clip_lies_in_its_recording():
    one = clip("a", seconds=4.0)
    heard = {"a": HeardClip(path=Path("/a.wav"), envelope=(1.0,), before=(0.5,), after=(0.5,), context=(0.0, 6.0))}
    html = clip_rows.clip_list([one], dataset(one), heard)
    assert "--a:16.67%;--b:83.33%" in html
    assert 'aria-valuenow="1.0"' in html
    assert 'aria-valuenow="5.0"' in html


def test_a_clip_without_its_sound_says_so():
    assert "The recording is gone" in clip_rows.clip_list([clip("a")], dataset(clip("a")), {})


def test_only_differences_are_marked():
    one = clip("a", text="the old wet house")
    html = clip_rows.clip_list([one], dataset(one), {}, anew={"a": "the old red house"})
    assert re.findall(r"<del>(.*?)</del>", html) == ["wet"]
    assert re.findall(r"<ins>(.*?)</ins>", html) == ["red"]
    assert 'data-text="the old red house"' in html
    assert "Heard:" not in clip_rows.clip_list([one], dataset(one), {}, anew={"a": "The old wet house."})


def test_what_was_heard_shows_where_it_speaks_against_the_text():
    one = clip("a", text="the old wet house")
    heard = one.details.current.model_copy(update={"heard": "the old red house"})
    doubted = GateResult(gate="disagreement", verdict=Verdict.WARNED, value=0.5, limit=0.3, sentence="Differs.")
    trusted = replace(one, details=one.details.model_copy(update={"current": heard, "gates": (doubted,)}))
    unheard = replace(one, details=one.details.model_copy(update={"current": heard}))
    assert "<ins>red</ins>" in clip_rows.clip_list([trusted], dataset(trusted), {})
    assert "Heard:" not in clip_rows.clip_list([unheard], dataset(unheard), {}), "it judged nothing"


def test_of_thousands_of_clips_a_page_is_drawn():
    assert "Page 2 of 300 · 3000 clips" in clip_rows.pages_html(2, 300, 3000)
    assert "1 clip" in clip_rows.pages_html(1, 1, 1)
