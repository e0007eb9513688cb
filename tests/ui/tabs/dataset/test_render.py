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
    TranscriptChange,
)
from ui.tabs.dataset import render as render_dataset
from ui.tabs.dataset.render import HeardClip

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


def test_progress_tells_every_stage_with_what_is_left():
    html = render_dataset.progress_html(progress())
    assert html.count('role="progressbar"') == 4
    assert "3 of 4, 1 ready from before, about 2 min left" in html
    assert 'aria-valuenow="75"' in html


@pytest.mark.parametrize("state", [state for state in BuildState if state is not BuildState.RUNNING])
def test_every_end_is_told(state):
    html = render_dataset.progress_html(progress(state, problem=EVIL, finished_at=61.0))
    assert 'role="progressbar"' not in html
    assert EVIL not in html
    assert "alert(" in html


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
    html = render_dataset.totals_html(view)
    assert "1.5 min accepted of 2.0." in html
    assert "3 clips: 1 good, 1 with a doubt, 1 rejected." in html
    assert "b.wav, 2.0 to 3.0 s: No text." in html
    assert render_dataset.plots_html(view).count("<svg") == 2, "nobody has a distance to the speaker yet"


def test_who_listened_is_named_and_who_needs_a_text_is_asked():
    silent = clip("b", verdict=Verdict.NEEDS_TEXT, text="", text_source="none")
    heard = clip("a", text_source="whisper", text="hello")
    heard = replace(heard, details=heard.details.model_copy(update={"current": with_listener(heard)}))
    given = replace(clip("c", discrepancy=0.1), details=heard.details.model_copy(update={"text_source": "file"}))
    view = dataset(heard, silent, given)
    totals = render_dataset.totals_html(view)
    assert "pocketsphinx listened." in totals
    assert "1 clip without a text: type what is said in them." in totals
    assert [one.key for one in render_dataset.select_clips(view, "needs your text", "order")] == ["b"]
    table = render_dataset.clips_table(view.clips, render_dataset.numbers_of(view), {})
    assert "transcribed by pocketsphinx" in table
    assert "needs your text" in table


def with_listener(row: ClipRow) -> CutClip:
    return row.details.current.model_copy(update={"transcriber": "pocketsphinx"})


def test_clips_are_filtered_and_sorted():
    view = dataset(
        clip("a", seconds=4.0, noise_dbfs=-30.0),
        clip("b", seconds=9.0, verdict=Verdict.REJECTED, distance=0.5),
        clip("c", seconds=2.0, verdict=Verdict.WARNED, person_verdict=Verdict.WARNED),
    )

    def keys(wanted="all", sort="order"):
        return "".join(one.key for one in render_dataset.select_clips(view, wanted, sort))

    assert keys() == "abc"
    assert keys(sort="longest") == "bac"
    assert keys(sort="shortest") == "cab"
    assert keys(sort="worst") == "bca"
    assert keys(sort="noise") == "abc"
    assert keys(sort="speaker")[0] == "b"
    assert keys("rejected") == "b"
    assert keys("edited") == "c"


def test_a_row_has_player_reason_and_a_button_and_is_escaped():
    gates = (GateResult(gate="noise", verdict=Verdict.REJECTED, value=1, limit=2, sentence=f"Too noisy. {EVIL}"),)
    one = clip('k"1', text=EVIL, verdict=Verdict.REJECTED, gates=gates, recording_name=EVIL)
    heard = {one.key: HeardClip(path=Path('/page/x"y.wav'), envelope=(0.1, 0.9))}
    html = render_dataset.clips_table([one], {one.key: 7}, heard) + render_dataset.clip_card(one, 7, heard[one.key])
    assert "<script" not in html
    assert html.count("data-play=") == 2
    assert "Too noisy." in html
    assert 'data-clip="k&#34;1"' in html
    assert 'aria-label="Work on clip 7"' in html


def test_a_clip_without_its_sound_says_so():
    assert "The recording is gone" in render_dataset.clips_table([clip("a")], {"a": 1}, {})


def test_only_differences_are_marked():
    change = TranscriptChange(key="a", before="the old wet house", after="the old red house", confidence=0.9)
    html = render_dataset.changes_html([change], {"a": 3}, "en")
    assert re.findall(r"<del>(.*?)</del>", html) == ["wet"]
    assert re.findall(r"<ins>(.*?)</ins>", html) == ["red"]
    assert "Clip 3" in html
    assert "every text says what was heard" in render_dataset.changes_html([], {}, "en")


def test_of_thousands_of_changes_the_first_are_shown():
    changes = [TranscriptChange(key=f"c{n}", before="One two.", after="One too.", confidence=0.9) for n in range(99)]
    html = render_dataset.changes_html(changes, {change.key: n for n, change in enumerate(changes)}, "en")
    assert "heard in 99 clips" in html
    assert html.count("Take it over") == render_dataset.MAX_CHANGES
    assert f"the first {render_dataset.MAX_CHANGES}; others follow" in html
