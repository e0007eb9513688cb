"""What the fine-tune tab says, without a page: the plan, memory as a picture, a run in every state, its checkpoints."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from backend.background_tasks import TaskState
from backend.evaluation.scores import EvaluatedTake, summarize
from backend.runs.planning.plan import SpeakerMinutes, plan_run
from backend.runs.planning.request import RunRequest
from backend.runs.storage.records import CheckpointRecord, EventRecord, MetricRecord, RunRecord
from backend.runs.storage.states import RunState
from backend.store.home import Home
from tests.backend.runs.small_dataset import write_small_dataset
from tests.golden import GOLDEN_CHECKPOINT
from training.job import STRATEGIES
from ui.html.messages import NOTHING
from ui.tabs.finetune import render as render_finetune
from ui.words.words import say, spoken_to

EVIL = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    dataset = write_small_dataset(home / "datasets" / "mine")
    options = {"strategy": "zero2", "num_workers": 2}
    request = RunRequest(dataset=dataset, model=str(GOLDEN_CHECKPOINT), preset=None, options=options)
    return plan_run(request, Home(home), num_cpus=1)


def run(state=RunState.RUNNING, **changes) -> RunRecord:
    fields = {
        "id": "r1",
        "dataset": "mine",
        "voice": "Ann",
        "model": "mini",
        "preset": "quick",
        "strategy": "ddp",
        "num_workers": 2,
        "message": "Training.",
        "created_at": 0.0,
        "started_at": 1.0,
        "ended_at": None,
        "heartbeat_at": None,
        "process_id": None,
        "process_started_at": None,
        "attempt": 1,
        "step": 5,
        "num_steps": 20,
        "best_checkpoint": None,
        "verdict": "",
        "export_folder": None,
        "consent": None,
        "job": {
            "voice": "Ann",
            "dataset": "/d",
            "dataset_digest": "1",
            "base_model": "/m",
            "output": "/o",
        },
    }
    return RunRecord.model_validate(fields | {"state": state} | changes)


def checkpoint(name="step-10", step=10, text="Hello.") -> CheckpointRecord:
    take = EvaluatedTake(
        position=0,
        text=text,
        held_out=False,
        seed=1,
        seconds=2.0,
        expected_seconds=2.0,
        finish_reason="length",
        file=f"takes/{name}/0.wav",
        transcript=text,
        character_error=0.25,
    )
    return CheckpointRecord(
        name=name, step=step, saved_at=1.0, state="evaluated", scores=summarize([take]), takes=(take,)
    )


def test_a_plan_tells_steps_time_memory_disk_and_problems(planned):
    assert planned.data.preset == "quick", "there is little to learn from"
    html = render_finetune.estimate_html(planned)
    assert f"{planned.data.estimate.num_steps} steps" in html
    assert "2 workers" in html
    assert "2 workers need 2 CPUs" in html
    assert "are free" in html


def test_memory_is_drawn_for_every_strategy_and_number_of_workers(planned):
    html = render_finetune.memory_html(planned)
    table = ElementTree.fromstring(f"<p>{html}</p>").find(".//table")
    rows = table.findall("tbody/tr")
    assert [row.find("th").text for row in rows] == list(STRATEGIES)
    assert all(len(row.findall("td")) == 4 for row in rows)
    assert len(table.findall(".//td[@class='chosen']")) == 1
    for bar in table.findall(".//div[@role='img']"):
        assert "optimizer" in bar.attrib["aria-label"]
        widths = [float(part.attrib["style"].removeprefix("width:").rstrip("%")) for part in bar]
        assert sum(widths) <= 100.5


def test_planning_is_told_and_why_it_failed():
    assert "Planning" in render_finetune.plan_html(TaskState(what="Planning"))
    failed = render_finetune.plan_html(TaskState(what="Planning", is_running=False, problem=EVIL))
    assert 'role="alert"' in failed
    assert EVIL not in failed
    assert render_finetune.plan_html(None) == NOTHING


@pytest.mark.parametrize("state", list(RunState))
def test_a_run_is_told_in_every_state(state):
    html = render_finetune.run_html(run(state, message=EVIL, voice=EVIL), {"memory_bytes": 2**30}, 120.0)
    assert EVIL not in html
    assert "Step 5 of 20" in html
    assert 'aria-valuenow="25"' in html
    assert "1.0 GiB" in html
    assert ("about 2 min left" in html) == (state is RunState.RUNNING)


def test_the_memory_of_every_worker_is_told():
    sizes = {"memory_bytes": 2**30, "worker_0_bytes": 2**30, "worker_1_bytes": 2**29}
    html = render_finetune.run_html(run(RunState.RUNNING), sizes, None)
    assert "Memory of the workers: 1: 1.0 GiB, 2: 512 MiB." in html


def test_a_report_is_fetched_under_a_name_that_is_escaped():
    html = render_finetune.report_line(run(RunState.DONE, voice=EVIL), Path("/page/x/report.html"), 2_000_000)
    assert EVIL not in html
    assert "Download the report" in html
    assert "2 MB" in html


def test_both_losses_are_curves():
    metrics = [
        MetricRecord(step=step, attempt=1, measures={"talker_loss": 5.0 - step, "code_predictor_loss": 2.0})
        for step in range(1, 4)
    ]
    html = render_finetune.losses_html(metrics)
    assert html.count("<polyline") == 2
    assert render_finetune.losses_html([]) == NOTHING


def test_takes_have_players_the_newest_first_and_open():
    points = [checkpoint("base", 0), checkpoint(text=EVIL)]
    places = {take.file: Path(f"/page/{point.name}.wav") for point in points for take in point.takes}
    html = render_finetune.takes_html(points, places, "step-10")
    assert EVIL not in html
    assert html.count("data-play=") == 2
    assert html.index("Step 10 ★ best") < html.index("Base model, zero-shot")
    assert html.count("<details open>") == 1
    assert "It did not end by itself." in html
    scores = render_finetune.scores_html(
        [*points, CheckpointRecord(name="c", step=20, saved_at=2.0, state="waiting")], None
    )
    assert "25.0%" in scores
    assert "Waiting to be evaluated." in scores


def test_checkpoints_are_dots_that_say_one_sentence_and_those_to_come_are_hollow():
    points = [checkpoint("base", 0), checkpoint(text="Hello.")]
    places = {take.file: Path(f"/page/{point.name}.wav") for point in points for take in point.takes}
    one = run(
        best_checkpoint="step-10", num_steps=30, job={**run().job.model_dump(mode="json"), "checkpoint_every": 10}
    )
    html = render_finetune.dots_html(one, points, places)
    assert html.count("data-play=") == 2
    assert html.count("to-come") == 2
    assert html.count(" ★<") == 1
    assert "Before ★<" in html, "the base model, which is as good"
    assert "Each says: “Hello.”" in html
    assert render_finetune.dots_html(one, [], {}) == NOTHING


def test_the_end_tells_how_close_it_came_and_what_to_do_with_it():
    base, best = checkpoint("base", 0), checkpoint()
    scored = {"verified_similarity": 0.70, "speaker_similarity": None}
    base = base.model_copy(update={"scores": base.scores.model_copy(update=scored)})
    best = best.model_copy(update={"scores": best.scores.model_copy(update=scored | {"verified_similarity": 0.77})})
    places = {take.file: Path(f"/page/{point.name}.wav") for point in (base, best) for take in point.takes}
    done = run(RunState.DONE, best_checkpoint="step-10", voice=EVIL)
    html = render_finetune.result_html(done, [base, best], places, {"Ann": "v1"})
    assert EVIL not in html
    assert "than before: 0.70 → 0.77." in html
    assert "Words as clear as before." in html
    assert html.count("data-play=") == 2
    assert 'data-use="v1"' in html
    assert 'data-place="compare"' in html
    lower = base.scores.model_copy(update={"verified_similarity": 0.6})
    html = render_finetune.result_html(done, [base, best.model_copy(update={"scores": lower})], places, {})
    assert "data-use" not in html
    assert 'data-place="data"' in html, "more recordings are the way on"
    assert render_finetune.result_html(run(), [base, best], places, {"Ann": "v1"}) == NOTHING


BETTER, AS_GOOD = "the tuned voice is better", "the voice before is as good"


@pytest.mark.parametrize(
    ("changes", "said", "starred"),
    [
        ({"verified_similarity": 0.77}, ("Closer to", "Words as clear", "All in all, the tuned voice is better."), 10),
        ({"verified_similarity": 0.715}, ("As close to", "the tuned voice is a little better"), 10),
        ({}, ("As close to", "Words as clear", "The voice before is as good"), 0),
        ({"verified_similarity": 0.6}, ("Further from", "Words as clear", "the voice before is better;"), 0),
        ({"verified_similarity": 0.65, "character_error": 0.05}, ("Further from", "Words clearer", BETTER), 10),
        ({"verified_similarity": 0.76, "character_error": 0.29}, ("Closer to", "Words less clear", BETTER), 10),
        (
            {"verified_similarity": 0.73, "character_error": 0.275},
            ("Closer to", "Words less clear", "one makes up for the other", AS_GOOD),
            0,
        ),
        (
            {"verified_similarity": 0.72, "character_error": 0.265},
            ("Closer to", "Words as clear", "no more than chance makes", AS_GOOD),
            0,
        ),
        (
            {"verified_similarity": 0.8, "character_error": 0.35},
            ("Closer to", "Words less clear", "the voice before is better all the same"),
            0,
        ),
        (
            {"verified_similarity": 0.8, "duration_ratio": 2.0},
            ("Closer to", "The pace is less natural", "the voice before is better all the same"),
            0,
        ),
    ],
)
def test_words_star_and_numbers_say_one_thing(changes, said, starred):
    base, best = checkpoint("base", 0), checkpoint()
    base = base.model_copy(update={"scores": base.scores.model_copy(update={"verified_similarity": 0.70})})
    best = best.model_copy(update={"scores": base.scores.model_copy(update=changes)})
    done = run(RunState.DONE, best_checkpoint="step-10")
    html = render_finetune.result_html(done, [base, best], {}, {})
    for words in said:
        assert words in html
    assert ("Add recordings" in html) == (starred == 0)
    dots = render_finetune.dots_html(done, [base, best], {})
    assert dots.count(" ★<") == 1
    assert ("Before ★<" if starred == 0 else "Step 10 ★<") in dots
    assert "★ is the best altogether" in dots
    assert ("“Step 10” was kept" in dots) == (starred == 0)


def of_speakers(name, step, likeness):
    """A checkpoint of Ann and Ben; `likeness` has that of each one's take to both."""
    takes = [
        checkpoint(name, step)
        .takes[0]
        .model_copy(
            update={
                "position": position,
                "speaker": speaker,
                "file": f"takes/{name}/{position}.wav",
                "likeness": dict(zip(("Ann", "Ben"), likeness[speaker], strict=True)),
                "verified_similarity": likeness[speaker][position],
                "verifier": "GE2E",
            }
        )
        for position, speaker in enumerate(("Ann", "Ben"))
    ]
    return checkpoint(name, step).model_copy(update={"scores": summarize(takes), "takes": tuple(takes)})


def test_the_result_of_several_speakers_has_each_of_them_and_who_sounds_like_whom():
    base = of_speakers("base", 0, {"Ann": (0.6, 0.2), "Ben": (0.3, 0.5)})
    best = of_speakers("step-10", 10, {"Ann": (0.8, 0.1), "Ben": (0.7, 0.55)})
    places = {take.file: Path(f"/page/{take.file}") for point in (base, best) for take in point.takes}
    job = run().job.model_dump() | {"more_speakers": [{"voice": "Ben", "dataset": "/b", "dataset_digest": "1"}]}
    done = run(RunState.DONE, best_checkpoint="step-10", voice="Ann, Ben", job=job)
    html = render_finetune.result_html(done, [base, best], places, {"Ann": "v1", "Ben": "v2"})
    assert html.count("data-play=") == 4
    assert ('data-use="v1"' in html, 'data-use="v2"' in html) == (True, True)
    assert "Who sounds like whom" in html
    assert html.count("<strong>0.") == 4
    assert "1 of 2 takes resemble another speaker more than their own, most often Ben sounds like Ann (1)." in html
    assert "Compared by GE2E." in html
    with spoken_to("de"):
        german = render_finetune.result_html(done, [base, best], places, {})
    assert "1 von 2 Ergebnissen ähneln einer anderen Stimme mehr als der eigenen" in german


def test_a_plan_of_several_speakers_says_so_and_one_for_little_memory_says_what_is_trained(planned):
    data = planned.data.model_copy(
        update={
            "speakers": tuple(SpeakerMinutes(voice=name, minutes=1, per_epoch=1) for name in ("Ann", "Ben")),
            "full_bytes": 8 * 2**30,
            "worker_bytes": 4 * 2**30,
        }
    )
    html = render_finetune.estimate_html(planned.model_copy(update={"data": data, "problems": ()}))
    assert "2 speakers learn together" in html
    assert "All weights need 8.0 GiB, and there are 4.0 GiB: an adapter is tuned instead." in html


def test_recipes_tell_their_time_and_which_one_fits(planned):
    plain = dict(map(reversed, render_finetune.preset_choices({})))
    assert plain["quick"].startswith("Quick\n")
    quoted = dict(map(reversed, render_finetune.preset_choices({"quick": planned.data})))
    assert "about 1 min" in quoted["quick"]
    assert "fits your" in quoted["quick"]


def test_a_waiting_run_says_for_whom_and_a_cancelled_one_that_it_ends():
    waiting = render_finetune.run_html(run(RunState.QUEUED), {}, None, "Bob")
    assert "Waiting until Bob is done" in waiting
    assert "Cancelling …" in render_finetune.run_html(run(), {}, 60.0, is_cancelling=True)
    assert "Starting Ray, usually 20 s" in render_finetune.run_html(run(RunState.STARTING), {}, None)
    there = render_finetune.run_html(run(RunState.STARTING), {}, None, is_there=True)
    assert "Waiting for room on the cluster" in there


def test_a_planned_dataset_shows_its_source_and_the_next_step():
    assert render_finetune.made_first("iris", 0) == "New, of the sample Iris"
    assert render_finetune.made_first("", 1) == "New, of 1 recording"
    assert render_finetune.made_first("", 3) == "New, of 3 recordings"
    assert render_finetune.made_first("", 1, "Bea") == "New, of the voice Bea"
    html = render_finetune.plan_html(TaskState(what="Planning", is_running=False))
    assert "clips are made first" in html
    assert "cannot be fine-tuned" not in html


def test_a_score_has_its_name_beside_it_where_there_is_no_room_for_columns():
    cells = render_finetune.scores_html([checkpoint()], None)
    for _, title, _ in render_finetune.SCORES:
        assert f'data-name="{say(title)}"' in cells


def test_events_are_in_the_language_of_the_page():
    event = EventRecord(at=0.0, sentence="Training continues with 2 workers instead of 4.")
    with spoken_to("de"):
        assert "Das Training geht weiter mit 2 Prozessen statt 4." in render_finetune.events_html([event])
    assert event.sentence in render_finetune.events_html([event])
