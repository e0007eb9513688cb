"""Hostile archives and tables of transcripts: nothing leaves their folder, and what is good in them is found."""

from __future__ import annotations

import io
import json
import random
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from backend.dataset.sources.archives import ArchiveLimits
from backend.dataset.sources.intake import Intake, IntakeLimits, expand
from tests.faults.attack import Attack, Outcome, Result, attempt, leaked, left_behind
from tests.faults.damage import HOSTILE_VALUES, damaged
from tests.faults.world import CANARY, World

PER_STEP = 12
GOOD = "good.wav"
LIMITS = IntakeLimits(archive=ArchiveLimits(max_entries=50, max_entry_bytes=1_000_000, max_total_bytes=3_000_000))
MAX_UNPACKED = 4_000_000
FOREIGN = "../../canary.txt"
CLIMBING = (
    "../evil.wav", "a/../../evil.wav", "/tmp/evil.wav", "..\\evil.wav", "C:\\evil.wav", "C:evil.wav", "//host/evil.wav",
    "./../evil.wav", "a/./../../evil.wav", "\u2025/evil.wav", "evil.wav\x00.txt", "con.wav", ".", "..", "/", "a//b.wav",
)  # fmt: skip
ODD_NAMES = (
    "", " ", "\n.wav", "\u202evaw.exe", "é" * 120 + ".wav", "a" * 255 + ".wav", "a/" * 200 + "b.wav", "-rf.wav",
)  # fmt: skip

Make = Callable[[random.Random, World, bytes], tuple[str, dict[str, bytes]]]


def step(rng: random.Random, world: World) -> Iterator[Outcome]:
    """Some inputs of random kinds, each looked through as a dataset's sources are."""
    for _ in range(PER_STEP):
        with world.scratch() as folder:
            sound = world.recording.read_bytes()
            what, files = rng.choice(MAKERS)(rng, world, sound)
            (given := folder / "given").mkdir()
            for name, content in files.items():
                (given / name).write_bytes(content)
            before = set(world.folder.rglob("*"))
            yield attempt(what, lambda folder=folder: _look(folder, world), world)
            outside = [
                path for path in set(world.folder.rglob("*")) - before if folder / "work" not in [path, *path.parents]
            ]
            if outside:
                yield Outcome(result=Result.WRONG, what=f"{what}: written outside: {outside[0]}")
        yield from left_behind(what, world.left_in_temporary())


def _look(folder: Path, world: World) -> str:
    """What is wrong about what was found, if anything is."""
    found = expand((folder / "given",), folder / "work", transcripts=(), limits=LIMITS)
    unpacked = sum(path.stat().st_size for path in (folder / "work").rglob("*") if path.is_file())
    if unpacked > MAX_UNPACKED:
        return f"{unpacked} bytes were unpacked"
    for recording in found.recordings:
        if recording.path.read_bytes().startswith(CANARY.encode()):
            return f"{recording.name} is a foreign file"
    return _unclean(found, world) or (Result.REFUSED if found.problems else "")


def _unclean(found: Intake, world: World) -> str:
    for problem in found.problems:
        if "\n" in problem.reason or not problem.reason:
            return f"refused in no sentence: {problem.reason[:200]!r}"
        if leak := leaked(problem.reason, world):
            return f"{leak} in {problem.reason[:300]!r}"
    for recording in found.recordings:
        if recording.transcript is not None:
            recording.transcript.text.encode()
        recording.name.encode()
    return ""


def zip_of(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """The bytes of an archive."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", compression) as archive:
        warnings.simplefilter("ignore")  # a name twice
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=compression)
    return buffer.getvalue()


def _climbing(rng: random.Random, world: World, sound: bytes) -> tuple[str, dict[str, bytes]]:
    name = rng.choice(CLIMBING + ODD_NAMES)
    return f"an entry {name[:40]!r}", {"a.zip": zip_of({name: sound, GOOD: sound})}


def _mutated(rng: random.Random, world: World, sound: bytes) -> tuple[str, dict[str, bytes]]:
    files = {GOOD: sound, "a.txt": b"What is said.", "deep/b.wav": sound[:9000], "metadata.csv": b"audio,text\na,b\n"}
    content = zip_of(files, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2)))
    how, content = damaged(content, rng)
    if rng.random() < 0.5:
        # Where an archive says what is in it.
        tail = content.rfind(b"PK\x01\x02")
        how, rest = damaged(content[tail:] or b"\0", rng)
        content, how = content[:tail] + rest, f"{how} of the directory"
    return how, {"a.zip": content}


def _bomb(rng: random.Random, world: World, sound: bytes) -> tuple[str, dict[str, bytes]]:
    kind = rng.choice(("large", "many large", "many", "nested"))
    if kind == "large":
        files = {"bomb.wav": sound + bytes(30_000_000), GOOD: sound}
    elif kind == "many large":
        files = {f"{number}.wav": sound + bytes(900_000) for number in range(9)}
    elif kind == "many":
        files = {f"{number}.wav": b"" for number in range(500)}
    else:
        inner = zip_of({GOOD: sound})
        for _ in range(5):
            inner = zip_of({"inner.zip": inner})
        files = {"inner.zip": inner, GOOD: sound}
    return f"a bomb, {kind}", {"a.zip": zip_of(files)}


def _fields(rng: random.Random, world: World, sound: bytes) -> tuple[str, dict[str, bytes]]:
    """One field of a directory's entry from the extremes: version, flags, method, sizes, attributes, offset."""
    content = bytearray(zip_of({"bad.wav": sound, GOOD: sound}, zipfile.ZIP_STORED))
    record, at = rng.choice(((b"PK\x01\x02", rng.randrange(4, 46)), (b"PK\x03\x04", rng.randrange(4, 30))))
    where, value = content.index(record) + at, rng.choice((0, 1, 9, 99, 0x7FFF, 0xFFFF))
    struct.pack_into("<H", content, where, value)
    return f"{value} at {at} of {record!r}", {"a.zip": bytes(content)}


def _links(rng: random.Random, world: World, sound: bytes) -> tuple[str, dict[str, bytes]]:
    buffer = io.BytesIO()
    kind = rng.choice((0o120777, 0o010644, 0o020644, 0o060644))
    with zipfile.ZipFile(buffer, "w") as archive:
        link = zipfile.ZipInfo("link.wav")
        link.external_attr, link.create_system = kind << 16, 3
        archive.writestr(link, str(world.canary))
        archive.writestr("link.wav/inside.wav", sound)
        archive.writestr(GOOD, sound)
    return f"an entry of mode {kind:o}", {"a.zip": buffer.getvalue()}


def _other(rng: random.Random, world: World, sound: bytes) -> tuple[str, dict[str, bytes]]:
    """Archives of other kinds, which are named and not opened."""
    suffix, mode = rng.choice((("tar", "w"), ("tgz", "w:gz"), ("tar.bz2", "w:bz2"), ("tar.xz", "w:xz"), ("zip", "w")))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        link = tarfile.TarInfo(rng.choice(("../link.wav", "link.wav")))
        link.type, link.linkname = rng.choice((tarfile.SYMTYPE, tarfile.LNKTYPE)), str(world.canary)
        archive.addfile(link)
        good = tarfile.TarInfo(GOOD)
        good.size = len(sound)
        archive.addfile(good, io.BytesIO(sound))
    return f"a {suffix}", {f"a.{suffix}": buffer.getvalue(), GOOD: sound}


def _tables(rng: random.Random, world: World, sound: bytes) -> tuple[str, dict[str, bytes]]:
    """Transcripts that are none, in a folder or in an archive."""
    value = rng.choice((*HOSTILE_VALUES, FOREIGN, "x" * 300_000, "\udfff half"))
    line = json.dumps({"audio": rng.choice(("good.wav", FOREIGN, value)), "text": value, "language": value})
    tables = {
        "a.jsonl": f"{line}\n{{\n[]\n3\n{line[:-5]}".encode(),
        "a.csv": f'audio,text\ngood.wav,"{value}\n'.encode(errors="surrogatepass"),
        "good.txt": rng.choice(
            (b"\xff\xfe", b"", b"\0" * 100, rng.randbytes(300), str(value).encode(errors="replace"))
        ),
        "metadata.csv": b"|".join([b"a"] * 2000) + b"\n" + rng.randbytes(50),
        "b.jsonl": b"[" * 100_000,
    }
    chosen = {name: tables[name] for name in rng.sample(sorted(tables), 2)} | {GOOD: sound}
    given = {"a.zip": zip_of(chosen)} if rng.random() < 0.5 else chosen
    return f"transcripts {sorted(chosen)} of {value!r:.40}", given


MAKERS: tuple[Make, ...] = (
    _climbing,
    _mutated,
    _mutated,
    _mutated,
    _bomb,
    _fields,
    _fields,
    _links,
    _other,
    _tables,
    _tables,
)

ATTACK = Attack(name="archives", weight=1.0, attack=step)
