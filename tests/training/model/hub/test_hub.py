"""Downloads from a hub that runs on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.training.model.hub_server import COMMIT, Hub
from training.model.errors import DownloadCancelled, DownloadError
from training.model.hub.hub import DownloadProgress, resolve_model
from training.model.project import PROJECT_FOLDER

REPO = "Someone/tiny-tts"
# huggingface_hub writes in steps of 10 MiB, so that a download that is to be cut off needs more than one.
WEIGHTS = os.urandom(2**20) * 24
PARTIAL_BYTES = 20 * 2**20


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one small checkpoint, beside files that must not be fetched."""
    running = Hub(
        repo=REPO,
        files={
            "config.json": b'{"model_type": "qwen3_tts"}',
            "model.safetensors": os.urandom(5000),
            "speech_tokenizer/config.json": b"{}",
            "speech_tokenizer/model.safetensors": os.urandom(3000),
            "merges.txt": b"#version: 0.2\n",
            "pytorch_model.bin": b"a pickle",
            "modeling.py": b"raise SystemExit",
        },
    )
    server = running.run()
    monkeypatch.setenv("HF_ENDPOINT", running.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield running
    running.resumed.set()
    server.shutdown()
    server.server_close()


def stored_bytes(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_download_holds_the_checkpoint_and_nothing_executable(hub: Hub, tmp_path: Path) -> None:
    seen: list[DownloadProgress] = []

    folder = resolve_model(REPO, progress=seen.append)

    wanted = {name: content for name, content in hub.files.items() if not name.endswith((".bin", ".py"))}
    assert stored_bytes(folder) == wanted
    assert folder.is_relative_to(tmp_path / "huggingface")
    assert {name for name, _ in hub.downloads()} == set(wanted)
    assert seen[-1].bytes_done == seen[-1].bytes_total == sum(map(len, wanted.values()))
    assert [each.bytes_done for each in seen] == sorted(each.bytes_done for each in seen)


def test_a_token_goes_to_the_hub_and_not_to_where_it_redirects(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_person")
    resolve_model(REPO)
    to_others = {token for path, token in hub.authorizations if path.startswith("/cdn/")}
    to_the_hub = {token for path, token in hub.authorizations if not path.startswith("/cdn/")}
    assert to_others == {None}
    assert to_the_hub == {"Bearer hf_of_a_person"}


def test_what_is_here_needs_no_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = resolve_model(REPO)
    num_requests = len(hub.requests)

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert resolve_model(REPO) == folder
    assert len(hub.requests) == num_requests

    (folder / "model.safetensors").unlink()
    with pytest.raises(DownloadError, match="not on this machine"):
        resolve_model(REPO)


def test_a_stopped_download_goes_on_where_it_was(hub: Hub) -> None:
    hub.files["model.safetensors"] = WEIGHTS
    hub.stall_after_bytes = PARTIAL_BYTES
    seen: list[DownloadProgress] = []

    with pytest.raises(DownloadCancelled, match="What has arrived is kept"):
        resolve_model(REPO, progress=seen.append, cancel=lambda: bool(seen) and seen[-1].bytes_done >= PARTIAL_BYTES)
    assert seen[-1].file == "model.safetensors"

    hub.stall_after_bytes = None
    hub.requests.clear()
    seen.clear()
    folder = resolve_model(REPO, progress=seen.append)

    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert hub.downloads() == [("model.safetensors", f"bytes={PARTIAL_BYTES}-")]
    assert seen[0].bytes_done > PARTIAL_BYTES


@pytest.mark.parametrize(
    ("is_right", "ignores_ranges", "expected_ranges"),
    [(True, True, ["bytes=4000-"]), (False, False, ["bytes=4000-", None])],
    ids=["a hub without ranges", "a wrong beginning"],
)
def test_a_file_that_cannot_be_continued_is_begun_again(
    hub: Hub, tmp_path: Path, is_right: bool, ignores_ranges: bool, expected_ranges: list[str | None]
) -> None:
    content = hub.files["model.safetensors"]
    digest = hub.entry("model.safetensors")["lfs"]["sha256"]
    partial = tmp_path / "huggingface/hub/models--Someone--tiny-tts/blobs" / f"{digest}.incomplete"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(content[:4000] if is_right else b"\0" * 4000)
    hub.ignores_ranges = ignores_ranges

    folder = resolve_model(REPO)

    assert (folder / "model.safetensors").read_bytes() == content
    assert [byte_range for name, byte_range in hub.downloads() if name == "model.safetensors"] == expected_ranges


@pytest.mark.parametrize("served", [b"\1" * 5000, b"\1" * 4000], ids=["content", "length"])
def test_a_file_that_is_not_what_the_hub_announced_is_refused(hub: Hub, tmp_path: Path, served: bytes) -> None:
    hub.served_instead["model.safetensors"] = served

    with pytest.raises(DownloadError, match=r"model\.safetensors of Someone/tiny-tts arrived damaged"):
        resolve_model(REPO)

    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes() == served]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"info_error": (401, "RepoNotFound")}, "has no model Someone/tiny-tts, or it is private"),
        ({"info_error": (403, "")}, "refused the request for Someone/tiny-tts"),
        ({"info_error": (503, "")}, r"The hub failed while .* \(status 503\)"),
        ({"file_error": (401, "GatedRepo")}, "is gated: accept its terms"),
    ],
)
def test_a_refusal_is_explained(hub: Hub, fault: dict[str, tuple[int, str]], message: str) -> None:
    for name, value in fault.items():
        setattr(hub, name, value)
    with pytest.raises(DownloadError, match=message):
        resolve_model(REPO)


def test_a_revision_can_be_asked_for(hub: Hub) -> None:
    with pytest.raises(DownloadError, match="no such revision"):
        resolve_model(REPO, revision="no-such-branch")
    assert resolve_model(REPO, revision=COMMIT).name == COMMIT


def test_two_programs_fetch_a_model_once(hub: Hub) -> None:
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(resolve_model, [REPO, REPO])
    assert one == other
    assert sorted(hub.downloads()) == sorted((name, None) for name in stored_bytes(one))


def test_a_download_does_not_outlive_the_program_that_wanted_it(hub: Hub) -> None:
    hub.files["model.safetensors"] = WEIGHTS
    hub.stall_after_bytes = PARTIAL_BYTES
    with subprocess.Popen(
        [sys.executable, "-m", "training.model.hub.download", REPO, ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=PROJECT_FOLDER,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        next(line for line in child.stdout if b'"model.safetensors"' in line)
        child.stdin.close()
        assert child.wait(timeout=60) == 1


def test_another_kind_of_model_is_refused_before_its_weights_come(hub: Hub) -> None:
    del hub.files["speech_tokenizer/model.safetensors"]
    del hub.files["model.safetensors"]
    with pytest.raises(DownloadError, match=r"it has no model\.safetensors and no speech_tokenizer/"):
        resolve_model(REPO)
    assert hub.downloads() == []


def test_a_model_larger_than_the_disk_is_refused_before_it_comes(hub: Hub) -> None:
    hub.claimed_bytes["model.safetensors"] = 10**16
    with pytest.raises(DownloadError, match=r"needs 10000000\.\d GB more .* set HF_HOME"):
        resolve_model(REPO)
    assert hub.downloads() == []


def test_without_a_network_the_message_says_what_to_put_where(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(DownloadError, match=r"cannot be reached .*hf download Someone/tiny-tts --local-dir"):
        resolve_model(REPO)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DownloadError, match=r"HF_HUB_OFFLINE forbids .* give its path as the model"):
        resolve_model(REPO)


def test_a_child_that_cannot_start_is_reported(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken" / "filelock.py"
    broken.parent.mkdir()
    broken.write_text("raise ImportError('no such lock')")
    monkeypatch.setenv("PYTHONPATH", str(broken.parent))
    with pytest.raises(DownloadError, match="ended unexpectedly: ImportError: no such lock"):
        resolve_model(REPO)


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
