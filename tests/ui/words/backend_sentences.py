"""The sentences that `backend` and `training` may show on the page, read from their source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from training.model.project import PROJECT_FOLDER

NOT_ON_THE_PAGE = {
    "backend/commands/": "the command line",
    "backend/dataset/fetch_stored.py": "the command line",
    "backend/dataset/storage/lost_files.py": "the log, and the command line",
    "backend/dataset/storage/training_files.py:OutputInvalid": "an export to a folder, from the command line",
    "backend/dataset/stored_datasets.py": "the log, and the command line",
    "backend/doctor/verify.py": "the command line",
    "backend/evaluation/standard": "texts that voices speak",
    "backend/runs/report.py": "a document of its own, in English",
    "backend/serving/api/": "answers to programs",
    "backend/serving/deploy/": "the server of the API",
    "backend/serving/settings.py": "the server of the API",
    "backend/settings.py": "said in the terminal, before there is a page",
    "backend/tenants/": "answers to programs, and the command line",
    "backend/transcription/pronunciation.py": "no sentences",
    "backend/transcription/spoken_words.py": "no sentences",
    "backend/voices/consent_phrase.py": "spoken in English, because it is recognised in English",
    "backend/voices/registry.py:VoiceLimitReached": "an answer to programs",
    "backend/web/": "answers to browsers that are not on the page",
    "training/charts.py": "drawings",
    "training/model/codec/speech_tokenizer.py": "faults of a program",
    "training/pretrain/": "the command line",
}
"""By the beginning of a path; after a colon, only where it is said by a call of that name."""

CARRIERS = {
    "Finding",
    "add_event",
    "tell",
    "_tell",
    "record_problem",
    "_refuse",
    "_refuse_archive",
    "refusal",
    "_refused",
    "move",
}
"""Calls whose arguments are read, beside the constructors of errors."""

SPOKEN = {
    "It is good to meet you. What shall I read to you today?",
    "Schön, dass du da bist. Was soll ich dir heute vorlesen?",
}
"""Sentences of voices."""

NAMED_FIRST = {"RecordingNotFound", "RecordingNotAudio", "RecordingUnsupported"}
"""Errors whose problem is the end of a sentence that begins with the name of the recording."""

SILENT_CALLS = {
    *("ArgumentParser", "Field", "add_argument", "add_parser", "compile", "deprecated", "execute", "executemany"),
    *("filterwarnings", "getLogger", "startswith", "understanding", "KnownModel", "PublishedWhisper", "FairShare"),
    *("debug", "info", "warning", "error", "exception", "critical", "print", "sub", "match", "split", "set"),
}
"""Calls whose texts nobody reads on the page: logs, statements to the database, patterns."""

_STATEMENT = re.compile(r"(SELECT|INSERT|UPDATE|DELETE|PRAGMA|CREATE|VACUUM|BEGIN|WHERE) ")
_LONG_WORDS = re.compile(r"[^\W\d_]{4,}")
_WORDS = re.compile(r"[^\W\d_]{2,}")


def template_of(node: ast.Constant | ast.JoinedStr) -> str:
    """A literal with `{}` for each of its values; what is wrapped in nothing but spaces is one value."""
    parts = [node] if isinstance(node, ast.Constant) else node.values
    words = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
    words = re.sub(r"\{[a-z]*(:[^{}]*)?\}", "{}", words)
    return re.sub(r"\{\}( ?\{\})+", "{}", words.strip())


class _Reader(ast.NodeVisitor):
    def __init__(self, errors: frozenset[str], silent: frozenset[str]) -> None:
        self.found: dict[str, int] = {}
        self._errors = errors
        self._silent = silent
        self._carrier = ""

    def visit_Expr(self, node: ast.Expr) -> None:
        # Docstrings, of attributes too.
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Said to programmers."""

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in SILENT_CALLS or name in self._silent:
            return
        is_carrier = name in self._errors | CARRIERS | {"ValueError", "SidecarUnreadable", "__init__"}
        before = self._carrier
        self._carrier = name if is_carrier else ("" if name == "join" else before)
        self.generic_visit(node)
        self._carrier = before

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._read(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._read(node)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)

    def _read(self, node: ast.Constant | ast.JoinedStr) -> None:
        template = template_of(node)
        words = _WORDS.findall(template.replace("{}", ""))
        is_finding = self._carrier == "Finding" and bool(words)
        if (
            template in SPOKEN
            or _STATEMENT.match(template)
            or not (is_finding or (len(words) >= 2 and " " in template))
        ):
            return
        if not self._carrier and not (template.endswith(".") or re.match(r"[A-Z].*[?:]$", template)):
            return
        if self._carrier in NAMED_FIRST or (self._carrier == "__init__" and template[0].islower()):
            template = f"{{}} {template}".replace("{} {}", "{}")
        self.found.setdefault(template, node.lineno)


def error_classes(trees: Iterator[ast.Module]) -> frozenset[str]:
    """Names of all classes of the EncoreError tree."""
    bases = {
        node.name: {getattr(base, "id", getattr(base, "attr", "")) for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    known = {"EncoreError"}
    while more := {name for name, above in bases.items() if above & known} - known:
        known |= more
    return frozenset(known)


def sentences_by_module() -> dict[str, dict[str, int]]:
    """Templates of each module with their lines, without those that never reach the page."""
    folders = [PROJECT_FOLDER / name for name in ("backend", "training")]
    trees = {
        str(path.relative_to(PROJECT_FOLDER)): ast.parse(path.read_text(encoding="utf-8"))
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
    }
    errors = error_classes(iter(trees.values()))
    found = {}
    for module, tree in trees.items():
        rules = [rule.partition(":") for rule in NOT_ON_THE_PAGE if module.startswith(rule.partition(":")[0])]
        if any(not call for _, _, call in rules):
            continue
        reader = _Reader(errors, frozenset(call for _, _, call in rules))
        reader.visit(tree)
        found[module] = reader.found
    return {module: one for module, one in found.items() if one}


def all_words() -> set[str]:
    """Every word of a literal of both folders, whoever says it."""
    literals = (
        str(node.value)
        for name in ("backend", "training")
        for path in (PROJECT_FOLDER / name).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return {word for literal in literals for word in _LONG_WORDS.findall(literal.lower())}
