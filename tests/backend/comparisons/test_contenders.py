"""Who can be compared, and what a run offers before anything of it is in the library."""

from __future__ import annotations

import re
import shutil
import time

import pytest

from backend.comparisons.contenders import Contender, list_sides
from backend.evaluation.plan import EvaluatedSentence, EvaluationPlan
from backend.runs.storage.records import BASE, RunRecord
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import RunState
from backend.serving.requests import SynthesisRequest
from backend.settings import Settings
from backend.studio import Studio
from backend.voices.consent import Consent
from backend.voices.samples import list_samples
from tests.golden import GOLDEN_CHECKPOINT

CONSENT = Consent.give("Ann Author", "own-voice")


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    """A studio with a run that has one checkpoint's row, and the plan that says what it was trained to sound like."""
    studio = Studio(Settings(home=tmp_path_factory.mktemp("home")))
    studio.load_model(str(GOLDEN_CHECKPOINT), precision="fp32", device="cpu")
    rows = RunTable(studio.home.database)
    rows.add(
        RunRecord(
            id="run-1",
            dataset="ann",
            voice="Ann",
            model="mini",
            preset="quick",
            strategy="ddp",
            num_workers=1,
            state=RunState.QUEUED,
            message="",
            created_at=time.time(),
            num_steps=20,
            consent=CONSENT,
            job={"voice": "Ann", "dataset": "/d", "dataset_digest": "1", "base_model": "/m", "output": "/o"},
        )
    )
    rows.add_checkpoint("run-1", BASE, 0)
    rows.add_checkpoint("run-1", "step-10", 10)
    folder = RunFolder.of(studio.settings.home_folder, "run-1")
    folder.path.mkdir(parents=True)
    clip = folder.path / "clip.wav"
    shutil.copy(studio.sample_reference("iris"), clip)
    width = studio.loaded.model.config.talker.hidden_size
    plan = EvaluationPlan(
        base_model=GOLDEN_CHECKPOINT,
        language="auto",
        sentences=(EvaluatedSentence(text="Hm.", held_out=False, seed=1, expected_seconds=1.0),),
        speaker=(0.0,) * width,
        target=(0.0,) * width,
        clips=(clip,),
        reference_clip=clip,
        reference_text="Every morning.",
    )
    folder.evaluation_plan.write_text(plan.model_dump_json())
    return studio


def of_the_run(studio):
    return {side.key: side for side in studio.comparisons.list_sides() if side.source == "run"}


def test_a_run_offers_its_checkpoints_and_the_same_voice_zero_shot(studio):
    sides = of_the_run(studio)
    assert list(sides) == ["run:run-1:fine-tuned:step-10", "run:run-1:in-context:", "run:run-1:x-vector:"]
    assert [side.is_fine_tuned for side in sides.values()] == [True, False, False]
    label = sides["run:run-1:fine-tuned:step-10"].label
    # When it was, because voices and the days of their runs repeat.
    assert re.fullmatch(r"Ann, run of \d{4}-\d\d-\d\d \d\d:\d\d: fine-tuned, step 10", label)


def test_the_zero_shot_side_of_a_run_speaks_with_the_model_it_began_with(studio):
    in_context, by_sound = (
        studio.comparisons.contenders.find(of_the_run(studio)[f"run:run-1:{way}:"]).voice
        for way in ("in-context", "x-vector")
    )
    assert in_context.checkpoint.samefile(studio.loaded.folder)
    prompt = studio.loaded.prompt(SynthesisRequest(voice=in_context, text="Hm."))
    assert prompt.reference_text == "Every morning."
    assert not studio.loaded.prompt(SynthesisRequest(voice=by_sound, text="Hm.")).is_in_context


def test_where_zero_shot_beats_a_run_it_is_kept_with_the_consent_of_the_run(studio):
    side = of_the_run(studio)["run:run-1:x-vector:"]
    voice = studio.comparisons.contenders.keep(side, "Ann as she is", studio.loaded.name, {"chosen_in_comparison": "c"})
    assert (voice.kind, voice.transcript, voice.consent) == ("zero-shot", None, CONSENT)
    assert voice.provenance["dataset"] == "ann"


def test_keys_are_the_same_whatever_a_voice_is_called():
    one = Contender(source="voice", id="1", way="x-vector", label="Ann")
    assert one.key == one.model_copy(update={"label": "Ben"}).key


def test_samples_come_last_and_are_whole():
    samples = list_samples()
    assert [sample.name for sample in samples] == ["iris", "owen", "rufus"]
    for sample in samples:
        assert sample.path.is_file()
        assert sample.reference_text
        assert sample.reference_sentences[-1].end_seconds <= sample.seconds
    assert [side.source for side in list_sides([], [], samples)] == ["sample"] * 6
