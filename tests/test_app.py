"""The command line as a person uses it: good input gives a file, bad input one line and status 2."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile

import app
from backend.commands.parser import COMMANDS
from backend.takes.take import TakeFacts
from tests.golden import GOLDEN_CHECKPOINT
from training.model.project import PROJECT_FOLDER

RATE = 24_000
CONSENT = ("--consent", "synthetic", "--consent-by", "Ann Author")


def tone(seconds, rate=RATE, level=0.3):
    time = np.arange(round(seconds * rate)) / rate
    return level * np.sin(2 * np.pi * 150 * time) * np.abs(np.sin(4 * time))


@pytest.fixture
def reference(tmp_path):
    path = tmp_path / "reference.wav"
    soundfile.write(path, tone(1.5), RATE)
    return path


def clone(tmp_path, reference, *more, text="Hm.", model=GOLDEN_CHECKPOINT):
    output = tmp_path / "out.wav"
    arguments = ["--model", model, "--reference", reference, "--text", text, "--output", output, "--seed", "1", *more]
    return app.main(["clone", *CONSENT, *map(str, arguments)]), output


@pytest.mark.parametrize(
    "more", [(), ("--stream",), ("--transcript", "Hello."), ("--language", "English", "--precision", "int8")]
)
def test_clone_writes_a_take_and_says_how_it_went(tmp_path, reference, capsys, more):
    status, output = clone(tmp_path, reference, *more)
    assert status == 0
    with wave.open(str(output)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        assert file.getnframes() > 0
        assert np.frombuffer(file.readframes(file.getnframes()), dtype=np.int16).std() > 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("real-time factor", "first audio after", "finished:"))


def test_a_transcript_that_was_not_used_is_said(tmp_path, capsys):
    sample = PROJECT_FOLDER / "assets" / "voices" / "iris.flac"
    said = (PROJECT_FOLDER / "assets" / "voices" / "iris.txt").read_text(encoding="utf-8")
    unused = "It is not sure that the transcript is what the recording says"
    for transcript, is_used in ((said, True), ("Something else altogether, about the law of taxes.", False)):
        status, _ = clone(tmp_path, sample, "--transcript", transcript, model="mini")
        assert status == 0
        printed = capsys.readouterr()
        assert ("in context" in printed.out) == is_used
        assert (unused in printed.err) != is_used


def test_a_take_tells_how_it_was_made_and_who_agreed(tmp_path, reference):
    _, output = clone(tmp_path, reference)
    facts = TakeFacts.model_validate_json((tmp_path / "out.wav.json").read_bytes())
    assert (facts.made_by, facts.voice, facts.text, facts.seeds) == ("command", reference.name, "Hm.", (1,))
    assert facts.consent is not None
    assert (facts.consent.who, facts.consent.statement) == ("Ann Author", "synthetic")
    with wave.open(str(output)) as file:
        assert facts.seconds == pytest.approx(file.getnframes() / RATE)


@pytest.mark.parametrize("given", [(), ("--consent-by", "Ann"), ("--consent", "synthetic")])
def test_nothing_is_cloned_without_consent(tmp_path, reference, capsys, given):
    output = tmp_path / "out.wav"
    arguments = ["--reference", str(reference), "--text", "Hm.", "--output", str(output), "--model", "nowhere"]
    assert app.main(["clone", *given, *arguments]) == 2
    error = capsys.readouterr().err
    assert "consent" in error
    assert len(error.splitlines()) == 1
    assert not output.exists()


def test_the_same_seed_gives_the_same_sound(tmp_path, reference):
    def samples():
        with wave.open(str(clone(tmp_path, reference)[1])) as file:
            return file.readframes(file.getnframes())

    # The files differ: each says when it was made, and which take it is.
    assert samples() == samples()


@pytest.mark.parametrize(("rate", "channels"), [(8_000, 1), (44_100, 2), (96_000, 1)])
def test_any_rate_and_stereo_are_fine(tmp_path, rate, channels):
    path = tmp_path / "stereo.wav"
    soundfile.write(path, np.stack([tone(1.5, rate)] * channels, axis=1), rate)
    assert clone(tmp_path, path)[0] == 0


def refused(tmp_path, capsys, reference, *more, **options):
    """Status 2, one line, nothing left behind but a home without anything in it; returns the line."""
    before = {*tmp_path.rglob("*")}
    status, output = clone(tmp_path, reference, *more, **options)
    error = capsys.readouterr().err
    assert status == 2
    assert not output.exists()
    left = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    # What is asked of a model that had to be loaded: an engine starts with the installation's key.
    assert {path.name for path in left} <= {"watermark.key", "encore.sqlite"}
    assert {path.parent.name for path in left} <= {"encore-home"}
    assert error.startswith("encore: ")
    assert len(error.splitlines()) == 1
    assert "Traceback" not in error
    return error


def write_float_wav(path, samples):
    """A 32-bit float WAV, whatever the samples are; soundfile would refuse some."""
    data = np.asarray(samples, dtype="<f4").tobytes()
    header = (
        b"RIFF"
        + struct.pack("<I", 36 + len(data))
        + b"WAVEfmt "
        + struct.pack("<IHHIIHH", 16, 3, 1, RATE, RATE * 4, 4, 32)
    )
    path.write_bytes(header + b"data" + struct.pack("<I", len(data)) + data)


def bad_references(folder):
    yield "missing.wav", "choose", lambda path: None
    yield "text.wav", "audio", lambda path: path.write_text("I am a text.")
    yield "empty.wav", "", lambda path: path.write_bytes(b"")
    yield "silence.wav", "silent", lambda path: soundfile.write(path, np.zeros(2 * RATE), RATE)
    yield "short.wav", "1.0 s", lambda path: soundfile.write(path, tone(0.6), RATE)
    yield "long.flac", "300", lambda path: soundfile.write(path, tone(301), RATE)
    yield "nan.wav", "", lambda path: write_float_wav(path, np.where(np.arange(RATE * 2) % 5 == 0, np.nan, 0.1))
    yield "folder.wav", "", lambda path: path.mkdir()


@pytest.mark.parametrize("name", [name for name, _, _ in bad_references(None)])
def test_a_bad_reference_is_one_line(tmp_path, capsys, name):
    word, make = next((word, make) for found, word, make in bad_references(tmp_path) if found == name)
    path = tmp_path / name
    make(path)
    assert word.lower() in refused(tmp_path, capsys, path).lower()


@pytest.mark.parametrize(
    ("text", "more", "word"),
    [
        ("", (), "text"),
        (" \n ", (), "text"),
        ("Hello.", ("--language", "Klingon"), "English"),
        ("Hello.", ("--device", "abacus"), "device"),
        ("Hello.", ("--device", "mps"), "device"),
        ("broken \udcff", (), "UTF-8"),
        ("Hello.", ("--transcript", "broken \udcff"), "UTF-8"),
    ],
)
def test_a_bad_request_is_one_line(tmp_path, capsys, reference, text, more, word):
    assert word.lower() in refused(tmp_path, capsys, reference, *more, text=text).lower()


def empty_folder(folder):
    folder.mkdir()
    return folder


def pickle_folder(folder):
    shutil.copytree(GOLDEN_CHECKPOINT, folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    return folder


def truncated_folder(folder):
    shutil.copytree(GOLDEN_CHECKPOINT, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    return folder


def broken_copy(name, content):
    def make(folder):
        shutil.copytree(GOLDEN_CHECKPOINT, folder)
        (folder / name).write_text(content, encoding="utf-8")
        return folder

    return make


@pytest.mark.parametrize(
    ("make", "word"),
    [(empty_folder, "config.json"), (pickle_folder, "safetensors"), (truncated_folder, "model.safetensors")],
)
def test_a_bad_model_is_one_line(tmp_path, capsys, reference, make, word):
    assert word in refused(tmp_path, capsys, reference, model=make(tmp_path / "model"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("vocab.json", "{"),
        ("merges.txt", "#version\nno such pair of tokens"),
        ("config.json", "[]"),
        ("generation_config.json", '{"temperature": "hot"}'),
        ("generation_config.json", '{"top_k": 2.5}'),
        ("generation_config.json", '{"max_new_tokens": "many"}'),
        ("generation_config.json", "[1]"),
    ],
)
def test_a_broken_file_of_a_model_is_one_line(tmp_path, capsys, reference, name, content):
    model = broken_copy(name, content)(tmp_path / "model")
    refused(tmp_path, capsys, reference, model=model)


@pytest.mark.parametrize(("output", "word"), [("no/such/folder/a.wav", "folder"), ("take.mp3", "WAV"), (".", "folder")])
def test_a_bad_output_is_refused_before_any_work(tmp_path, capsys, reference, output, word):
    status = app.main(
        [
            "clone",
            *CONSENT,
            "--model",
            "nowhere",
            "--reference",
            str(reference),
            "--text",
            "x",
            "--output",
            str(tmp_path / output),
        ]
    )
    assert status == 2
    assert word in capsys.readouterr().err


def test_ten_thousand_characters_are_spoken_in_order(tmp_path, reference, capsys, monkeypatch):
    # Two frames for each piece, so that forty of them are quick; such a take is otherwise refused as too short.
    monkeypatch.setattr("training.model.generation.take_request.frame_cap", lambda *args, **kwargs: 2)
    monkeypatch.setattr("backend.serving.speech.audio_stream.TOO_SHORT_SHARE", 0.0)
    sentence = "One more sentence of the long, long text. "
    status, _ = clone(tmp_path, reference, text=sentence * (10_000 // len(sentence)))
    assert status == 0
    assert " parts, seed" in (printed := capsys.readouterr().out)
    assert int(printed.split(" parts, seed")[0].split()[-1]) >= 10_000 // 240


REQUIRED = ["--reference", "a.wav", "--text", "Hm.", "--output", "b.wav"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["clone"], "--reference"),
        (["clone", *REQUIRED, "--precision", "fp64"], "--precision"),
        (["clone", *REQUIRED, "--presicion", "fp32"], "--presicion"),
        (["nonsense"], "nonsense"),
    ],
)
def test_bad_options_have_status_two(arguments, word, capsys):
    with pytest.raises(SystemExit) as left:
        app.main(arguments)
    assert left.value.code == 2
    assert word in capsys.readouterr().err


@pytest.mark.parametrize("command", [["clone", *REQUIRED], ["say", "--voice", "anna", "--text", "Hm."]])
@pytest.mark.parametrize("seed", ["-1", str(2**64), "many"])
def test_a_seed_out_of_range_is_one_clear_line(command, seed, capsys):
    assert app.main([*command, "--seed", seed]) == 2
    assert capsys.readouterr().err.strip() == (
        f"encore: {seed!r} is not a seed. Use a whole number from 0 to {2**63 - 1}, or leave it out."
    )


def test_a_bad_environment_variable_is_named(monkeypatch, capsys):
    monkeypatch.setenv("ENCORE_PRECISION", "fp64")
    assert app.main(["clone"]) == 2
    assert "ENCORE_PRECISION" in capsys.readouterr().err


def test_app_stays_small():
    assert len(Path(app.__file__).read_text(encoding="utf-8").splitlines()) <= 80


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--host", "0.0.0.0"), "give --auth"),
        (("--host", "0.0.0.0", "--auth", "ann"), "not of the form user:password"),
        (("--share",), "leave out --share"),
        (("studio", "--share"), "leave out --share"),
        (("--share", "studio"), "leave out --share"),
    ],
    ids=["host", "half", "share", "studio-share", "share-studio"],
)
def test_the_page_is_not_shown_to_others_without_a_password(capsys, more, words):
    assert app.main([*more]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [["--help"], ["nonsense"], ["say", "--txt"], *([command, "--help"] for command in COMMANDS)]
)
def test_what_only_prints_loads_nothing_heavy(arguments):
    program = (
        "import sys, app\n"
        "try: app.main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print({'torch', 'transformers', 'ray', 'gradio'} & sys.modules.keys(), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=PROJECT_FOLDER, capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1] == "set()"


HEAVY = ("torch", "transformers", "ray", "gradio", "fastapi", "pandas", "whisper", "huggingface_hub")
RUFUS = str(PROJECT_FOLDER / "assets" / "voices" / "rufus.flac")
SPEAK = ["clone", "--reference", RUFUS, "--text", "Hm.", "--output", "take.wav"]
WRONG = {
    "clone without consent": (SPEAK, "consent"),
    "clone of nothing": ([*SPEAK, *CONSENT, "--reference", "nothing.wav"], "nothing.wav does not exist"),
    "clone of a text": ([*SPEAK, *CONSENT, "--reference", "README.md"], "known here"),
    "clone of an unknown device": ([*SPEAK, *CONSENT, "--device", "abacus"], "no device 'abacus'"),
    "clone in an unknown precision": ([*SPEAK, *CONSENT, "--precision", "fp64"], "fp64"),
    "clone in an unknown language": ([*SPEAK, *CONSENT, "--language", "Klingon"], "does not speak 'Klingon'"),
    "clone with a model that is not there": ([*SPEAK, *CONSENT, "--model", "./nowhere"], "no folder ./nowhere"),
    "clone to nowhere": ([*SPEAK, *CONSENT, "--output", "no/such/folder/a.wav"], "does not exist"),
    "clone of no text": ([*SPEAK, *CONSENT, "--text", " "], "no text"),
    "say by nobody": (["say", "--voice", "nobody", "--text", "Hm."], "no voice 'nobody'"),
    "say at an impossible speed": (["say", "--voice", "nobody", "--text", "Hm.", "--speed", "9"], "speed"),
    "build of nothing": (["dataset", "build", "nothing", "--name", "x"], "nothing does not exist"),
    "build with an unknown Whisper": (["dataset", "build", RUFUS, "--name", "x", "--whisper", "huge"], "'huge'"),
    "build under a bad name": (["dataset", "build", RUFUS, "--name", "../x"], "name of a dataset"),
    "build with half a consent": (["dataset", "build", RUFUS, "--name", "x", "--consent", "synthetic"], "name of"),
    "show of no dataset": (["dataset", "show", "nobody"], "no dataset 'nobody'"),
    "deletion of no dataset": (["dataset", "delete", "nobody"], "no dataset 'nobody'"),
    "fine-tune on no dataset": (["finetune", "nobody"], "no dataset 'nobody'"),
    "pipeline without consent": (["pipeline", RUFUS, "--voice", "x"], "consent"),
    "pipeline of nothing": (["pipeline", "nothing", "--voice", "x", *CONSENT], "nothing does not exist"),
    "runs": (["runs", "list"], "no runs yet"),
    "no run": (["runs", "show", "nobody"], "no run 'nobody'"),
    "voices": (["voices", "list"], "no voices yet"),
    "voice of nothing": (["voices", "add", "x", "--recording", "nothing.wav", *CONSENT], "nothing.wav does not exist"),
    "voice without consent": (["voices", "add", "x", "--recording", RUFUS], "consent"),
    "import of nothing": (["voices", "import", "nothing"], "nothing is not a file"),
    "check of nothing": (["check", "nothing"], "nothing does not exist"),
    "API for all": (["serve", "--host", "0.0.0.0"], "ENCORE_API_KEYS"),
    "API of no voice": (["serve", "--local", "--voice", "nobody"], "no voice 'nobody'"),
    "studio for all": (["--host", "0.0.0.0"], "give --auth"),
    "studio at no port": (["--port", "70000"], "'70000' is not a port"),
}


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    """What each line of WRONG wrote, and the heavy modules that were loaded by then, all of them in one process."""
    program = (
        "import contextlib, io, json, sys, app\n"
        "told = {}\n"
        "for name, line in json.loads(sys.argv[1]).items():\n"
        "    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.suppress(SystemExit):\n"
        "        app.main(line)\n"
        f"    told[name] = said.getvalue(), [module for module in {HEAVY} if module in sys.modules]\n"
        "print(json.dumps(told))"
    )
    lines = json.dumps({name: line for name, (line, _) in WRONG.items()})
    environment = os.environ | {"ENCORE_HOME": str(tmp_path_factory.mktemp("home"))}
    done = subprocess.run(
        [sys.executable, "-c", program, lines],
        cwd=PROJECT_FOLDER,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_before_anything_heavy_is_loaded(refusals, name):
    said, loaded = refusals[name]
    assert WRONG[name][1] in said
    assert loaded == [], "each takes a second or more, and so does every typing error then"


def test_a_reader_that_has_had_enough_is_no_error(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "app.py", "doctor"]
    environment = {**os.environ, "ENCORE_HOME": str(tmp_path)}
    ended = subprocess.run(
        command, cwd=PROJECT_FOLDER, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (app.CLOSED_OUTPUT, "")
