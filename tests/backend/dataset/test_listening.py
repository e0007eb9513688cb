"""Recordings without any text, a real listener, and a person's corrections: what happens on a fresh machine."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from backend.audio.canonical import CANONICAL_HZ
from backend.audio.decoding import decode_recording
from backend.audio.writing import write_wav
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.views import DatasetView
from backend.dataset.datasets import Datasets
from backend.dataset.errors import EditInvalid
from backend.store.home import Home
from backend.transcription.select_transcriber import PocketsphinxSource
from tests.backend.transcription.conftest import SMALL_WHISPER

VOICES = Path(__file__).parents[3] / "assets" / "voices"
# A moment between two sentences of the sample recording.
LISTENED_SECONDS = 11.4


@pytest.fixture(scope="module")
def heard_home(tmp_path_factory: pytest.TempPathFactory, job: Callable[..., BuildJob]) -> Path:
    """A home with the beginning of a sample voice, written down by whoever the product finds; not to be changed."""
    folder = tmp_path_factory.mktemp("iris")
    samples = decode_recording(VOICES / "iris.flac", sample_rate=CANONICAL_HZ).samples
    write_wav(folder / "iris.wav", samples[: round(LISTENED_SECONDS * CANONICAL_HZ)], CANONICAL_HZ)
    home = tmp_path_factory.mktemp("heard-home")
    patch = pytest.MonkeyPatch()
    # An empty place for Whisper's downloads, as on a fresh machine.
    patch.setenv("XDG_CACHE_HOME", str(home / "downloads"))
    Datasets(Home(home)).build(job(folder, whisper=None))
    patch.undo()
    return home


@pytest.fixture
def heard(heard_home: Path, tmp_path: Path) -> Datasets:
    """The verbs, over a copy."""
    home = shutil.copytree(heard_home, tmp_path / "home")
    return Datasets(Home(home))


@pytest.fixture
def view(heard: Datasets) -> DatasetView:
    return heard.show("ann")


def test_pocketsphinx_transcribes_and_says_so(view: DatasetView):
    assert "pocketsphinx transcribes" in view.notice
    assert view.digest is not None
    assert view.clips
    for clip in view.clips:
        assert clip.details.text_source == "whisper"
        assert clip.text == clip.details.current.heard != ""
        assert clip.details.is_tokenized
        gates = {result.gate for result in clip.details.gates}
        # Its probabilities are no Whisper's, and are not judged as such.
        assert "speaking rate" in gates
        assert "confidence" not in gates
        assert clip.details.current.confidence is None


def test_no_sentence_is_cut_through_and_no_speech_is_lost_silently(view: DatasetView):
    """Where the sentences are is known; what was heard in them need not be right for that."""
    iris = next(
        voice for voice in json.loads((VOICES / "voices.json").read_text())["voices"] if voice["name"] == "iris"
    )
    spans = [clip.details.current.span for clip in view.clips]
    lost = [each.span for recording in view.recordings for each in recording.details.lost]
    for sentence in iris["sentences"]:
        if sentence["end_seconds"] > LISTENED_SECONDS:
            break
        middle = (sentence["start_seconds"] + sentence["end_seconds"]) / 2
        home = next(span for span in spans + lost if span.start_seconds <= middle < span.end_seconds)
        if home in spans:
            assert home.start_seconds <= sentence["start_seconds"] + 0.05, sentence
            assert home.end_seconds >= sentence["end_seconds"] - 0.05, sentence
    for before, after in itertools.pairwise(spans):
        assert before.end_seconds <= after.start_seconds


def test_words_are_where_their_clip_is(view: DatasetView):
    """Each word that was heard in the recording is in the text of one clip or in what was left out."""
    (recording,) = view.recordings
    heard = recording.details.heard
    assert heard is not None
    kept = " ".join(clip.text for clip in view.clips).split()
    lost = [word.text for each in recording.details.lost for word in heard.excerpt(each.span).words]
    assert sorted(kept + lost) == sorted(heard.text.split())


def test_listening_again_shows_only_what_changed(heard: Datasets, view: DatasetView):
    told: list[tuple[int, int]] = []
    for change in heard.retranscribe("ann", progress=lambda done, total: told.append((done, total))):
        # Cut out of its recording a clip may be heard in another way.
        assert change.before == next(clip.text for clip in view.clips if clip.key == change.key) != change.after
        heard.edit_text("ann", change.key, change.after)
    assert told == [(number + 1, len(view.clips)) for number in range(len(view.clips))]
    first = heard.show("ann").clips[0]
    heard.edit_text("ann", first.key, "Something quite different was said here, it seems.")
    (change,) = heard.retranscribe("ann")
    assert (change.key, change.before) == (first.key, "Something quite different was said here, it seems.")
    assert 0 < change.confidence <= 1
    assert heard.show("ann").clips[0].text == change.before
    heard.edit_text("ann", first.key, change.after)
    assert heard.retranscribe("ann", [first.key], whisper=str(SMALL_WHISPER)) == []


def test_what_a_person_decided_stays_when_another_listens(
    heard: Datasets, view: DatasetView, heard_home: Path, tmp_path: Path, job: Callable[..., BuildJob]
):
    """Another transcriber cuts elsewhere; clips that were corrected stay, and the others are cut around them."""
    first, second = view.clips[:2]
    folder = next(path for path in heard_home.parent.glob("iris*") if (path / "iris.wav").is_file())
    plain = Datasets(Home(tmp_path / "plain")).build(job(folder, whisper=str(SMALL_WHISPER)))
    # Otherwise nothing is shown here.
    assert not {first.key, second.key} <= {clip.key for clip in plain.clips}
    heard.edit_text("ann", first.key, "What she really says.")
    heard.overrule("ann", second.key, Verdict.REJECTED)
    span = second.details.current.span
    heard.move_cut("ann", second.key, span.start_seconds + 0.1, span.end_seconds)
    again = heard.build(job(folder, whisper=str(SMALL_WHISPER)))
    kept = {clip.key: clip for clip in again.clips}
    assert (kept[first.key].text, kept[first.key].details.text_source) == ("What she really says.", "person")
    assert kept[first.key].details.current.span == first.details.current.span
    assert kept[second.key].verdict is Verdict.REJECTED
    assert kept[second.key].details.current.span.start_seconds == pytest.approx(span.start_seconds + 0.1)
    assert again.transcribers == (SMALL_WHISPER.name,)
    spans = [clip.details.original.span for clip in again.clips]
    for before, after in itertools.pairwise(spans):
        assert before.end_seconds <= after.start_seconds
    # Whoever listened before is found again, and so is what was decided.
    back = heard.build(job(folder, whisper=None))
    assert {first.key, second.key} <= {clip.key for clip in back.clips}


def test_an_update_of_the_listener_renews_transcripts():
    source = PocketsphinxSource()
    assert version("pocketsphinx") in source.identity
    assert source.name == "pocketsphinx"


def test_without_a_transcriber_nothing_is_transcribed_again(heard: Datasets):
    with pytest.raises(EditInvalid, match="name a Whisper model"):
        heard.retranscribe("ann", whisper="none")
