"""From real sound to clips: what is cut out holds exactly the sentences that its text says, first sound to last."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from backend.audio.loudness import audible_range, measure_loudness, normalise_loudness, trim_silence
from backend.audio.voice_activity import find_speech
from backend.dataset.segmentation.segment import Segment, SegmentSettings, segment_speech
from backend.transcription.transcript import Word
from tests.backend.audio.sounds import Samples
from tests.backend.audio.speech import FLITE_HZ, speak, with_pauses

SENTENCES = (
    "The train to the coast leaves at seven in the morning.",
    "Please bring warm clothes, because the wind is cold.",
    "Yes.",
    "We have not decided yet who will stay at home with the dogs.",
    "Lists of guests exist.",
    "Nobody knows what happens after that.",
)


@dataclass(frozen=True)
class Spoken:
    """A recording of SENTENCES; `places` are the seconds in which each can be heard."""

    samples: Samples
    places: list[tuple[float, float]]

    def words(self, *, has_gaps: bool) -> list[Word]:
        """Words at even steps; without gaps the last one of a sentence is said to last until the next begins."""
        found = []
        for index, (sentence, (start, end)) in enumerate(zip(SENTENCES, self.places, strict=True)):
            words = sentence.split()
            edges = np.linspace(start, end, len(words) + 1).tolist()
            if not has_gaps and index + 1 < len(self.places):
                edges[-1] = self.places[index + 1][0]
            found += [
                Word(text=word, start_seconds=edges[position], end_seconds=edges[position + 1])
                for position, word in enumerate(words)
            ]
        return found


@pytest.fixture(scope="module", params=[0.35, 1.0], ids=["short pauses", "long pauses"])
def spoken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Spoken:
    folder: Path = tmp_path_factory.mktemp("spoken")
    utterances = [trim_silence(speak(folder, text), FLITE_HZ, keep_seconds=0.0) for text in SENTENCES]
    samples, places = with_pauses(utterances, request.param)
    noise = 0.0005 * np.random.default_rng(0).standard_normal(len(samples)).astype(np.float32)
    return Spoken(samples + noise, places)


def sentences_in(spoken: Spoken, segment: Segment) -> list[str]:
    """The sentences that lie in a segment whole; none may lie in it in part."""
    found = []
    for sentence, (start, end) in zip(SENTENCES, spoken.places, strict=True):
        if segment.start_seconds <= start and end <= segment.end_seconds:
            found.append(sentence)
        else:
            assert end <= segment.start_seconds or segment.end_seconds <= start, f"{sentence} is divided"
    return found


@pytest.mark.needs_program("flite")
@pytest.mark.parametrize("has_gaps", [True, False])
def test_a_clip_holds_what_its_text_says(spoken: Spoken, has_gaps: bool) -> None:
    seconds = len(spoken.samples) / FLITE_HZ
    settings = SegmentSettings(max_seconds=9.0)
    found = segment_speech(find_speech([spoken.samples]), spoken.words(has_gaps=has_gaps), seconds, settings)
    assert len(found.segments) >= 2
    for segment in found.segments:
        assert segment.text == " ".join(sentences_in(spoken, segment))
    lost = " ".join(word.text for leftover in found.leftovers for word in leftover.words)
    assert lost in ("", "Yes.")  # a second away from everything else it is too short for a clip


@pytest.mark.needs_program("flite")
def test_without_words_the_cuts_are_in_the_same_pauses(spoken: Spoken) -> None:
    seconds = len(spoken.samples) / FLITE_HZ
    found = segment_speech(find_speech([spoken.samples]), None, seconds)
    covered = {sentence for segment in found.segments for sentence in sentences_in(spoken, segment)}
    assert covered >= {sentence for sentence in SENTENCES if len(sentence) > 30}
    assert all(segment.text is None for segment in found.segments)


@pytest.mark.needs_program("flite")
def test_a_finished_clip_is_level_and_tight(spoken: Spoken) -> None:
    seconds = len(spoken.samples) / FLITE_HZ
    for segment in segment_speech(find_speech([spoken.samples]), None, seconds).segments:
        cut = spoken.samples[round(segment.start_seconds * FLITE_HZ) : round(segment.end_seconds * FLITE_HZ)]
        clip = normalise_loudness(trim_silence(cut, FLITE_HZ), FLITE_HZ).samples
        assert measure_loudness(clip, FLITE_HZ) == pytest.approx(-23.0, abs=0.5)
        assert np.abs(clip).max() <= 10 ** (-1 / 20) + 1e-4
        begin, end = audible_range(clip, FLITE_HZ, keep_seconds=0.0)
        assert begin / FLITE_HZ <= 0.13
        assert (len(clip) - end) / FLITE_HZ <= 0.13
