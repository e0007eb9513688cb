"""The table of words: every language has the same keys and places, and every key is used."""

from __future__ import annotations

import re

import pytest

from backend.background_tasks import BackgroundTasks
from training.model.project import PROJECT_FOLDER
from ui.words.words import FIRST_LANGUAGE, best_language, say, say_count, spoken_to, tables, word

PLACE = re.compile(r"\{(\w+)\}")
OTHERS = [language for language in tables() if language != FIRST_LANGUAGE]


def test_there_is_more_than_one_language():
    assert {"en", "de"} <= set(tables())


@pytest.mark.parametrize("language", OTHERS)
def test_languages_have_the_same_keys_and_places(language):
    first, other = tables()[FIRST_LANGUAGE], tables()[language]
    assert other.keys() == first.keys()
    for key, sentence in first.items():
        assert sorted(PLACE.findall(other[key])) == sorted(PLACE.findall(sentence)), key
        assert other[key].strip(), key


def test_every_key_is_used_and_every_used_key_is_there():
    folder = PROJECT_FOLDER / "ui"
    sources = [path for kind in ("*.py", "*.js", "*.html") for path in folder.rglob(kind)]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    sections = {key.partition(".")[0] for key in tables()[FIRST_LANGUAGE]}
    named = set(re.findall(rf"[\"']((?:{'|'.join(sections)})\.[a-z_]+)\b(?!\.)", text)) - {"bar.js", "player.js"}
    # The places of the bar are written once, with their ids.
    named |= {f"bar.{place}" for place in ("speak", "data", "tune", "compare", "voices")}
    # Gradio's page asks for it, and Gradio's tables lack it.
    named |= {"common.upload"}
    assert named == set(tables()[FIRST_LANGUAGE])


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("de", "de"),
        ("de-AT,de;q=0.9,en;q=0.8", "de"),
        ("fr,en;q=0.5,de;q=0.9", "de"),
        ("fr;q=1.0,pt", "en"),
        ("", "en"),
        (None, "en"),
        ("*;q=nonsense,,;;", "en"),
    ],
)
def test_the_language_is_the_first_that_there_are_words_in(accepted, language):
    assert best_language(accepted) == language


def test_python_speaks_the_language_of_the_request():
    with spoken_to("de"):
        assert say("bar.tuning", name="Ann") == "Ann wird angepasst"
    assert say("bar.tuning", name="Ann") == "Tuning Ann"


def test_a_label_is_left_to_the_browser():
    assert '"key": "sheet.load"' in word("sheet.load")
    with pytest.raises(AssertionError):
        word("sheet.nothing")


def test_work_in_the_background_speaks_the_language_of_whoever_started_it():
    tasks: BackgroundTasks[str] = BackgroundTasks()
    with spoken_to("de"):
        task = tasks.start("key", "Speaking", lambda _: say("sheet.close"))
    assert task.has_ended(10.0)
    assert task.state.result == "Schließen"


def test_numbers_are_counted():
    assert [say_count(number, "fields.recording", "fields.recordings") for number in (0, 1, 2)] == [
        "0 recordings",
        "1 recording",
        "2 recordings",
    ]
