"""What a checkpoint needs is known before it is loaded, and is what it then takes."""

from __future__ import annotations

import json
import shutil

import pytest

from backend.serving.engine.engine import Engine
from training.model import memory_need
from training.model.errors import ModelError
from training.model.hub.hub import EMBEDDED_FOLDER
from training.model.memory_need import find_room


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_the_need_is_no_less_than_what_an_engine_holds_and_not_three_times_it(precision):
    room = find_room(EMBEDDED_FOLDER, precision, "cpu", num_slots=2, cache_length=1024)
    with Engine.load(EMBEDDED_FOLDER, precision=precision, device="cpu", num_slots=2, cache_length=1024) as engine:
        held = sum(engine.num_bytes().values())
    assert held <= room.needed <= 3 * held


def test_a_cache_of_more_slots_needs_more():
    needs = [find_room(EMBEDDED_FOLDER, "fp32", "cpu", num_slots=number).needed for number in (1, 2, 3)]
    assert needs[2] - needs[1] == pytest.approx(needs[1] - needs[0], abs=2)
    assert needs[1] > needs[0]


def test_a_guided_take_has_a_second_row_in_the_cache(tmp_path):
    def needed(scale: float) -> int:
        defaults["speech_guidance_scale"] = scale
        path.write_text(json.dumps(defaults))
        return find_room(folder, "fp32", "cpu", num_slots=2, cache_length=1024).needed

    folder = shutil.copytree(EMBEDDED_FOLDER, tmp_path / "guided")
    (path := folder / "generation_config.json").chmod(0o644)
    defaults = json.loads(path.read_text())
    plain, guided = needed(1.0), needed(1.5)
    with Engine.load(folder, precision="fp32", device="cpu", num_slots=2, cache_length=1024) as engine:
        cache = engine.num_bytes()["kv_caches"]
        held = sum(engine.num_bytes().values())
    assert guided - plain == pytest.approx(1.1 * cache / 2, rel=0.05)
    assert held <= guided <= 3 * held


def test_a_model_that_matches_timbre_holds_its_talker_twice(tmp_path):
    def needed_and_held(*, matches: bool) -> tuple[int, int]:
        path.write_text(json.dumps(defaults | {"speech_timbre_matching": matches}))
        needed = find_room(folder, "fp32", "cpu", num_slots=2, cache_length=1024).needed
        with Engine.load(folder, precision="fp32", device="cpu", num_slots=2, cache_length=1024) as engine:
            return needed, sum(engine.num_bytes().values())

    folder = shutil.copytree(EMBEDDED_FOLDER, tmp_path / "matching")
    (path := folder / "generation_config.json").chmod(0o644)
    defaults = json.loads(path.read_text())
    (plain, plain_held), (matching, matching_held) = (needed_and_held(matches=each) for each in (False, True))
    assert plain_held <= plain < matching
    assert plain_held < matching_held <= matching


def test_what_does_not_fit_is_refused_before_it_is_read_with_what_would_fit(monkeypatch: pytest.MonkeyPatch):
    # Less than float32 needs, and more than int8, which all processors of this kind have; some have no bfloat16.
    monkeypatch.setattr(memory_need, "free_bytes", lambda device: 180_000_000)
    monkeypatch.setattr("training.model.voice_model.VoiceModel.load", lambda *_, **__: pytest.fail("was loaded"))
    with pytest.raises(ModelError) as refused:
        Engine.load(EMBEDDED_FOLDER, precision="fp32", device="cpu", num_slots=1)
    message = str(refused.value)
    assert "mini needs 0.2 GB on cpu, and 0.2 GB are free" in message
    assert "choose a smaller model" in message
    assert "--precision" in message


def test_nothing_is_proposed_that_would_not_fit_either(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory_need, "free_bytes", lambda device: 1_000_000)
    with pytest.raises(ModelError) as refused:
        find_room(EMBEDDED_FOLDER, "fp32", "cpu")
    assert "--precision" not in str(refused.value)
