"""A home that the code of commit 674783d left behind still opens, with everything in it.

`fixtures/make_old_home.py` says how it was made. What is expected is told in names of its own; only the table FIELDS
and the functions up to the first test know what the things are called today.
"""

from __future__ import annotations

import argparse
import json
import operator
import shutil
import sqlite3
import tarfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import app
from backend.commands.parser import build_parser
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.datasets import Datasets
from backend.dataset.stored_datasets import StoredDatasets
from backend.evaluation.plan import EvaluationPlan
from backend.runs.planning.launch import LaunchPlan
from backend.runs.planning.request import RunRequest
from backend.runs.storage.control import Control
from backend.runs.storage.run_folder import RunFolder
from backend.serving.requests import SynthesisRequest
from backend.settings import Settings
from backend.store.home import Home
from backend.studio import Studio
from tests.golden import GOLDEN_CHECKPOINT
from tests.training.strategy_worker import RecordingContext
from training.job import FineTuneJob
from training.run_checkpoints import list_checkpoints
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore
from training.worker import run_worker

FIXTURES = Path(__file__).parent / "fixtures"
EXPECTED: dict[str, Any] = json.loads((FIXTURES / "old_home.json").read_text(encoding="utf-8"))
GIVEN_TEXTS = "letters"
HEARD, FAILED = "heard", "empty"


# What the old home calls a field -> what it is called today.
RENAMED = {
    "final_learning_rate_share": "min_lr_ratio", "warmup_share": "warmup_ratio",
    "micro_batch_rows": "micro_batch_tokens",
    "longest_clip_rows": "max_clip_tokens", "in_context_share": "in_context_ratio",
    "kept_change": "interpolation_alpha",
    "longest_hours": "max_hours", "largest_megabytes": "max_megabytes",
    "shortest_seconds": "min_seconds", "longest_seconds": "max_seconds", "faintest_speech_dbfs": "min_speech_dbfs",
    "most_clipped_share": "max_clipped_share", "least_speech_over_noise_db": "min_speech_over_noise_db",
    "most_silence_share": "max_silence_share", "narrowest_bandwidth_hz": "min_bandwidth_hz",
    "most_duplicate_share": "max_duplicate_share", "slowest_characters_per_second": "min_characters_per_second",
    "fastest_characters_per_second": "max_characters_per_second", "least_confidence": "min_confidence",
    "most_disagreement": "max_disagreement", "least_clips_for_speaker": "min_clips_for_speaker",
    "reference_shortest_seconds": "min_reference_seconds", "reference_longest_seconds": "max_reference_seconds",
    "most_held_out": "max_held_out", "least_to_train_on": "min_clips_to_train_on", "most_takes": "max_takes",
    "most_characters": "max_characters", "most_queued": "max_queued", "most_waiting": "max_waiting",
    "most_engines": "max_engines", "judge": "evaluate",
}  # fmt: skip


def _as_before(names: str) -> dict[str, str]:
    """Names of the old home, each with today's."""
    return {name: RENAMED.get(name, name) for name in names.split()}


# What the old home calls a thing -> where it is today; of a renamed attribute only the right side changes.
FIELDS: dict[str, dict[str, str]] = {
    "voice": {**_as_before("id name kind language model transcript provenance"), "run": "run_id"},
    "consent": _as_before("who statement wording"),
    "spoken": _as_before("phrase heard error_rate similarity"),
    "sampling": _as_before(
        "temperature top_k top_p repetition_penalty residual_temperature residual_top_k residual_top_p"
    ),
    "dataset": {**_as_before("model language state problem digest"), "current": "rows_are_current"},
    "recording": {
        **_as_before("name seconds problem"), "id": "recording_id", "clips": "num_clips", "audio": "details.audio_id"
    },
    "transcript": _as_before("text language no_speech_probability compression_ratio mean_log_probability"),
    "word": _as_before("text start_seconds end_seconds probability has_space_before"),
    "passage": _as_before(
        "start_seconds end_seconds no_speech_probability compression_ratio mean_log_probability"
    ),
    "clip": {
        **_as_before("key seconds verdict held_out text"), "id": "clip_id", "reference": "is_reference",
        "source": "details.text_source", "persons_verdict": "details.person_verdict",
        "gates_verdict": "details.own_verdict", "tensors": "details.tensors_id", "distance": "details.distance",
        "first_text": "details.original.text", "speech_dbfs": "details.current.sound.speech_dbfs",
        "fingerprint": "details.current.sound.fingerprint",
    },
    "run": {
        **_as_before("dataset voice model preset strategy state message attempt step verdict"),
        "workers": "num_workers", "created": "created_at", "started": "started_at", "ended": "ended_at",
        "steps": "num_steps", "best": "best_checkpoint", "export": "export_folder",
    },
    "checkpoint": _as_before("name step state problem"),
    "checkpoint_scores": _as_before(
        "num_takes character_error word_error speaker_similarity verified_similarity duration_ratio finished_share "
        "clipped_share"
    ),
    "judged_take": _as_before(
        "position text held_out seed seconds expected_seconds finish_reason file transcript character_error word_error "
        "speaker_similarity verified_similarity clipped_share"
    ),
    "take": {
        **_as_before("id owner number voice text language seconds speed"), "bytes": "num_bytes", "file": "path.name",
        "by": "made_by", "model": "model_name", "in_context": "is_in_context", "fine_tuned": "is_fine_tuned",
        "seeds": "seeds", "finish": "finish_reason", "pace": "real_time_factor", "wait": "seconds_to_first_audio",
        "format": "audio_format",
    },
    "comparison": {**_as_before("id text language seed"), "blind": "is_blind", "vote": "verdict"},
    "compared_take": {
        **_as_before("letter seconds"), "side": "side.key", "label": "side.label", "finish": "finish_reason",
        "gain": "gain_db",
    },
    "compared_scores": _as_before(
        "duration_ratio clipped_share speaker_similarity verified_similarity word_error transcript"
    ),
    "tally": _as_before("first second first_wins second_wins num_same num_bad num_blind"),
    "finetune": _as_before(
        "voice dataset dataset_digest base_model output strategy num_workers device precision activation_checkpointing "
        "offload nvme_folder deepspeed seed num_epochs num_steps learning_rate final_learning_rate_share warmup_share "
        "weight_decay adam_betas max_gradient_norm micro_batches micro_batch_rows longest_clip_rows batching "
        "code_predictor_fraction code_predictor_weight train_text_embedding in_context_share speaker checkpoint_every "
        "keep_checkpoints report_every kept_change export_at_end"
    ),
    "launch": _as_before(
        "min_workers max_failures judge num_held_out num_standard name_voice run_id max_workers use_gpu"
    ),
    "machine": _as_before("num_cpus num_gpus address"),
    "control": _as_before("attempt stop"),
    "build": _as_before(
        "name recordings model whisper language transcripts num_actors device keeps_originals longest_hours "
        "largest_megabytes"
    ),
    "gates": _as_before(
        "shortest_seconds short_seconds long_seconds longest_seconds faintest_speech_dbfs quiet_speech_dbfs "
        "most_clipped_share clipped_share least_speech_over_noise_db speech_over_noise_db most_silence_share "
        "silence_share narrowest_bandwidth_hz narrow_bandwidth_hz duplicate_similarity most_duplicate_share "
        "slowest_characters_per_second slow_characters_per_second fast_characters_per_second "
        "fastest_characters_per_second least_confidence confidence most_disagreement disagreement stranger_distance "
        "stranger_deviations odd_distance odd_deviations least_clips_for_speaker reference_shortest_seconds "
        "reference_longest_seconds held_out_share most_held_out least_to_train_on"
    ),
    "settings": _as_before("model precision device host port auth share api_keys home most_takes log_level"),
}  # fmt: skip

# (kind, the old home's name of it) -> the value it had -> the one it is read as, where a word was replaced.
VALUES: dict[tuple[str, str], dict[str, str]] = {
    ("run", "state"): {"judging": "evaluating"},
    ("checkpoint", "state"): {"judging": "evaluating", "judged": "evaluated"},
}

FILES = {"finetune": FineTuneJob.read, "launch": LaunchPlan.read, "control": Control.read}
"""What reads files of a kind."""

MODELS = {"build": BuildJob}
"""What reads those that no method reads."""


def tell(kind: str, thing: Any) -> dict[str, Any] | None:
    """What a thing holds, in the old home's names."""
    return None if thing is None else {k: plain(operator.attrgetter(where)(thing)) for k, where in FIELDS[kind].items()}


def wanted(kind: str, told: dict[str, Any] | None) -> dict[str, Any] | None:
    """What the old home held, as far as `tell` tells it, in today's values."""
    if told is None:
        return None
    assert told.keys() >= FIELDS[kind].keys(), f"{kind} has no {FIELDS[kind].keys() - told.keys()}"
    return {name: VALUES.get((kind, name), {}).get(str(told[name]), told[name]) for name in FIELDS[kind]}


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if hasattr(value, "get_secret_value"):
        return value.get_secret_value()
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return str(value) if isinstance(value, str | Path) else value


def open_home(place: Path) -> Studio:
    return Studio(Settings(home=place / "home", model=str(place / "model"), precision="fp32", device="cpu"))


def load_model(studio: Studio) -> Any:
    return studio.load_model(studio.settings.model, precision="fp32", device="cpu")


def say(studio: Studio, loaded: Any, voice: str) -> float:
    """Seconds of the first audio that a voice speaks."""
    stream = loaded.speak(SynthesisRequest(voice=studio.voices.get(voice), text="Hm.", seed=1))
    first = next(stream)
    stream.close()
    return len(first) / stream.sample_rate


def tell_voice(voice: Any) -> dict[str, Any]:
    consent = voice.consent
    return {
        **(tell("voice", voice) or {}),
        "sampling": tell("sampling", voice.sampling),
        "created": voice.created_at.isoformat(),
        "variants": sorted(voice.variants),
        "files": sorted(
            path.relative_to(voice.folder).as_posix() for path in voice.folder.rglob("*") if path.is_file()
        ),
        "consent": {
            **(tell("consent", consent) or {}),
            "given": consent.given_at.isoformat(),
            "spoken": tell("spoken", consent.spoken),
        },
    }


def tell_heard(heard: Any) -> dict[str, Any] | None:
    if heard is None:
        return None
    words, passages = [tell("word", one) for one in heard.words], [tell("passage", one) for one in heard.passages]
    return {**(tell("transcript", heard) or {}), "words": words, "passages": passages}


def tell_clip(clip: Any) -> dict[str, Any]:
    details = clip.details
    return {
        **(tell("clip", clip) or {}),
        "reasons": list(clip.reasons),
        "cut": [details.current.span.start_seconds, details.current.span.end_seconds],
        "first_cut": [details.original.span.start_seconds, details.original.span.end_seconds],
        "gates": [[one.gate, str(one.verdict), one.value, one.limit] for one in details.gates],
    }


def tell_dataset(studio: Studio, name: str) -> dict[str, Any]:
    view, progress = studio.datasets.show(name), studio.datasets.progress(name)
    return {
        **(tell("dataset", view) or {}),
        "recordings": [
            {**(tell("recording", one) or {}), "heard": tell_heard(one.details.heard)} for one in view.recordings
        ],
        "clips": [tell_clip(clip) for clip in view.clips],
        "stages": [[one.stage, one.num_done, one.num_reused, one.num_failed, one.num_total] for one in progress.stages],
    }


def clips_worked_on(studio: Studio, name: str) -> int:
    """How many clips and recordings the last build did not find ready.

    Cutting does not count: it takes moments, and is known by other keys since version 0.2.
    """
    return sum(
        stage.num_done - stage.num_reused for stage in studio.datasets.progress(name).stages if stage.stage != "cut"
    )


def build_again(studio: Studio, place: Path, name: str) -> None:
    """With the request that the database has."""
    with closing(sqlite3.connect(place / "home" / "encore.sqlite")) as connection:
        (stored,) = connection.execute("SELECT job FROM datasets WHERE name = ?", (name,)).fetchone()
    studio.datasets.build(BuildJob.model_validate_json(stored))


def tell_run(studio: Studio, run_id: str) -> dict[str, Any]:
    runs = studio.runs
    run = runs.get(run_id)
    return {
        **(tell("run", run) or {}),
        "job": tell("finetune", run.job),
        "who": run.consent.who if run.consent else None,
        "metrics": [[one.step, one.attempt, dict(one.measures)] for one in runs.metrics(run_id)],
        "events": [event.sentence for event in runs.events(run_id)],
        "checkpoints": [
            {
                **(tell("checkpoint", point) or {}),
                "scores": tell("checkpoint_scores", point.scores),
                "takes": [tell("judged_take", take) for take in point.takes],
            }
            for point in runs.checkpoints(run_id)
        ],
    }


def tell_comparison(studio: Studio, comparison_id: str) -> dict[str, Any]:
    one = studio.comparisons.votes.get(comparison_id)
    return {
        **(tell("comparison", one) or {}),
        "made": one.made_at.isoformat(),
        "takes": [
            {**(tell("compared_take", take) or {}), "scores": tell("compared_scores", take.scores)}
            for take in one.takes
        ],
    }


def read_file(kind: str, path: Path) -> dict[str, Any]:
    """A file with every option, read the way the program reads it."""
    thing = FILES[kind](path) if kind in FILES else MODELS[kind].model_validate_json(path.read_bytes())
    parts = {"launch": {"machine": "machine"}, "build": {"gates": "gates"}}
    return {
        **(tell(kind, thing) or {}),
        **{name: tell(part, getattr(thing, name)) for name, part in parts.get(kind, {}).items()},
    }


def unfinished_job(run_folder: Path) -> FineTuneJob:
    """What is left to do of a run, from its own files alone."""
    folder = RunFolder(run_folder)
    plan, launch = EvaluationPlan.read(folder.evaluation_plan), LaunchPlan.read(folder.launch)
    assert plan.base_model.is_dir()
    assert plan.reference_clip.is_file()
    assert plan.sentences
    assert launch.run_id == run_folder.name
    return FineTuneJob.read(folder.job).model_copy(update={"dataset": folder.dataset})


def stored_settings(environment: dict[str, str]) -> dict[str, Any]:
    return tell("settings", Settings.from_environment(environment)) or {}


def options_of(command: str) -> dict[str, set[str]]:
    """What a command and its verbs accept."""
    found: dict[str, set[str]] = {}

    def walk(words: tuple[str, ...], parser: argparse.ArgumentParser) -> None:
        found[" ".join(words)] = {option for action in parser._actions for option in action.option_strings}
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, inner in action.choices.items():
                    if words or name == command:
                        walk((*words, name), inner)

    walk((), build_parser(Settings(), command or None))
    return found


# From here on nothing knows what things are called.


def unpack(place: Path) -> Path:
    """The old home at a place of its own: what is not in the archive is put back, and stored paths lead here."""
    with tarfile.open(FIXTURES / "old_home.tar.xz") as archive:
        archive.extractall(place, filter="data")
    for name, source in EXPECTED["stripped"].items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(GOLDEN_CHECKPOINT / source, place / name)
    old, new = EXPECTED["place"], str(place)
    for path in place.rglob("*.json*"):
        content = path.read_text(encoding="utf-8")
        if old in content:
            path.unlink()  # it may have a second name
            path.write_text(content.replace(old, new), encoding="utf-8")
    for path in place.rglob("progress.json"):
        # A checkpoint knows how long its files are, its job among them.
        progress = json.loads(path.read_text(encoding="utf-8"))
        progress["file_bytes"]["job.json"] = (path.parent / "job.json").stat().st_size
        path.write_text(json.dumps(progress), encoding="utf-8")
    relocate_database(place / "home" / "encore.sqlite", old, new)
    return place


def relocate_database(path: Path, old: str, new: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
                if kind == "TEXT":
                    connection.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (old, new))
        # After three months takes are thrown away.
        connection.execute("UPDATE takes SET made_at = made_at + ? - (SELECT max(made_at) FROM takes)", (time.time(),))


def moved(told: Any, place: Path) -> Any:
    """What is expected, at its new place."""
    if isinstance(told, dict):
        return {key: moved(value, place) for key, value in told.items()}
    if isinstance(told, list):
        return [moved(value, place) for value in told]
    return told.replace(EXPECTED["place"], str(place)) if isinstance(told, str) else told


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Not to be changed."""
    return unpack(tmp_path_factory.mktemp("old"))


@pytest.fixture
def own_place(tmp_path) -> Path:
    """To be changed."""
    return unpack(tmp_path / "old")


@pytest.fixture(scope="module")
def studio(place) -> Studio:
    return open_home(place)


@pytest.fixture(scope="module")
def expected(place) -> dict[str, Any]:
    return moved(EXPECTED, place)


def test_voices_are_there_with_their_consent_and_files(studio, expected):
    found = [tell_voice(voice) for voice in studio.voices.list()]
    assert len(found) == len(expected["voices"]) >= 3
    for voice, was in zip(found, expected["voices"], strict=True):
        consent = {**wanted("consent", was["consent"]), "given": was["consent"]["given"]}
        # Speaking adds prompts.
        assert set(voice.pop("files")) >= set(was["files"])
        assert voice == {
            **wanted("voice", was),
            "sampling": wanted("sampling", was["sampling"]),
            "created": was["created"],
            "variants": was["variants"],
            "consent": {**consent, "spoken": wanted("spoken", was["consent"]["spoken"])},
        }


def test_voices_speak_with_the_prompts_that_were_kept(own_place):
    studio = open_home(own_place)
    loaded = load_model(studio)
    prompts = {path: path.stat().st_mtime_ns for path in own_place.rglob("prompts/*.safetensors")}
    assert prompts
    for voice in EXPECTED["voices"]:
        assert say(studio, loaded, voice["name"]) > 0
    found = {path: path.stat().st_mtime_ns for path in own_place.rglob("prompts/*.safetensors")}
    # The voice nobody has spoken with gets one; the others are found again.
    assert prompts.items() <= found.items()
    assert len(found) == len(prompts) + 1


@pytest.mark.parametrize("name", EXPECTED["datasets"])
def test_a_dataset_is_there_with_everything_that_was_decided(studio, expected, name):
    found, was = tell_dataset(studio, name), expected["datasets"][name]
    assert found == {
        **wanted("dataset", was),
        "recordings": [
            {
                **wanted("recording", one),
                "heard": one["heard"]
                and {
                    **wanted("transcript", one["heard"]),
                    "words": [wanted("word", word) for word in one["heard"]["words"]],
                    "passages": [wanted("passage", passage) for passage in one["heard"]["passages"]],
                },
            }
            for one in was["recordings"]
        ],
        "clips": [
            {**wanted("clip", clip), **{key: clip[key] for key in ("reasons", "cut", "first_cut", "gates")}}
            for clip in was["clips"]
        ],
        "stages": was["stages"],
    }


def test_what_the_datasets_show_is_worth_keeping():
    """The fixture holds what the tests above are meant to find."""
    letters, heard, failed = (EXPECTED["datasets"][name] for name in (GIVEN_TEXTS, HEARD, FAILED))
    clips = letters["clips"]
    assert {clip["verdict"] for clip in clips} == {"accepted", "warned", "rejected"}
    assert {clip["source"] for clip in clips} == {"file", "person"}
    assert [clip["text"] for clip in clips if clip["source"] == "person"] == ["The fifth has other words by now."]
    assert any(clip["held_out"] for clip in clips)
    assert any(clip["cut"] != clip["first_cut"] for clip in clips)
    assert any(clip["persons_verdict"] for clip in clips)
    assert all(one["heard"]["words"] for one in heard["recordings"])
    assert heard["state"] == "done"
    assert failed["state"] == "failed"


def test_building_again_finds_all_work_done_and_keeps_the_edits(own_place):
    studio = open_home(own_place)
    before = tell_dataset(studio, GIVEN_TEXTS)
    build_again(studio, own_place, GIVEN_TEXTS)
    after = tell_dataset(studio, GIVEN_TEXTS)
    assert clips_worked_on(studio, GIVEN_TEXTS) == 0
    # A clip that is reviewed again gives its reasons in today's words.
    for told in (before, after):
        told["stages"] = None
        told["clips"] = [{**clip, "reasons": len(clip["reasons"])} for clip in told["clips"]]
    assert after == before


def test_its_datasets_are_stored_and_come_back_when_they_are_lost(own_place, tmp_path):
    (tmp_path / "shared").mkdir()
    home = Home(own_place / "home")
    datasets = Datasets(home)
    stored = StoredDatasets(home, ObjectStore(StorageLocation("file", str(tmp_path / "shared"))), "home-1")
    stored.sync()
    before = {name: datasets.show(name) for name in (GIVEN_TEXTS, HEARD)}
    for name in before:
        shutil.rmtree(datasets.folder(name))
    for path in home.folder.glob("artifacts/??/*"):
        path.unlink()
    stored.sync()
    assert {name: datasets.show(name) for name in before} == before
    assert all(clip.audio.is_file() for view in before.values() for clip in view.clips)


def test_building_again_without_the_embedded_whisper_has_the_words_transcribed_anew(own_place):
    """The Whisper model that transcribed it is no longer part of the program."""
    studio = open_home(own_place)
    before = tell_dataset(studio, HEARD)
    build_again(studio, own_place, HEARD)
    after = tell_dataset(studio, HEARD)
    assert clips_worked_on(studio, HEARD) > 0
    assert after["state"] == "done"
    assert [one["name"] for one in after["recordings"]] == [one["name"] for one in before["recordings"]]
    assert after["clips"]


def test_a_run_can_be_planned_on_a_dataset(studio, place):
    request = RunRequest(dataset=GIVEN_TEXTS, voice="Another", model=str(place / "model"), preset="quick")
    assert studio.runs.plan(request).job.num_steps != 0


@pytest.mark.parametrize("run_id", list(EXPECTED["runs"]))
def test_a_run_is_there_with_its_job_and_scores(studio, expected, run_id):
    was = expected["runs"][run_id]
    assert tell_run(studio, run_id) == {
        **wanted("run", was),
        "job": wanted("finetune", was["job"]),
        **{key: was[key] for key in ("who", "metrics", "events")},
        "checkpoints": [
            {
                **wanted("checkpoint", point),
                "scores": wanted("checkpoint_scores", point["scores"]),
                "takes": [wanted("judged_take", take) for take in point["takes"]],
            }
            for point in was["checkpoints"]
        ],
    }


def test_all_runs_are_listed_and_the_finished_one_has_its_page(studio, expected, tmp_path):
    assert {run.id for run in studio.runs.list()} == expected["runs"].keys()
    finished = expected["runs"][EXPECTED["finished_run"]]
    checkpoints = list_checkpoints(studio.runs.folder(EXPECTED["finished_run"]))
    assert [checkpoint.folder.name for checkpoint in checkpoints] == [finished["best"]]
    page = studio.runs.write_report(EXPECTED["finished_run"], tmp_path / "report.html").read_text(encoding="utf-8")
    assert finished["verdict"].split(".")[0] in page


def test_the_unfinished_run_goes_on_to_the_same_end(own_place):
    folder = own_place / "home" / "runs" / EXPECTED["unfinished_run"]
    checkpoint = list_checkpoints(folder)[-1]
    assert checkpoint.progress.step == EXPECTED["resumed"]["from_step"]
    job, context = unfinished_job(folder), RecordingContext(0, 1)
    assert not job.differences(checkpoint.job())
    result = run_worker(job, context)
    assert result.is_complete
    assert len(context.reports) == result.steps_done - checkpoint.progress.step
    for name, value in EXPECTED["resumed"]["last"].items():
        # Another machine adds up in another order.
        assert context.reports[-1][name] == pytest.approx(value, rel=1e-3), name


def test_takes_of_page_and_api_are_listed(studio, expected):
    found = [{**tell("take", take), "sampling": tell("sampling", take.sampling)} for take in studio.takes.list()]
    assert found == [
        {**wanted("take", was), "sampling": wanted("sampling", was["sampling"])} for was in expected["takes"]
    ]
    assert {take["by"] for take in found} == {"studio", "api"}
    assert [take.consent.who for take in studio.takes.list()] == [was["who"] for was in expected["takes"]]


def test_comparisons_and_their_votes_count(studio, expected):
    for was in expected["comparisons"]:
        assert tell_comparison(studio, was["id"]) == {
            **wanted("comparison", was),
            "made": was["made"],
            "takes": [
                {**wanted("compared_take", take), "scores": wanted("compared_scores", take["scores"])}
                for take in was["takes"]
            ],
        }
    was = expected["tally"]
    (counted,) = studio.comparisons.votes.tallies([was["first"], was["second"]])
    assert tell("tally", counted) == wanted("tally", was)
    # And what was voted on can still be chosen.
    assert {was["first"], was["second"]} <= {side.key for side in studio.comparisons.list_sides()}


def test_an_exported_voice_is_imported(own_place):
    studio = open_home(own_place)
    archive = own_place / "exports" / EXPECTED["archive"]["file"]
    told = tell_voice(studio.voices.import_(archive, "Anna again"))
    was = next(voice for voice in EXPECTED["voices"] if voice["name"] == EXPECTED["archive"]["voice"])
    for name in ("kind", "language", "transcript", "model"):
        assert told[name] == was[name]
    assert told["sampling"] == wanted("sampling", was["sampling"])
    assert told["consent"]["spoken"] == wanted("spoken", was["consent"]["spoken"])
    assert told["consent"]["who"] == was["consent"]["who"]


@pytest.mark.parametrize(
    ("kind", "name"),
    # How the API is served is chosen at each start; nothing keeps it in a file.
    [(kind, name) for kind, files in EXPECTED["files"].items() for name in files if kind != "serve"],
)
def test_a_file_that_spells_out_every_option_is_read(place, expected, kind, name):
    was = expected["files"][kind][name]
    parts = {"machine", "gates"} & was.keys()
    assert read_file(kind, place / "jobs" / name) == {
        **wanted(kind, was),
        **{part: wanted(part, was[part]) for part in parts},
    }
    assert was.keys() == FIELDS[kind].keys() | parts


def test_the_queued_build_is_read(place):
    found = read_file("build", place / "home" / "jobs" / "dataset" / f"{HEARD}.json")
    assert (found["name"], found["whisper"]) == (HEARD, "mini")
    assert found["recordings"] == [str(place / "home" / "uploads" / HEARD)]


def test_environment_variables_set_what_they_did():
    was = EXPECTED["settings"]
    assert stored_settings(was["environment"]) == wanted("settings", was["values"])


@pytest.mark.parametrize("command", sorted({words.split()[0] for words in EXPECTED["command_line"] if words}))
def test_options_of_the_command_line_are_accepted(command):
    found = options_of(command)
    for words, options in EXPECTED["command_line"].items():
        if not words or words.split()[0] == command:
            assert words in found, f"app.py {words} is gone"
            assert set(options) <= found[words], f"app.py {words}: {set(options) - found[words]}"


def test_the_command_line_shows_it_all(own_place, monkeypatch, capsys):
    monkeypatch.setenv("ENCORE_HOME", str(own_place / "home"))
    shown = [
        (["voices", "list"], [voice["name"] for voice in EXPECTED["voices"]]),
        (["dataset", "show"], list(EXPECTED["datasets"])),
        (["dataset", "show", GIVEN_TEXTS], [clip["text"] for clip in EXPECTED["datasets"][GIVEN_TEXTS]["clips"]]),
        (["runs", "list"], list(EXPECTED["runs"])),
        (["runs", "show", EXPECTED["finished_run"]], [EXPECTED["runs"][EXPECTED["finished_run"]]["verdict"]]),
    ]
    for arguments, words in shown:
        assert app.main(arguments) == 0
        printed = capsys.readouterr().out
        assert [word for word in words if word not in printed] == []
