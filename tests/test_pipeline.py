"""The whole way on the embedded model: `app.py pipeline` makes a voice and its report of a sample recording, on Ray."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
import soundfile

from backend.cluster.size import ask_cluster
from backend.runs.process.supervisor_process import end_owner
from backend.runs.runs import Runs
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.states import RunState
from backend.store.home import Home
from backend.voices.registry import Voices
from training.export import KINDS
from training.model.voice_model import VoiceModel

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")]

PROJECT = Path(__file__).parents[1]
SAMPLES = PROJECT / "assets" / "voices"
NUM_SENTENCES, NUM_STEPS = 4, 2
# Most of it is a machine that does much else; a quiet one needs a tenth.
DEADLINE_SECONDS = 900


@pytest.fixture
def cluster() -> Iterator[str]:
    """A Ray that runs already: every part of the pipeline joins it."""
    import ray  # noqa: PLC0415 - seconds to load, and only this tier needs it

    with pytest.MonkeyPatch.context() as patch:
        # Ray's workers step back behind everything else, which on a busy machine means that they stand still.
        patch.setenv("RAY_worker_niceness", "0")
        ray.init(address="local", num_cpus=5, include_dashboard=True, log_to_driver=False, namespace="pipeline-tests")
        # What somebody else holds on the cluster, and goes on holding.
        held = ray.util.placement_group([{"CPU": 1}])
        assert held.wait(60)
        yield ray.get_runtime_context().gcs_address
        assert ray.util.placement_group_table(held)["state"] == "CREATED"
        ray.shutdown()


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """The first sentences of a sample voice, a file with its transcript each."""
    voice = json.loads((SAMPLES / "voices.json").read_text(encoding="utf-8"))["voices"][0]
    samples, rate = soundfile.read(SAMPLES / voice["recording"])
    folder = tmp_path / "recordings"
    folder.mkdir()
    for number, sentence in enumerate(voice["sentences"][:NUM_SENTENCES]):
        begin, end = (round(sentence[f"{side}_seconds"] * rate) for side in ("start", "end"))
        soundfile.write(folder / f"{number}.wav", samples[begin:end], rate)
        (folder / f"{number}.txt").write_text(sentence["text"], encoding="utf-8")
    return folder


class Page(HTMLParser):
    """What a report consists of."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.labels: list[str] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attributes if name in ("src", "href", "srcset", "data")]
        self.labels += [value or "" for name, value in attributes if name == "aria-label"]

    def handle_data(self, content: str) -> None:
        self.text += content


def run_pipeline(recordings: Path, home: Path, report: Path, address: str) -> None:
    arguments = ["pipeline", recordings, "--voice", "Iris", "--model", "mini", "--preset", "quick", "--whisper", "none"]
    arguments += ["--strategy", "fsdp2", "--workers", "2", "--min-workers", "1", "--max-failures", "2"]
    arguments += ["--consent", "own-voice", "--consent-by", "Nobody", "--report", report]
    options = {"num_steps": NUM_STEPS, "checkpoint_every": NUM_STEPS, "num_held_out": 1, "num_standard": 0}
    for name, value in options.items():
        arguments += ["--set", f"{name}={value}"]
    done = subprocess.run(
        [sys.executable, "app.py", *map(str, arguments)],
        cwd=PROJECT,
        env={**os.environ, "ENCORE_HOME": str(home), "RAY_ADDRESS": address},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    logs = [path.read_text(encoding="utf-8", errors="replace")[-3000:] for path in home.glob("runs/*/log.txt")]
    assert done.returncode == 0, "\n".join([done.stdout[-3000:], *logs])
    assert f"Report: {report}" in done.stdout


def test_recordings_become_a_voice_with_a_report(cluster: str, recordings: Path, tmp_path: Path) -> None:
    home, path = tmp_path / "home", tmp_path / "report.html"
    runs = Runs(Home(home))
    try:
        size = ask_cluster(cluster)
        assert (size.num_machines, size.num_cpus, size.free_cpus, size.num_gpus) == (1, 5, 4, 0)
        run_pipeline(recordings, home, path, cluster)
    finally:
        for run in runs.list():
            end_owner(run, RunFolder.of(home, run.id))
    check_run(runs, home)
    check_report(path)


def check_run(runs: Runs, home: Path) -> None:
    """One run is done, judged beside its base model, and has become a voice that speaks under its name."""
    (run,) = runs.list()
    assert (run.state, run.step, run.num_workers) == (RunState.DONE, NUM_STEPS, 2)
    assert run.best_checkpoint == f"step-{NUM_STEPS:08d}"
    judged = {point.name: point.scores for point in runs.checkpoints(run.id)}
    assert judged.keys() == {"base", run.best_checkpoint}
    for scores in judged.values():
        # The offline transcriber and the verifier listened; how well the voice does is no matter of two steps.
        assert scores is not None
        assert scores.character_error is not None
        assert scores.speaker_similarity is not None
    voice = Voices(Home(home)).get("Iris")
    assert voice.run_id == run.id
    assert voice.variants.keys() == set(KINDS)
    custom = VoiceModel.load(voice.variants["custom_voice"], precision="fp32", device="cpu")
    assert custom.config.talker.spk_id.keys() == {"iris"}


def check_report(path: Path) -> None:
    """Loss curves, scores and players are in the page, and everything they need with them."""
    page = Page(path)
    assert [label for label in page.labels if label.startswith("Loss per frame: talker loss, code predictor loss")]
    assert page.tags.count("svg") == 3
    for told in ("Base model, zero-shot", f"Step {NUM_STEPS}", "Characters wrong", "★ best"):
        assert told in page.text
    players = [label.partition(":")[0] for label in page.labels if label.startswith(("Base model", "Fine-tuned"))]
    assert players == ["Base model", "Fine-tuned"]
    assert page.tags.count("audio") == len(page.references) == len(players)
    for reference in page.references:
        kind, _, sound = reference.partition(";base64,")
        assert kind == "data:audio/wav"
        samples, _ = soundfile.read(io.BytesIO(base64.b64decode(sound)))
        assert samples.std() > 0
    assert not {"script", "link", "iframe", "img"} & set(page.tags)
    assert not re.search(r"url\(|@import|https?://", path.read_text(encoding="utf-8"))
