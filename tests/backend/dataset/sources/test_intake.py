"""Recordings are found wherever they are, and everything that is none is a row with a reason."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path

import pytest

from backend.audio.limits import DecodingLimits
from backend.audio.pcm16 import to_pcm16
from backend.dataset.sources.archives import ArchiveLimits
from backend.dataset.sources.intake import Intake, IntakeLimits, expand
from tests.backend.audio.small_disk import run_on_small_disk
from tests.backend.audio.sounds import sing, write_raw_wav

RATE = 24_000
ODD_NAMES = ['it\'s "mine".wav', "голос 🎤.wav", "-rf *.wav", " spaces  here .wav"]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_raw_wav(tmp_path_factory.mktemp("sound") / "take.wav", to_pcm16(sing(0.2, RATE))).read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "given").mkdir()
    return tmp_path / "given"


def look(folder: Path, *paths: Path, limits: IntakeLimits | None = None, transcripts: tuple[Path, ...] = ()) -> Intake:
    return expand(paths or (folder,), folder.parent / "work", transcripts=transcripts, limits=limits)


def names(intake: Intake) -> list[str]:
    return [recording.name for recording in intake.recordings]


def reasons(intake: Intake) -> dict[str, str]:
    return {problem.name: problem.reason for problem in intake.problems}


def texts(intake: Intake) -> list[str | None]:
    return [recording.transcript and recording.transcript.text for recording in intake.recordings]


def put(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def zip_of(path: Path, files: dict[str, bytes], *, compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_a_folder_is_searched_in_order_and_in_depth(folder: Path, sound: bytes) -> None:
    for name in ("b.wav", "a.wav", "deep/er/c.wav", "no suffix", ".hidden.wav", "__MACOSX/a.wav"):
        put(folder / name, sound)
    put(folder / "README.md", "not a recording")
    put(folder / "cover.jpg", b"\xff\xd8\xff\xe0")
    found = look(folder)
    assert names(found) == ["given/a.wav", "given/b.wav", "given/no suffix", "given/deep/er/c.wav"]
    assert found.problems == ()


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_will_do(folder: Path, sound: bytes, name: str) -> None:
    put(folder / name, sound)
    zip_of(folder.parent / "all.zip", {name: sound})
    assert names(look(folder)) == [f"given/{name}"]
    assert names(look(folder, folder.parent / "all.zip")) == [f"all.zip/{name}"]


def test_a_name_that_is_no_text_is_shown_as_one(folder: Path, sound: bytes) -> None:
    put(Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9\n.wav")), sound)
    (name,) = names(look(folder))
    assert name.isprintable()
    assert name.encode().startswith(b"given/caf")


def test_what_is_no_recording_is_a_row_and_stops_nothing(folder: Path, sound: bytes) -> None:
    put(folder / "good.wav", sound)
    put(folder / "empty.wav", b"")
    put(folder / "text.mp3", "Dear diary")
    put(folder / "large.wav", sound + bytes(100_000))
    (folder / "nowhere.wav").symlink_to("absent")
    os.mkfifo(folder / "pipe.wav")
    found = look(folder, limits=IntakeLimits(decoding=DecodingLimits(max_bytes=50_000)))
    assert names(found) == ["given/good.wav"]
    found_reasons = reasons(found)
    assert sorted(found_reasons) == [
        f"given/{name}.{suffix}"
        for name, suffix in (
            ("empty", "wav"),
            ("large", "wav"),
            ("nowhere", "wav"),
            ("pipe", "wav"),
            ("text", "mp3"),
        )
    ]
    assert "is empty" in found_reasons["given/empty.wav"]
    assert "at most" in found_reasons["given/large.wav"]


def test_a_folder_without_recordings_says_so(folder: Path) -> None:
    put(folder / "notes.txt", "only words")
    assert "holds no recordings" in reasons(look(folder))["given"]


def test_what_is_not_there(folder: Path) -> None:
    assert "does not exist" in reasons(look(folder, folder / "absent.wav"))["absent.wav"]
    for path in (Path("x" * 300), Path("null\0byte.wav")):
        found = look(folder, path)
        assert found.recordings == ()
        assert [problem.reason.rpartition(" Choose")[2] for problem in found.problems] == [
            " a recording that is on this computer."
        ]


def test_links_do_not_lead_out(folder: Path, sound: bytes) -> None:
    secret = put(folder.parent / "elsewhere" / "secret.wav", sound)
    put(folder / "inside.wav", sound)
    (folder / "link.wav").symlink_to(secret)
    (folder / "linked").symlink_to(secret.parent)
    (folder / "again.wav").symlink_to("inside.wav")
    found = look(folder)
    assert {recording.path for recording in found.recordings} == {folder / "inside.wav"}
    assert "leads out" in reasons(found)["given/link.wav"]


def test_the_same_file_counts_once(folder: Path, sound: bytes) -> None:
    path = put(folder / "a.wav", sound)
    assert names(look(folder, path, folder, path)) == ["a.wav"]


def test_a_file_named_alone_brings_the_text_beside_it(folder: Path, sound: bytes) -> None:
    recording, text = put(folder / "a.wav", sound), put(folder / "a.txt", "What is said.")
    put(folder / "other.txt", "Something else.")
    for given in ((recording,), (recording, text), (text, recording)):
        intake = look(folder, *given)
        assert texts(intake) == ["What is said."]
        assert not intake.problems


def test_too_many_files(folder: Path, sound: bytes) -> None:
    for number in range(5):
        put(folder / f"{number}.wav", sound)
    found = look(folder, limits=IntakeLimits(max_files=3))
    assert len(found.recordings) == 3
    assert "more than 3 files" in reasons(found)["given"]


def test_an_archive_is_searched_like_a_folder(folder: Path, sound: bytes) -> None:
    archive = zip_of(
        folder / "memos.zip",
        {
            "day 1/a.wav": sound,
            "day 1/a.txt": b"What a says.",
            "b.wav": sound,
            "b.pdf": b"%PDF",
            "__MACOSX/._b.wav": b"x",
        },
    )
    for found in (look(folder, archive), look(folder)):
        prefix = "" if found.recordings[0].name.startswith("memos") else "given/"
        assert names(found) == [f"{prefix}memos.zip/b.wav", f"{prefix}memos.zip/day 1/a.wav"]
        assert texts(found) == [
            None,
            "What a says.",
        ]
        assert found.problems == ()
        assert all(recording.path.read_bytes() == sound for recording in found.recordings)


@pytest.mark.parametrize("name", ["../evil.wav", "a/../../evil.wav", "/etc/evil.wav", "..\\evil.wav"])
def test_a_name_that_climbs_stays_in_the_archive(folder: Path, sound: bytes, name: str) -> None:
    archive = zip_of(folder / "evil.zip", {name: sound, "good.wav": sound})
    before = {path for path in folder.parent.rglob("*") if "work" not in path.parts}
    found = look(folder, archive)
    assert names(found) == ["evil.zip/good.wav"]
    assert "leads out of the archive" in " ".join(reasons(found).values())
    assert not Path("/etc/evil.wav").exists()
    work = folder.parent / "work"
    assert {path for path in folder.parent.rglob("*") if path != work and work not in path.parents} == before


def test_bombs_are_stopped_while_they_unpack(folder: Path, sound: bytes) -> None:
    limits = IntakeLimits(archive=ArchiveLimits(max_entry_bytes=1_000_000, max_total_bytes=2_500_000))
    one = zip_of(folder / "one.zip", {"bomb.wav": sound + bytes(50_000_000), "good.wav": sound})
    many = zip_of(folder / "many.zip", {f"{number}.wav": sound + bytes(900_000) for number in range(9)})
    found = look(folder, one, limits=limits)
    assert names(found) == ["one.zip/good.wav"]
    assert "more than 1 MB" in reasons(found)["one.zip/bomb.wav"]
    found = look(folder, many, limits=limits)
    assert len(found.recordings) == 2
    assert "more than 2.5 MB" in reasons(found)["many.zip"]
    unpacked = sum(path.stat().st_size for path in (folder.parent / "work").rglob("*") if path.is_file())
    assert unpacked < 3_000_000


def test_an_archive_of_too_many_files(folder: Path, sound: bytes) -> None:
    archive = zip_of(folder / "many.zip", {f"{number}.wav": sound for number in range(5)})
    limits = IntakeLimits(archive=ArchiveLimits(max_entries=4))
    assert "holds 5 files" in reasons(look(folder, archive, limits=limits))["many.zip"]
    # The directory is not even read when it is far too large for that many.
    content = bytearray(archive.read_bytes())
    struct.pack_into("<L", content, len(content) - 22 + 12, 2**31)
    put(archive, bytes(content))
    assert "more than 4 files" in reasons(look(folder, archive, limits=limits))["many.zip"]


def test_locked_nested_linked_and_odd_members(folder: Path, sound: bytes) -> None:
    inner = zip_of(folder.parent / "inner.zip", {"a.wav": sound}).read_bytes()
    archive = folder / "mixed.zip"
    with zipfile.ZipFile(archive, "w") as file:
        link = zipfile.ZipInfo("link.wav")
        link.external_attr = 0o120777 << 16
        file.writestr(link, "/etc/passwd")
        file.writestr("inner.zip", inner)
        file.writestr("good.wav", sound)
        file.writestr("odd.wav", sound, compress_type=zipfile.ZIP_LZMA)
        file.writestr("locked.wav", sound)
    content = bytearray(archive.read_bytes())
    at = content.rfind(b"PK\x01\x02", 0, content.rfind(b"locked.wav"))
    content[at + 8] |= 1
    put(archive, bytes(content))
    found = look(folder, archive)
    assert names(found) == ["mixed.zip/good.wav"]
    words = {"link.wav": "link", "inner.zip": "inside an archive", "odd.wav": "unusual", "locked.wav": "password"}
    for name, word in words.items():
        assert word in reasons(found)[f"mixed.zip/{name}"]


@pytest.mark.parametrize("damage", ["cut", "text", "empty", "one member"])
def test_a_damaged_archive(folder: Path, sound: bytes, damage: str) -> None:
    archive = zip_of(folder / "a.zip", {"bad.wav": sound, "good.wav": sound}, compression=zipfile.ZIP_STORED)
    content = bytearray(archive.read_bytes())
    content[200] ^= 0xFF
    put(archive, {"cut": bytes(content[:-30]), "text": b"no zip", "empty": b"", "one member": bytes(content)}[damage])
    found = look(folder, archive)
    if damage == "one member":
        assert names(found) == ["a.zip/good.wav"]
        assert "damaged" in reasons(found)["a.zip/bad.wav"]
    else:
        assert "damaged" in reasons(found)["a.zip"]


def test_an_archive_of_another_version_or_without_a_name(folder: Path, sound: bytes) -> None:
    later = zip_of(folder / "later.zip", {"a.wav": sound}, compression=zipfile.ZIP_STORED)
    content = bytearray(later.read_bytes())
    content[content.index(b"PK\x01\x02") + 6] = 99  # the version that is needed to unpack it
    put(later, bytes(content))
    assert "damaged" in reasons(look(folder, later))["later.zip"]

    nameless = zip_of(folder / "nameless.zip", {"x": sound, "good.wav": sound}, compression=zipfile.ZIP_STORED)
    content = bytearray(nameless.read_bytes())
    for record, at, header_bytes in ((b"PK\x03\x04", 26, 30), (b"PK\x01\x02", 28, 46)):
        where = content.index(record)
        content[where + at] = 0
        content[where + header_bytes] = ord("y")
        # The name becomes the entry's extra field.
        content[where + at + 2] = 1
    put(nameless, bytes(content))
    found = look(folder, nameless)
    assert names(found) in ([], ["nameless.zip/good.wav"])
    assert found.problems


def test_a_name_twice_in_an_archive(folder: Path, sound: bytes) -> None:
    archive = folder / "a.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a.wav", sound)
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("a.wav", b"other")
    found = look(folder, archive)
    assert found.recordings[0].path.read_bytes() == sound
    assert "twice" in reasons(found)["a.zip/a.wav"]


def test_other_archives_are_named(folder: Path) -> None:
    assert "zip" in reasons(look(folder, put(folder / "a.tar.gz", b"\x1f\x8b")))["a.tar.gz"]


def test_a_full_disk_ends_the_archive_and_nothing_else(folder: Path, sound: bytes, tmp_path: Path) -> None:
    archive = zip_of(folder / "big.zip", {"a.wav": sound + os.urandom(3_000_000)})
    other = put(folder / "b.wav", sound)
    program = f"""
import sys
from pathlib import Path
from backend.dataset.sources.intake import expand
found = expand([Path({str(archive)!r}), Path({str(other)!r})], Path(sys.argv[1]))
print([each.name for each in found.recordings], [each.reason for each in found.problems], file=sys.stderr)
"""
    printed = run_on_small_disk(tmp_path / "disk", program)
    assert "['b.wav']" in printed
    assert "free some space" in printed


def test_transcripts_from_elsewhere(folder: Path, sound: bytes) -> None:
    put(folder / "a.wav", sound)
    put(folder / "b.wav", sound)
    put(folder.parent / "texts" / "a.txt", "What a says.")
    found = look(folder, transcripts=(folder.parent / "texts",))
    assert texts(found) == ["What a says.", None]
    table = put(folder.parent / "table.csv", "audio,text\nb,What b says.\nghost,Nothing\n")
    found = look(folder, folder, table)
    assert texts(found) == [None, "What b says."]
    assert "ghost" in reasons(found)["table.csv"]
