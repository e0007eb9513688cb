"""What the name of a model may be, and what is said about other names."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from training.model.errors import CheckpointError, DownloadError
from training.model.hub import hub as hub_module
from training.model.hub.hub import EMBEDDED_FOLDER, KNOWN_MODELS, resolve_model, short_name


def test_a_folder_is_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "Qwen" / "mine"
    folder.mkdir(parents=True)
    assert resolve_model(str(folder)) == folder
    monkeypatch.chdir(tmp_path)
    assert resolve_model("Qwen/mine").samefile(folder)


def test_a_folder_is_called_by_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Qwen" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for name in ("Qwen/mine", "./Qwen/mine", "Qwen/mine/", str(tmp_path / "Qwen" / "mine"), "/gone/since/then/mine"):
        assert short_name(name) == "mine"
    for name in ("mini", "Qwen/Qwen3-TTS-12Hz-0.6B-Base", "Anna & Bob", ""):
        assert short_name(name) == name
    assert short_name("C:\\models\\mine") == "mine"
    assert short_name(str(EMBEDDED_FOLDER)) == "mini"
    assert short_name("/cache/models--Qwen--Other/snapshots/0123abcd") == "Qwen/Other"


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "~nobody/model", "a/b/c", "..", "models\\tiny"])
def test_a_path_that_leads_nowhere_is_no_download(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "..":
        assert resolve_model(name).samefile(tmp_path.parent)
        return
    with pytest.raises(CheckpointError, match="There is no folder"):
        resolve_model(name)


def test_a_file_is_no_model(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(CheckpointError, match="is a file"):
        resolve_model(str(file))


@pytest.mark.parametrize(
    "name",
    [
        "https://huggingface.co/Qwen/Qwen3-TTS-12Hz-0.6B-Base",
        "http://127.0.0.1/model",
        "huggingface.co/Qwen/Qwen3-TTS-12Hz-0.6B-Base",
        "hf.co/Qwen",
        "hf://Qwen/Qwen3-TTS-12Hz-0.6B-Base",
        "file:///etc/passwd",
        "git@hf.co:Qwen/model",
        "//server/share",
        "www.example.org/model",
    ],
)
def test_addresses_are_refused(name: str) -> None:
    with pytest.raises(DownloadError, match="looks like an address"):
        resolve_model(name)


@given(st.text(max_size=300) | st.from_regex(r"[\w.-]{0,100}/[\w.-]{0,100}", fullmatch=True))
def test_a_name_that_makes_no_sense_is_refused_in_one_line(name: str) -> None:
    is_hub_name = hub_module._REPO_NAME.fullmatch(name) is not None
    assume(name != "mini" and not is_hub_name and not os.path.exists(os.path.expanduser(name)))
    with pytest.raises((CheckpointError, DownloadError)) as caught:
        resolve_model(name)
    assert "\n" not in str(caught.value).replace(name, "")


@pytest.mark.parametrize("name", ["", "tiny", "Qwen/", "/", "-x/y", "Qwen/a--b", "Qwen/a..b", f"Qwen/{'a' * 100}"])
def test_a_name_that_is_no_hub_name_lists_what_is(name: str, tmp_path: Path) -> None:
    if name == "/":
        assert resolve_model(name) == Path("/")
        return
    with pytest.raises(DownloadError, match=r"Qwen/Qwen3-TTS-12Hz-0\.6B-Base"):
        resolve_model(name)


def test_mini_is_the_embedded_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Path(__file__).parents[3] / "assets" / "mini" == EMBEDDED_FOLDER
    monkeypatch.setattr(hub_module, "EMBEDDED_FOLDER", tmp_path)
    with pytest.raises(CheckpointError, match=r"not part of this copy .* Qwen/Qwen3-TTS-12Hz-0\.6B-Base"):
        resolve_model("mini")
    (tmp_path / "config.json").touch()
    assert resolve_model("mini") == tmp_path


def test_announced_sizes_agree_with_the_published_tensors() -> None:
    contract = Path(__file__).parents[2] / "golden" / "contract"
    codec = json.loads((contract / "speech-tokenizer-12hz.json").read_text())["tensors"]
    codec_bytes = 4 * sum(math.prod(shape) for shape in codec.values())
    for size in ("0.6b", "1.7b"):
        tensors = json.loads((contract / f"{size}-base.json").read_text())["tensors"]
        expected = 2 * sum(math.prod(shape) for shape in tensors.values()) + codec_bytes
        known = next(model for model in KNOWN_MODELS if model.name == f"Qwen/Qwen3-TTS-12Hz-{size.upper()}-Base")
        assert known.num_bytes == pytest.approx(expected, rel=0.02)
