"""Whoever adds a sentence to the page adds it to the table: what is shown is no literal of Python or of a template."""

from __future__ import annotations

import ast
import re
from html.parser import HTMLParser

import pytest

from training.model.project import PROJECT_FOLDER

UI = PROJECT_FOLDER / "ui"

SHOWN_OPTIONS = {"label", "info", "placeholder"}

SHOWN_FIRST = {
    "Accordion",
    "Button",
    "ConsentMissing",
    "FormIncomplete",
    "SettingsError",
    "Tab",
    "TaskCancelled",
    "TrashNotFound",
    "UploadButton",
    "heading",
    "note",
    "refusal",
}
"""Functions whose first argument a person reads."""

SHOWN_SECOND = {"says", "download_link", "follow", "sound_html"}
"""Those whose second argument a person reads."""

NOT_ON_THE_PAGE = {"server.py": "it says why the page cannot be served, in the terminal"}

ALLOWED_WORDS = {
    "Encore": "the name of the program",
    "python app.py serve": "a command",
    "hf download --local-dir FOLDER": "a command",
    "mini": "the name of a model",
    "min": "the unit",
    "curl": "the name of a program",
    "Python": "the name of a program",
}
"""Texts of templates that are the same in all languages, each with its reason."""

LETTERS = re.compile(r"[^\W\d_]{2,}")


def written(node: ast.expr) -> str:
    """The literal words of an expression that is not a call; of an f-string those between its values."""
    match node:
        case ast.Constant(value=str(words)):
            return words
        case ast.JoinedStr(values=parts):
            return " ".join(written(part) for part in parts)
        case ast.BinOp(left=left, right=right) | ast.IfExp(body=left, orelse=right):
            return f"{written(left)} {written(right)}"
        case ast.Call(func=ast.Name(id="html"), args=[sentence, *_]):
            return re.sub(r"<[^>]*>", " ", written(sentence))
    return ""


def shown_literals(source: str) -> list[str]:
    """What a module shows that stands in it, not in the table."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        shown = [option.value for option in node.keywords if option.arg in SHOWN_OPTIONS]
        shown += node.args[:1] if name in SHOWN_FIRST else []
        shown += node.args[1:2] if name in SHOWN_SECOND else []
        found += [words for words in map(written, shown) if LETTERS.search(words)]
    return found


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(UI.rglob("*.py")) if path.name not in NOT_ON_THE_PAGE],
    ids=lambda path: str(path.relative_to(UI)),
)
def test_no_module_shows_words_of_its_own(path):
    assert shown_literals(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "code",
    [
        'gr.Button("Undo")',
        'gr.Button(f"Undo {name}", size="sm")',
        'gr.Slider(0, 1, label="Top-p")',
        'FormIncomplete("Record " "first.")',
        'says("", "Saving …")',
        'says("good", html("<strong>Done:</strong> {}", name))',
        'note("Yes" if good else "No")',
    ],
)
def test_words_in_the_code_are_found(code):
    assert shown_literals(code)


@pytest.mark.parametrize(
    "code", ['gr.Button(word("a.b"))', 'gr.Textbox(label="…")', 'says("bad", html("{} {}", a, b))']
)
def test_words_of_the_table_are_none(code):
    assert not shown_literals(code)


class Words(HTMLParser):
    """Texts and labels of a template without its expressions, and without what is exchanged in the browser."""

    def __init__(self, template: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._is_exchanged = False
        self.feed(re.sub(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", " ", template, flags=re.DOTALL))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self._is_exchanged = "data-word" in given
        read = (
            ("alt", "placeholder", "title")
            if "data-word-label" in given
            else ("alt", "aria-label", "placeholder", "title")
        )
        self.found += [words for name in read if (words := " ".join((given.get(name) or "").split()))]

    def handle_data(self, data):
        if not self._is_exchanged and (words := " ".join(data.split())):
            self.found.append(words)
        self._is_exchanged = False


@pytest.mark.parametrize("path", sorted(UI.rglob("*.html")), ids=lambda path: path.stem)
def test_no_template_has_words_of_its_own(path):
    found = Words(path.read_text(encoding="utf-8")).found
    assert [words for words in found if LETTERS.search(words) and words not in ALLOWED_WORDS] == []
