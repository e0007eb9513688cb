"""Twenty minutes whose words are known, from the file to the training set: every clip holds what its text says."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from backend.audio.canonical import CANONICAL_HZ
from backend.audio.resample import resample
from backend.audio.span import Span
from backend.audio.writing import write_wav
from backend.dataset.build import build
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.views import BuildState, ClipRow
from backend.dataset.datasets import Datasets
from backend.dataset.segmentation.segment import segment_speech
from backend.dataset.segmentation.text_at_pauses import lay_text
from backend.store.home import Home
from backend.transcription.select_transcriber import SelectedTranscriber
from backend.transcription.transcript import Word
from tests.backend.dataset.recorded_words import RecordedTranscriber, words_between
from tests.backend.dataset.spoken import speak

MINUTES = 20
# Speaking faster or slower makes other sounds of the same sentences.
SPEEDS = (0.88, 0.96, 1.04, 1.12)
PEOPLE = ("farmer", "sailor", "teacher", "doctor", "painter", "baker", "hunter", "singer", "soldier", "tailor")
DEEDS = ("carried", "painted", "dropped", "wanted", "counted", "forgot", "borrowed", "polished", "guarded", "moved")
THINGS = ("ladder", "basket", "candle", "wagon", "blanket", "window", "kettle", "hammer", "bottle", "carpet")
AUDIBLE = 10 ** (-40 / 20)


@dataclass(frozen=True, kw_only=True)
class Told:
    """A sentence and when it is audible."""

    text: str
    begin: float
    end: float
    words: tuple[Word, ...]


@dataclass(frozen=True, kw_only=True)
class Story:
    """A recording of many sentences."""

    path: Path
    seconds: float
    sentences: tuple[Told, ...]


def utterances(folder: Path) -> list[tuple[str, NDArray[np.float32]]]:
    """Eighty different sentences without silence around them."""
    spoken = []
    for index in range(80):
        person, deed = PEOPLE[index % 10], DEEDS[(index // 10 + index) % 10]
        thing, place = THINGS[(index * 3 + index // 10) % 10], THINGS[(index * 7 + 1) % 10]
        text = f"The {person} {deed} a {thing}, and nobody saw the {place} near house number {index + 11}."
        samples, rate = soundfile.read(speak(folder / "one.wav", text, "kal16"), dtype="float32")
        heard = np.flatnonzero(np.abs(samples) > AUDIBLE * np.abs(samples).max())
        spoken.append((text, resample(samples[heard[0] : heard[-1] + 1], rate, CANONICAL_HZ)))
    return spoken


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("story")
    generator = np.random.default_rng(3)
    told: list[Told] = []
    parts: list[NDArray[np.float32]] = []
    position = 0
    spoken = utterances(folder)
    for number in itertools.count():
        text, samples = spoken[number % len(spoken)]
        speed = SPEEDS[number // len(spoken) % len(SPEEDS)] + 0.01 * (number // (len(spoken) * len(SPEEDS)))
        samples = resample(samples, round(CANONICAL_HZ * speed), CANONICAL_HZ)
        pause = round(generator.uniform(0.3, 1.3) * CANONICAL_HZ)
        begin, end = (position + pause) / CANONICAL_HZ, (position + pause + len(samples)) / CANONICAL_HZ
        told.append(Told(text=text, begin=begin, end=end, words=words_between(text, begin, end)))
        parts += [np.zeros(pause, np.float32), samples]
        position += pause + len(samples)
        if position >= MINUTES * 60 * CANONICAL_HZ:
            break
    sound = np.concatenate(parts)
    sound += generator.normal(scale=0.0005, size=len(sound)).astype(np.float32)
    write_wav(folder / "story.wav", sound, CANONICAL_HZ)
    return Story(path=folder / "story.wav", seconds=len(sound) / CANONICAL_HZ, sentences=tuple(told))


@pytest.mark.needs_program("flite")
def test_twenty_minutes_become_clips_that_hold_what_their_text_says(
    story: Story, tmp_path: Path, job: Callable[..., BuildJob], monkeypatch: pytest.MonkeyPatch
):
    transcriber = RecordedTranscriber(tuple(word for sentence in story.sentences for word in sentence.words))
    monkeypatch.setattr(build, "select_transcriber", lambda *_, **__: SelectedTranscriber(source=transcriber))
    datasets = Datasets(Home(tmp_path))
    speech = transcriber.follow(tmp_path, job(story.path), story.path)
    view = datasets.build(job(story.path))

    assert view.state is BuildState.DONE
    assert [recording.problem for recording in view.recordings] == [""]
    check_agreement(story, view.clips)
    lost = sum(each.span.end_seconds - each.span.start_seconds for each in view.recordings[0].details.lost)
    assert lost < 0.02 * story.seconds
    assert view.minutes() > 0.6 * MINUTES
    assert view.count(Verdict.REJECTED) < 0.05 * len(view.clips)

    check_given_text(story, speech)

    num_asked = len(transcriber.asked)
    assert datasets.build(job(story.path)).digest == view.digest
    assert [stage.num_done - stage.num_reused for stage in datasets.progress("ann").stages] == [0, 0, 0, 0]
    assert len(transcriber.asked) == num_asked


def check_agreement(story: Story, clips: tuple[ClipRow, ...]) -> None:
    """No sentence is divided, none loses its beginning or its end, and texts are the sentences that are audible."""
    kept = 0
    for clip in clips:
        span = clip.details.current.span
        inside = [one for one in story.sentences if span.start_seconds < (one.begin + one.end) / 2 < span.end_seconds]
        assert clip.text == " ".join(one.text for one in inside)
        assert span.start_seconds <= inside[0].begin + 0.02
        assert span.end_seconds >= inside[-1].end - 0.02
        kept += len(inside)
        others = [one for one in story.sentences if one not in inside]
        assert all(one.end <= span.start_seconds + 0.02 or one.begin >= span.end_seconds - 0.02 for one in others)
        assert 2.0 <= span.end_seconds - span.start_seconds <= 12.0
        # What was trimmed around it was not audible.
        spoken_seconds = inside[-1].end - inside[0].begin
        assert spoken_seconds - 0.02 <= clip.seconds <= spoken_seconds + 0.4
    assert kept > 0.97 * len(story.sentences)


def check_given_text(story: Story, speech: list[Span]) -> None:
    """Whoever listens misses every fifth word, misspells others, and is late or early: the text that came along is
    divided where the sentences are all the same, or not at all."""
    generator = np.random.default_rng(7)
    heard = []
    for word in (word for sentence in story.sentences for word in sentence.words):
        is_missed, is_misspelt = generator.random(2) < (0.2, 0.3)
        letters = "".join(generator.permutation(list(word.text))) if is_misspelt else word.text
        if not is_missed:
            heard.append(replace(word.shifted(generator.normal(scale=0.1)), text=letters))
    text = " ".join(sentence.text for sentence in story.sentences)
    found = segment_speech(speech, lay_text(text, heard, speech), story.seconds)
    kept = 0
    for part in found.segments:
        middles = [(one.begin + one.end) / 2 for one in story.sentences]
        inside = [
            one.text
            for one, middle in zip(story.sentences, middles, strict=True)
            if part.start_seconds < middle < part.end_seconds
        ]
        assert part.text == " ".join(inside)
        kept += len(inside)
    assert kept > 0.8 * len(story.sentences)
