"""Texts find their recordings, and their recordings only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.dataset.sources.sidecars import SidecarUnreadable, match_sidecars, read_sidecar


def texts_for(folder: Path, sidecars: dict[str, str], recordings: list[str]) -> dict[str, str]:
    """Write sidecars; returns the text of each recording that has one."""
    entries = []
    for name, content in sidecars.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        entries += read_sidecar(path)[0]
    found, _ = match_sidecars(entries, [folder / name for name in recordings])
    return {str(path.relative_to(folder)): transcript.text for path, transcript in found.items()}


def test_a_text_beside_its_recording(tmp_path: Path) -> None:
    found = texts_for(tmp_path, {"a/take.txt": " Two\n lines. \n"}, ["a/take.wav", "b/take.wav"])
    assert found == {"a/take.wav": "Two lines."}


def test_the_layout_of_ljspeech(tmp_path: Path) -> None:
    table = 'LJ001-0001|Dr. "X" has 2 cats|Doctor "X" has two cats\nLJ001-0002|Only raw|\n'
    found = texts_for(tmp_path, {"metadata.csv": table}, ["wavs/LJ001-0001.wav", "wavs/LJ001-0002.wav"])
    assert found == {"wavs/LJ001-0001.wav": 'Doctor "X" has two cats', "wavs/LJ001-0002.wav": "Only raw"}


def test_tables_with_a_header(tmp_path: Path) -> None:
    for header, line in (
        ("file_name,transcription", 'a.wav,"Yes, indeed."'),
        ("audio_file|text|speaker_name", "wavs/a.wav|Yes, indeed.|me"),
        ("path\tsentence", "a.wav\tYes, indeed."),
    ):
        found = texts_for(tmp_path, {"metadata.csv": f"{header}\n{line}\n"}, ["wavs/a.wav"])
        assert found == {"wavs/a.wav": "Yes, indeed."}


def test_jsonl(tmp_path: Path) -> None:
    lines = [{"audio": "sub/a.wav", "text": "A."}, {"audio": "/other/machine/b.wav", "text": "B.", "language": "de"}]
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\nnot json\n[1]\n", encoding="utf-8")
    entries, problems = read_sidecar(path)
    found, unmatched = match_sidecars(entries, [tmp_path / "sub" / "a.wav", tmp_path / "b.wav"])
    assert {path.name: (each.text, each.language) for path, each in found.items()} == {
        "a.wav": ("A.", None),
        "b.wav": ("B.", "de"),
    }
    assert unmatched == []
    assert [problem.split(" is no")[0] for problem in problems] == ["line 3", "line 4"]


@pytest.mark.parametrize("field", ["audio", "text", "language"])
def test_half_a_character_is_a_line_that_cannot_be_used(tmp_path: Path, field: str) -> None:
    path = tmp_path / "train.jsonl"
    broken = {"audio": "a.wav", "text": "A.", "language": "de"} | {field: "half \ud800"}
    path.write_text(json.dumps(broken) + "\n" + json.dumps({"audio": "b.wav", "text": "B."}), encoding="utf-8")
    entries, problems = read_sidecar(path)
    assert [entry.audio for entry in entries] == ["b.wav"]
    assert problems == ["line 1 holds half a character; write it anew"]


def test_the_nearest_text_wins(tmp_path: Path) -> None:
    found = texts_for(
        tmp_path, {"metadata.csv": "a|From the table\n", "a.txt": "From beside", "b.jsonl": ""}, ["a.wav"]
    )
    assert found == {"a.wav": "From beside"}


def test_a_bare_name_is_not_guessed_where_two_recordings_bear_it(tmp_path: Path) -> None:
    assert texts_for(tmp_path, {"metadata.csv": "take|Whose?\n"}, ["a/take.wav", "b/take.wav"]) == {}
    # The place of one is named, so the other text is not laid on it, and no recording is left over by chance.
    found = texts_for(tmp_path, {"metadata.csv": "a/take|Mine\nb/take|Gone\n"}, ["a/take.wav", "c/take.wav"])
    assert found == {"a/take.wav": "Mine"}


def test_names_that_climb_find_nothing_outside(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    path = inside / "train.jsonl"
    path.write_text(json.dumps({"audio": "../outside/a.wav", "text": "A."}), encoding="utf-8")
    found, unmatched = match_sidecars(read_sidecar(path)[0], [inside / "b.wav"])
    assert found == {}
    assert len(unmatched) == 1


def test_encodings(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        path.write_text("Grüße, 你好", encoding=encoding)
        assert read_sidecar(path)[0][0].transcript.text == "Grüße, 你好"
    path.write_bytes("Grüße".encode("latin-1"))
    with pytest.raises(SidecarUnreadable, match="UTF-8"):
        read_sidecar(path)


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", b"just,some,numbers\n1,2,3\n"), ("a.txt", b"bin\0ary"), ("a.csv", b"")]
)
def test_what_cannot_be_used_says_why(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(SidecarUnreadable):
        read_sidecar(path)


def test_broken_lines_do_not_stop_the_others(tmp_path: Path) -> None:
    path = tmp_path / "metadata.csv"
    path.write_text("a|First\nlonely\n\n|nameless\nb|Last\nc|   \n", encoding="utf-8")
    entries, problems = read_sidecar(path)
    assert [entry.transcript.text for entry in entries] == ["First", "Last"]
    assert len(problems) == 2


def test_a_style_comes_with_the_text_and_a_plain_text_beside_does_not_hide_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("From beside.", encoding="utf-8")
    lines = [
        {"audio": "a.wav", "text": "From the list.", "style": " Very  Calm "},
        {"audio": "b.wav", "text": "B.", "style": "<b>"},
        {"audio": "c.wav", "text": "C."},
    ]
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (tmp_path / "table.csv").write_text("audio,text,style\nd.wav,D.,whisper\ne.wav,E.\n", encoding="utf-8")
    recordings = [tmp_path / f"{name}.wav" for name in "abcde"]
    for order in (("a.txt", "list.jsonl", "table.csv"), ("table.csv", "list.jsonl", "a.txt")):
        read = [read_sidecar(tmp_path / name) for name in order]
        found, _ = match_sidecars([entry for entries, _ in read for entry in entries], recordings)
        told = {path.name: (transcript.text, transcript.style) for path, transcript in found.items()}
        assert told == {
            "a.wav": ("From beside.", "very calm"),
            "b.wav": ("B.", ""),
            "c.wav": ("C.", ""),
            "d.wav": ("D.", "whisper"),
            "e.wav": ("E.", ""),
        }
        assert ["'<b>' cannot be a style" in problem for _, problems in read for problem in problems] == [True]
