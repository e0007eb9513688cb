"""Hostile voice files: refused in a line, or a voice that speaks; no code runs, and nothing of them stays."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from backend.store.home import Home
from backend.voices.registry import Voices
from tests.backend.voices.test_hostile_configurations import CONFIGURATIONS, numbers_in, replaced
from tests.backend.voices.test_voice_file import changed, edited_record, read_members, write_members
from tests.faults.attack import Attack, Outcome, Result, attempt, left_behind
from tests.faults.damage import HOSTILE_VALUES, damaged
from tests.faults.world import World

PER_STEP = 4
EXTRA_MEMBERS = (
    "custom_voice/model.bin", "custom_voice/pytorch_model.bin", "custom_voice/evil.py", "evil.pkl", "../evil.json",
    "prompts/x.pt", "custom_voice/adapter.pkl", "/etc/evil", "voice.json/x", "custom_voice/../../evil.json",
)  # fmt: skip
NUMBERS = (0, -1, 2**31, 2**63, 2**64, 10**400, 1e308, -1e308, 100_000, 0.5)

Change = Callable[[Path, random.Random, World], str]


class Evil:
    """Leaves a file where it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.trace,))


def step(rng: random.Random, world: World) -> Iterator[Outcome]:
    """Some files, imported into an empty library; a fine-tuned one takes seconds, as it has to speak first."""
    for number in range(PER_STEP):
        is_tuned = number == 0
        with world.scratch() as folder:
            (path := folder / "a.encore-voice").write_bytes(_exported(world, "Tuned" if is_tuned else "Anna"))
            what = rng.choice(OF_TUNED if is_tuned else OF_ANY)(path, rng, world)
            voices = Voices(Home(folder / "home"))
            outcome = attempt(what, lambda path=path, voices=voices: _import(path, voices), world)
            yield outcome
            if _trace(world).exists():
                yield Outcome(result=Result.WRONG, what=f"{what}: its code was run")
                _trace(world).unlink()
            if outcome.result is not Result.RECOVERED:
                kept = sorted(voices.folder.glob("*")) if voices.folder.exists() else []
                yield from left_behind(what, [*kept, *voices.list()])
        yield from left_behind(what, world.left_in_temporary())


def _import(path: Path, voices: Voices) -> str:
    voice = voices.import_(path)
    return "" if [one.id for one in voices.list()] == [voice.id] else "it is not in the library"


def _exported(world: World, name: str) -> bytes:
    def make(folder: Path) -> bytes:
        return Voices(Home(world.home)).export(name, folder).read_bytes()

    return bytes(world.once(f"exported-{name}", make))


def _trace(world: World) -> Path:
    return world.folder / "code-was-run"


def _mutate(path: Path, rng: random.Random, world: World) -> str:
    how, content = damaged(path.read_bytes(), rng)
    path.write_bytes(content)
    return how


def _mutate_member(path: Path, rng: random.Random, world: World) -> str:
    """A fault that the manifest agrees with."""
    members = read_members(path)
    name = rng.choice([name for name in members if name != "manifest.json" and members[name]])
    how, content = damaged(members[name], rng)
    changed(path, **{name: content})
    return f"{name}, {how}"


def _manifest(path: Path, rng: random.Random, world: World) -> str:
    members = read_members(path)
    manifest = json.loads(members["manifest.json"])
    places = [("version",), ("format",), ("members",), *numbers_in(manifest)]
    place, value = rng.choice(places), rng.choice(HOSTILE_VALUES)
    write_members(path, members | {"manifest.json": json.dumps(replaced(manifest, place, value)).encode()})
    return f"manifest {place} = {value!r:.40}"


def _record(path: Path, rng: random.Random, world: World) -> str:
    record = json.loads(read_members(path)["voice.json"])
    field = rng.choice([*record, "surprise"])
    value = rng.choice(
        (*HOSTILE_VALUES, *NUMBERS, {"temperature": rng.choice(NUMBERS)}, {"top_k": 2**63}, "\udfff", ...)
    )
    if value is ... and field not in record:
        value = None
    edited_record(path, **{field: value})
    return f"voice.json {field} = {value!r:.40}"


def _without(path: Path, rng: random.Random, world: World) -> str:
    members = read_members(path)
    gone = rng.choice(sorted(members))
    del members[gone]
    write_members(path, members if gone == "manifest.json" else members | {"manifest.json": None})
    return f"without {gone}"


def _extra(path: Path, rng: random.Random, world: World) -> str:
    name = rng.choice(EXTRA_MEMBERS)
    changed(path, **{name: pickle.dumps(Evil(_trace(world)))})
    return f"also {name}"


def _pickle_instead(path: Path, rng: random.Random, world: World) -> str:
    names = [name for name in read_members(path) if name.endswith((".safetensors", ".wav", ".json"))]
    name = rng.choice([name for name in names if name != "manifest.json"])
    changed(path, **{name: pickle.dumps({"speaker": Evil(_trace(world))})})
    return f"a pickle as {name}"


def _prompt(path: Path, rng: random.Random, world: World) -> str:
    content = rng.choice((pickle.dumps(Evil(_trace(world))), rng.randbytes(200), (2**60).to_bytes(8, "little") + b"{}"))
    changed(path, **{f"prompts/{rng.randbytes(16).hex()}.safetensors": content})
    return f"a prompt of {content[:8]!r}"


def _number(path: Path, rng: random.Random, world: World) -> str:
    """One number of one configuration of the checkpoint."""
    name = f"custom_voice/{rng.choice(CONFIGURATIONS)}"
    content = json.loads(read_members(path)[name])
    place, value = rng.choice([*numbers_in(content)]), rng.choice((*NUMBERS, *HOSTILE_VALUES))
    changed(path, **{name: json.dumps(replaced(content, place, value)).encode()})
    return f"{name} {place} = {value!r:.40}"


OF_ANY: tuple[Change, ...] = (
    _mutate, _mutate, _mutate_member, _manifest, _record, _record, _record, _without, _extra, _pickle_instead, _prompt,
)  # fmt: skip
OF_TUNED: tuple[Change, ...] = (_number, _number, _number, _mutate_member, _pickle_instead, _extra, _without)

ATTACK = Attack(name="voice files", weight=1.5, attack=step)
