"""One folder with everything people really have: every container, every fault, every bad file, and a second speaker."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from backend.audio.canonical import CANONICAL_HZ
from backend.audio.resample import resample
from backend.audio.writing import write_wav
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.views import BuildState, ClipRow, DatasetView
from backend.dataset.datasets import Datasets
from backend.store.home import Home
from tests.backend.audio.sounds import FORMATS, Format, encode, write_raw_wav, write_silent_flac
from tests.backend.dataset.spoken import speak

pytestmark = pytest.mark.needs_program("flite")

# 3GP has the sound of a telephone, which is a fault of its own.
CONTAINERS = [form for form in FORMATS if form.suffix != "3gp"]
ODD_NAME = 'it\'s "quoted" \U0001f399; rm -rf.wav'
SENTENCES = (
    "The birch canoe slid on the smooth planks.",
    "Glue the sheet to the dark blue background.",
    "These days a chicken leg is a rare dish.",
    "The box was thrown beside the parked truck.",
    "The hogs were fed chopped corn and garbage.",
    "A large size in stockings is hard to sell.",
    "The source of the huge river is the clear spring.",
    "Kick the ball straight and follow through.",
    "A pot of tea helps to pass the evening.",
    "Smoky fires lack flame and heat in the winter.",
    "The soft cushion broke the fall of the man.",
    "The salt breeze came across from the sea.",
    "The girl at the booth sold fifty bonds.",
    "The small pup gnawed a hole in the sock.",
    "The fish twisted and turned on the bent hook.",
)
FAULTY = (
    "Press the pants and sew a button on the vest.",
    "The swan dive was far short of perfect.",
    "The beauty of the view stunned the young boy.",
    "Two blue fish swam in the big round tank.",
    "Her purse was full of useless trash and paper.",
)


def utter(folder: Path, text: str, voice: str = "slt") -> NDArray[np.float32]:
    samples, rate = soundfile.read(speak(folder / "one.wav", text, voice), dtype="float32")
    return resample(samples, rate, CANONICAL_HZ)


def write_containers(folder: Path, scratch: Path) -> None:
    """A sentence in each container."""
    for text, form in zip(SENTENCES, CONTAINERS, strict=True):
        sound = resample(utter(scratch, text), CANONICAL_HZ, form.rate)
        encode(folder / f"{form.suffix} {form.codec}.{form.suffix}", sound, form)
        (folder / f"{form.suffix} {form.codec}.txt").write_text(text)


def write_faults(folder: Path, scratch: Path) -> None:
    """A sentence with each fault, and two by a stranger."""
    noisy, clipped, called, *strange = (
        utter(scratch, text, "slt" if index < 3 else "awb") for index, text in enumerate(FAULTY)
    )
    level = float(np.sqrt(np.mean(np.square(noisy))))
    sounds = {
        "noisy": noisy + np.random.default_rng(0).normal(scale=level, size=len(noisy)).astype(np.float32),
        "clipped": np.clip(clipped * 40, -1, 1),
        "telephone": resample(resample(called, CANONICAL_HZ, 8_000), 8_000, CANONICAL_HZ),
        "stranger one": strange[0],
        "stranger two": strange[1],
    }
    for (name, sound), text in zip(sounds.items(), FAULTY, strict=True):
        write_wav(folder / f"{name}.wav", sound, CANONICAL_HZ)
        (folder / f"{name}.txt").write_text(text)


def write_bad_files(folder: Path) -> None:
    """What is no recording, or none that can be used."""
    (folder / "empty.wav").touch()
    (folder / "letter.mp3").write_text("This is a letter, and not a recording. " * 40)
    whole = (folder / "m4a aac.m4a").read_bytes()
    (folder / "truncated.m4a").write_bytes(whole[: len(whole) * 2 // 3])
    write_silent_flac(folder / "hours of silence.flac", minutes=180)
    write_raw_wav(folder / "channels.wav", np.zeros(1024 * 100, np.int16), channels=1024)
    write_raw_wav(folder / "not a number.wav", np.full(48_000, np.nan, np.float32))
    write_raw_wav(folder / "fast.wav", np.zeros(48_000, np.int16), rate=4_000_000_000)
    write_raw_wav(folder / "slow.wav", np.zeros(48_000, np.int16), rate=1)
    # The button was let go at once.
    write_raw_wav(folder / "blink.wav", np.full(240, 3_000, np.int16))
    (folder / "blink.txt").write_text("Blink.")


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory, job: Callable[..., BuildJob]) -> DatasetView:
    """The dataset made of it, by the embedded model's scorers, which know voices."""
    root = tmp_path_factory.mktemp("people")
    folder = root / "everything"
    folder.mkdir()
    write_containers(folder, root)
    write_faults(folder, root)
    write_bad_files(folder)
    (folder / ODD_NAME).write_bytes(speak(root / "odd.wav", "Tea is served at five in the garden.").read_bytes())
    (folder / ODD_NAME).with_suffix(".txt").write_text("Tea is served at five in the garden.")
    (root / "nothing").mkdir()
    with zipfile.ZipFile(root / "evil.zip", "w") as archive:
        archive.writestr("../../out.wav", (root / "odd.wav").read_bytes())
    paths = [folder, root / "nothing", root / "evil.zip"]
    return Datasets(Home(root / "home")).build(job(paths, model="mini", max_hours=0.2))


def clip_of(view: DatasetView, name: str) -> ClipRow:
    return next(clip for clip in view.clips if Path(clip.details.recording_name).name == name)


@pytest.mark.parametrize("form", CONTAINERS, ids=lambda form: f"{form.suffix} {form.codec}")
def test_every_container_becomes_a_clip(view: DatasetView, form: Format):
    clip = clip_of(view, f"{form.suffix} {form.codec}.{form.suffix}")
    assert clip.text in SENTENCES
    assert clip.verdict is not Verdict.REJECTED, clip.reasons
    assert clip.details.is_tokenized


@pytest.mark.parametrize(
    ("name", "gate"),
    [
        ("noisy.wav", "noise"),
        ("clipped.wav", "clipping"),
        ("telephone.wav", "bandwidth"),
        ("stranger one.wav", "speaker"),
        ("stranger two.wav", "speaker"),
    ],
)
def test_every_fault_is_found_by_its_gate(view: DatasetView, name: str, gate: str):
    clip = clip_of(view, name)
    assert clip.verdict is Verdict.REJECTED
    assert gate in {result.gate for result in clip.details.gates if result.verdict is Verdict.REJECTED}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("everything/empty.wav", "is empty"),
        ("everything/letter.mp3", "not a kind of audio file"),
        ("everything/truncated.m4a", "is damaged"),
        ("everything/hours of silence.flac", "is too long"),
        ("everything/channels.wav", "too many channels"),
        ("everything/not a number.wav", "not numbers"),
        ("everything/fast.wav", "sample rate of 4000000000 Hz"),
        ("everything/slow.wav", "sample rate of 1 Hz"),
        ("nothing", "holds no recordings"),
        ("evil.zip/../../out.wav", "leads out of the archive"),
    ],
)
def test_every_bad_file_is_a_row_with_a_reason(view: DatasetView, name: str, reason: str):
    recording = next(each for each in view.recordings if each.name == name)
    assert reason in recording.problem
    assert "\n" not in recording.problem
    assert recording.num_clips == 0


def test_an_odd_name_is_a_name_and_nothing_else_is_lost(view: DatasetView):
    assert view.state is BuildState.DONE
    assert clip_of(view, ODD_NAME).verdict is not Verdict.REJECTED
    assert len(view.clips) == len(SENTENCES) + len(FAULTY) + 2


def test_a_blink_is_too_short_and_no_fault_of_ours(view: DatasetView):
    clip = clip_of(view, "blink.wav")
    assert clip.verdict is Verdict.REJECTED
    assert any("Lasts only 0.0 s" in reason for reason in clip.reasons)
    assert not any("fault" in reason for each in view.clips for reason in each.reasons)
