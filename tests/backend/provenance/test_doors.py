"""No door is forgotten: every place in the code that makes a file of sound is named here, with what it carries.

The API's routes are walked in `tests/backend/serving/api/test_doors.py`, the page in `tests/ui/test_studio_page.py`.
"""

from __future__ import annotations

import argparse
import ast
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import app
from backend.commands.parser import COMMANDS, build_parser
from backend.comparisons.make_comparison import ComparisonOrder, FinishedComparison
from backend.evaluation.scores import EvaluatedTake
from backend.provenance.check import Checker
from backend.provenance.signing import FileSigner
from backend.provenance.statement import SpeechStatement
from backend.runs.process.evaluation_queue import EvaluationQueue
from backend.settings import Settings
from backend.store.home import Home
from backend.studio import Studio
from backend.voices.consent import Consent
from backend.voices.registry import Voices
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import write_voice
from training.model.project import PROJECT_FOLDER

WRITERS = frozenset({"write_wav", "WavWriter", "encode", "encoded", "StreamEncoder", "wav_bytes", "wav_header"})
_LIBRARIES = frozenset(
    {
        *(("soundfile", "write"), ("soundfile", "SoundFile"), ("wave", "open"), ("av", "open")),
        *(("wavfile", "write"), ("scipy.io", "wavfile"), ("torchaudio", "save"), ("gradio", "Audio"), ("gr", "Audio")),
    }
)
"""What makes a file of sound elsewhere, or hands one out."""

SPEAKING = {
    "backend/commands/say.py": "test_what_the_commands_write_is_signed",
    "backend/commands/clone.py": "test_what_the_commands_write_is_signed",
    "backend/comparisons/make_comparison.py": "test_a_blind_comparison_is_signed_without_revealing_voices",
    "backend/evaluation/evaluate.py": "test_takes_of_checkpoints_are_signed_where_the_key_is",
    "backend/serving/synthesizer.py": "tests/backend/serving/api/test_doors.py",
    "backend/serving/api/take_recorder.py": "tests/backend/serving/api/test_doors.py",
    "backend/serving/introductions.py": "tests/ui/test_studio_page.py",
    "backend/takes/keeper.py": "tests/ui/test_studio_page.py",
    "ui/tabs/voice/speak.py": "tests/ui/test_studio_page.py",
}
"""Files that make speech, and the test that finds the statement in what comes out."""

NOT_SPEECH = {
    "backend/audio/canonical.py": "recordings as they were given",
    "backend/audio/encoding.py": "the encoder itself",
    "backend/audio/mono_blocks.py": "reads",
    "backend/audio/pcm16.py": "the WAV header itself",
    "backend/audio/writing.py": "the writer itself",
    "backend/dataset/stages/cut.py": "clips of recordings as they were given",
    "backend/evaluation/take_scores.py": "reads",
    "backend/serving/voice_resolver.py": "reads",
    "backend/studio.py": "a preview of the recording that was given",
    "backend/voices/reference.py": "the recording that was given",
    "backend/voices/samples.py": "a part of a sample that came with the program",
    "ui/tabs/voice/source.py": "records and plays what the person gives",
    "ui/tabs/voice/spoken_consent.py": "records and plays what the person gives",
    "training/pretrain/codec/evaluation.py": "decoded recordings, for whoever trains a codec",
    "training/pretrain/corpus/own_sentences.py": "recordings as they were given, for the corpus",
    "training/pretrain/corpus/sample_voices.py": "made by other programs",
    "training/model/codec/tokenizer.py": "codes, not files",
}

SPEAKING_COMMANDS = {"say", "clone"}
SILENT_COMMANDS = {"dataset", "finetune", "runs", "pipeline", "voices", "trash", "check", "keys", "serve", "doctor"}


def writers() -> Iterator[str]:
    """The files whose code calls something that makes a file of sound."""
    for path in itertools.chain.from_iterable((PROJECT_FOLDER / top).rglob("*.py") for top in ("backend", "ui")):
        yield from _calls(path)
    yield from itertools.chain.from_iterable(map(_calls, (PROJECT_FOLDER / "training").rglob("*.py")))


def _calls(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in WRITERS:
                yield path.relative_to(PROJECT_FOLDER).as_posix()
            case ast.Call(func=ast.Attribute(value=ast.Name(id=library), attr=name)) if (library, name) in _LIBRARIES:
                yield path.relative_to(PROJECT_FOLDER).as_posix()
            case ast.ImportFrom(module=library, names=names) if any((library, one.name) in _LIBRARIES for one in names):
                yield path.relative_to(PROJECT_FOLDER).as_posix()


def test_every_file_that_makes_sound_is_named_here():
    known = SPEAKING.keys() | NOT_SPEECH.keys()
    assert set(writers()) - known == set(), "a new door: test what it lets out, and name it"


def test_every_command_is_known_to_speak_or_not():
    assert COMMANDS.keys() == SPEAKING_COMMANDS | SILENT_COMMANDS
    actions = build_parser(Settings(), None)._actions
    (commands,) = (action for action in actions if isinstance(action, argparse._SubParsersAction))
    assert commands.choices.keys() - {"studio"} == COMMANDS.keys()


@pytest.fixture
def home():
    return Settings.from_environment().home_folder


def test_what_the_commands_write_is_signed(tmp_path, home, capsys):
    recording = write_voice(tmp_path / "anna.wav", seconds=1.5)
    consent = Consent.give("Anna Example", "speaker-agreed")
    model = str(GOLDEN_CHECKPOINT)
    Voices(Home(home)).create_zero_shot("Anna", recording, consent=consent, model=model)
    spoken = {suffix: tmp_path / f"said.{suffix}" for suffix in ("wav", "m4a", "opus")}
    for output in spoken.values():
        say = ["say", "--voice", "Anna", "--text", "Hi.", "--model", model, "--seed", "1", "--output", str(output)]
        assert app.main(say) == 0
    cloned = tmp_path / "cloned.wav"
    options = ["--consent", "speaker-agreed", "--consent-by", "Anna Example", "--output", str(cloned), "--seed", "1"]
    assert app.main(["clone", "--model", model, "--reference", str(recording), "--text", "Hi.", *options]) == 0
    checker = Checker(home)
    for path in (spoken["wav"], spoken["m4a"], cloned):
        verdict = checker.check(path)
        assert (verdict.signed.trust, verdict.comment) == ("ours", verdict.signed.statement)
        assert (verdict.comment.voice, verdict.comment.consent) == ("zero-shot", "speaker-agreed")
        assert verdict.watermark is not None
        assert b"Anna" not in path.read_bytes()
    verdict = checker.check(spoken["opus"])
    assert verdict.comment is not None
    assert verdict.watermark is not None
    capsys.readouterr()
    assert app.main(["check", *map(str, (*spoken.values(), cloned))]) == 0
    assert capsys.readouterr().out.count("made by Encore") == 4
    assert app.main(["check", "--json", str(cloned), str(recording)]) == 1
    assert '"is_made_by_encore": false' in capsys.readouterr().out
    assert app.main(["check", str(tmp_path / "missing.wav"), str(cloned)]) == 2


def test_the_commands_tell_speaker_and_text_only_when_they_are_asked(tmp_path, home):
    recording = write_voice(tmp_path / "anna.wav", seconds=1.5)
    model, told = str(GOLDEN_CHECKPOINT), ["--name-speaker", "--name-text"]
    consent = Consent.give("Anna Example", "own-voice")
    Voices(Home(home)).create_zero_shot("Anna", recording, consent=consent, model=model)
    say = ["say", "--voice", "Anna", "--text", "Hi.", "--model", model, "--output", str(tmp_path / "said.wav")]
    assert app.main([*say, *told]) == 0
    clone = ["clone", "--model", model, "--reference", str(recording), "--text", "Hi.", "--consent", "own-voice"]
    assert app.main([*clone, "--consent-by", "Anna Example", "--output", str(tmp_path / "cloned.wav"), *told]) == 0
    for name, speaker in (("said.wav", "Anna"), ("cloned.wav", "Anna Example")):
        verdict = Checker(home).check(tmp_path / name)
        assert (verdict.signed.statement.speaker, verdict.signed.statement.text) == (speaker, "Hi.")
        assert (verdict.comment.speaker, verdict.comment.text) == (None, None)


def test_a_blind_comparison_is_signed_without_revealing_voices(tmp_path):
    studio = Studio(Settings(home=tmp_path / "home"))
    studio.load_model(str(GOLDEN_CHECKPOINT), precision="fp32", device="cpu")
    sides = {side.key: side for side in studio.comparisons.list_sides()}
    chosen = (sides["sample:iris:x-vector:"], sides["sample:owen:x-vector:"])
    order = ComparisonOrder(sides=chosen, text="Hi.", seed=5)
    *_, last = studio.comparisons.compare(studio.loaded, order, lambda name: tmp_path / name)
    assert isinstance(last, FinishedComparison)
    for path in last.paths.values():
        verdict = studio.checker.check(path)
        signed = verdict.signed
        assert verdict.watermark is not None
        assert (signed.trust, signed.is_synthetic) == ("ours", True)
        said = signed.statement
        assert (said.checkpoint, said.voice, said.consent, said.consent_sha256) == (None, None, None, None)


def test_takes_of_checkpoints_are_signed_where_the_key_is(tmp_path, monkeypatch):
    """They are spoken wherever Ray has room, and signed when their scores are taken in."""
    consent = Consent.give("Anna Example")
    path = write_voice(tmp_path / "00.wav", seconds=1.0)
    scores = {"position": 0, "text": "Hi.", "held_out": False, "seed": 1, "seconds": 1.0, "expected_seconds": 1.0}
    said = SpeechStatement(voice="fine-tuned", checkpoint="ab" * 32)
    take = EvaluatedTake(**scores, finish_reason="eos", file=path.name, statement=said)
    queue = EvaluationQueue.__new__(EvaluationQueue)
    queue._signer, queue._run_id = FileSigner(tmp_path / "home"), "one"
    run = argparse.Namespace(consent=None, consents={take.speaker: consent})
    queue._rows = argparse.Namespace(get=lambda _: run)
    queue._folder = argparse.Namespace(path=tmp_path)
    queue._sign([take])
    signed = Checker(tmp_path / "home").check(path).signed
    assert (signed.trust, signed.statement.voice) == ("ours", "fine-tuned")
    assert (signed.statement.consent, signed.statement.consent_sha256) == (consent.statement, consent.digest)
