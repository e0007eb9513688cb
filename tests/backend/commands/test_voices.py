"""`voices` and `say` from the command line: one home, files that come and go, one line when something is wrong."""

from __future__ import annotations

import shutil
import socket
import wave

import pytest
import soundfile

from backend.commands.parser import build_parser, run_command
from backend.errors import EncoreError, OutputInvalid, SettingsError
from backend.serving.errors import ServingError
from backend.settings import Settings
from backend.voices.errors import ConsentMissing, VoiceFileInvalid, VoiceNotFound, VoiceStyleUnknown
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import write_voice


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs one command line in a folder and with a home of its own."""
    monkeypatch.chdir(tmp_path)
    settings = Settings(home=tmp_path / "home", model=str(GOLDEN_CHECKPOINT), precision="fp32", device="cpu")

    def run(name, *arguments):
        parsed = build_parser(settings, name).parse_args([name, *map(str, arguments)])
        return run_command(parsed, settings)

    return run


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A home with one voice, made once: decoding takes a process each time."""
    folder = tmp_path_factory.mktemp("original")
    recording = write_voice(folder / "anna.wav", seconds=1.2)
    settings = Settings(home=folder / "home", model=str(GOLDEN_CHECKPOINT))
    arguments = ["--recording", str(recording), "--consent", "own-voice", "--consent-by", "Anna Example"]
    parsed = build_parser(settings, "voices").parse_args(["voices", "add", "Anna", *arguments])
    assert run_command(parsed, settings) == 0
    return folder


@pytest.fixture
def anna(original, tmp_path):
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)


def test_a_voice_is_added_listed_renamed_exported_deleted_and_imported(command, anna, capsys, tmp_path):
    command("voices", "rename", "anna", "Berta")
    capsys.readouterr()
    command("voices", "list")
    assert capsys.readouterr().out.startswith("Berta\tzero-shot\tauto\t")
    command("voices", "export", "Berta")
    file = tmp_path / "Berta.encore-voice"
    assert capsys.readouterr().out.strip() == "Berta.encore-voice"
    command("voices", "delete", "Berta")
    capsys.readouterr()
    command("voices", "list")
    assert capsys.readouterr().out == ""
    command("voices", "import", file, "--name", "Carla")
    assert "own-voice by Anna Example" in capsys.readouterr().out


def test_a_stored_voice_speaks(command, anna, capsys, tmp_path):
    command("say", "--voice", "anna", "--text", "Hi.", "--seed", 1)
    assert "by Anna" in capsys.readouterr().out
    with wave.open(str(tmp_path / "Anna.wav")) as file:
        assert file.getframerate() == 24_000
        assert file.getnframes() > 1920
    command("say", "--voice", "anna", "--text", "Hi.", "--seed", 1, "--speed", 2, "--output", tmp_path / "fast.flac")
    assert soundfile.info(tmp_path / "fast.flac").format == "FLAC"
    assert not list(tmp_path.glob(".*.partial"))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["say", "--voice", "Nobody", "--text", "Hi."], VoiceNotFound),
        (["say", "--voice", "Anna", "--text", " "], EncoreError),
        (["say", "--voice", "Anna", "--text", "Hi.", "--style", "calm"], VoiceStyleUnknown),
        (["say", "--voice", "Anna", "--text", "Hi.", "--speed", "nan"], EncoreError),
        (["say", "--voice", "Anna", "--text", "Hi.", "--output", "take.txt"], EncoreError),
        (["say", "--voice", "Anna", "--text", "Hi.", "--output", "no/take.wav"], OutputInvalid),
        (["voices", "export", "Nobody"], VoiceNotFound),
        (["voices", "delete", "Nobody"], VoiceNotFound),
        (["voices", "import", "anna.wav"], VoiceFileInvalid),
        (["serve", "--local", "--voice", "Nobody"], VoiceNotFound),
        (["serve", "--local", "--host", "0.0.0.0"], SettingsError),
        (["serve", "--local", "--port", "70000"], SettingsError),
        (["serve", "--local", "--host", "192.0.2.77"], SettingsError),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(command, anna, arguments, error):
    with pytest.raises(error) as caught:
        command(*arguments)
    assert "\n" not in str(caught.value)


def test_a_port_that_is_taken(command):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ServingError, match="another one with --port"):
        command("serve", "--local", "--port", taken.getsockname()[1])


@pytest.mark.parametrize("value", ["0", "x", "3-1", "1-", "-2", "1-x"])
def test_numbers_of_replicas_that_are_none(command, value, capsys):
    with pytest.raises(SystemExit):
        command("serve", f"--num-replicas={value}")
    assert "replicas" in capsys.readouterr().err


def test_a_voice_without_consent_is_not_added(command, capsys, tmp_path):
    recording = write_voice(tmp_path / "anna.wav", seconds=1.2)
    with pytest.raises(ConsentMissing, match="Give --consent-by NAME and --consent"):
        command("voices", "add", "Anna", "--recording", recording)
