"""Which transcriber is used: the one that was named, or the preferred one of those that are on this machine."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
import whisper

from backend.transcription.catalogue import cache_folder
from backend.transcription.pocketsphinx_transcriber import POCKETSPHINX
from backend.transcription.select_transcriber import language_code, load_stored_transcribers, select_transcriber


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for Whisper's downloads."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder().mkdir()
    return cache_folder()


def store(cache: Path, name: str, weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file stand for a published model."""
    file = whisper._MODELS[name].rpartition("/")[2]
    shutil.copyfile(weights, cache / file)
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    monkeypatch.setitem(whisper._MODELS, name, f"http://127.0.0.1:9/{digest}/{file}")
    monkeypatch.setitem(whisper._ALIGNMENT_HEADS, name, None)
    monkeypatch.setattr(whisper.Whisper, "set_alignment_heads", lambda self, dump: None)


def test_none_is_an_answer(cache: Path):
    selected = select_transcriber("none")
    assert (selected.source, selected.notice) == (None, "")


def test_an_unknown_name_is_a_notice(cache: Path):
    selected = select_transcriber("bass")
    assert selected.source is None
    assert "'bass' is not a Whisper model" in selected.notice


def test_a_file_is_identified_by_its_content(cache: Path, tiny_whisper: Path):
    source = select_transcriber(str(tiny_whisper)).source
    assert source is not None
    assert source.identity == hashlib.sha256(tiny_whisper.read_bytes()).hexdigest()
    assert source.load("cpu").name == "tiny.pt"


def listeners() -> list[str]:
    return [each.name for each in load_stored_transcribers()]


def test_evaluation_prefers_base_to_tiny_and_hears_pocketsphinx_beside(
    cache: Path, tiny_whisper: Path, monkeypatch: pytest.MonkeyPatch
):
    assert listeners() == [POCKETSPHINX]
    store(cache, "tiny", tiny_whisper, monkeypatch)
    assert listeners() == ["whisper tiny", POCKETSPHINX]
    store(cache, "base", tiny_whisper, monkeypatch)
    assert listeners() == ["whisper base", POCKETSPHINX]


def test_evaluation_passes_over_damaged_weights(cache: Path, tiny_whisper: Path, monkeypatch: pytest.MonkeyPatch):
    store(cache, "tiny", tiny_whisper, monkeypatch)
    damaged = cache / "damaged"
    damaged.write_bytes(b"no weights")
    store(cache, "base", damaged, monkeypatch)
    assert listeners() == ["whisper tiny", POCKETSPHINX]


@pytest.mark.parametrize("name", [None, "", "mini"])
@pytest.mark.parametrize("language", ["English", "auto", "en"])
def test_on_a_fresh_machine_pocketsphinx_transcribes_english(cache: Path, name: str | None, language: str):
    selected = select_transcriber(name, language)
    assert selected.source is not None
    assert selected.source.load("cpu").name == POCKETSPHINX
    assert "English only" in selected.notice


@pytest.mark.parametrize("name", [None, "mini", "small"])
def test_without_a_network_other_languages_have_no_transcriber(cache: Path, name: str | None):
    selected = select_transcriber(name, "German")
    assert selected.source is None
    assert "cannot be downloaded" in selected.notice


def test_without_a_network_pocketsphinx_stands_in_for_a_published_model(cache: Path):
    selected = select_transcriber("small", "English")
    assert selected.source is not None
    assert selected.source.name == POCKETSPHINX
    assert "cannot be downloaded" in selected.notice


def test_a_whisper_on_this_machine_comes_first(cache: Path, tiny_whisper: Path, monkeypatch: pytest.MonkeyPatch):
    store(cache, "tiny", tiny_whisper, monkeypatch)
    selected = select_transcriber(None, "English")
    assert selected.source is not None
    assert (selected.source.name, selected.notice) == ("whisper tiny", "")


@pytest.mark.parametrize(("language", "code"), [("English", "en"), (" auto ", None), ("", None), ("de", "de")])
def test_languages_have_the_codes_of_whisper(language: str, code: str | None):
    assert language_code(language) == code


ENGLISH = "The lighthouse stands on a small rock three miles from the harbor, and my father kept it for thirty years."
GERMAN = "Der Leuchtturm steht auf einem kleinen Felsen drei Meilen vom Hafen, und mein Vater hat ihn lange gehütet."
JAPANESE = "灯台は港から三マイルの小さな岩の上に立っています。"


@pytest.mark.parametrize(
    ("texts", "is_heard"),
    [
        ((), True),
        ((ENGLISH,), True),
        (("Guten Tag!",), True),
        ((GERMAN,), False),
        ((JAPANESE,), False),
    ],
    ids=["none", "english", "too few words", "german", "japanese"],
)
def test_texts_in_another_language_are_not_held_against_what_is_heard_in_english(cache, monkeypatch, texts, is_heard):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    selected = select_transcriber(None, texts=texts)
    assert (selected.source is not None) == is_heard
    assert "knows English only" in selected.notice
    assert select_transcriber(None, "english", texts=texts).source is not None
