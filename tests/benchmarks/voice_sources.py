"""The people a voice benchmark clones: engine voices that say every sentence themselves, for comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.audio.recording import Recording
from tests.benchmarks.second_verifier import load_second_verifier
from training.model.speaker_verifier import SpeakerVerifier
from training.pretrain.corpus import tts_engines as engines
from training.pretrain.corpus.speakers import Speaker, by_name, training_speakers, unseen_voice

SEEN_SPEAKERS = ("slt", "awb", "slt-040", "awb-040")
"""Two engine voices as they are and two made of them; the embedded model learnt from all four."""

REFERENCE_SENTENCES = (
    "My brother brings the milk, and we drink our coffee by the door.",
    "Still, I look for the light every night before I go to bed.",
)
_OTHER_SENTENCES = (
    "We rang the bell for four hours until the crew was safe.",
    "How many pieces do you think there were?",
)
_NUM_OTHERS = 10
_PAUSE_SECONDS = 0.4


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """One person: the recording to clone from, and how the verifier knows them."""

    name: str
    say: Callable[[str], NDArray[np.float32]]
    """What this person says themselves, at the corpus's rate."""
    recording: Recording
    transcript: str
    profile: NDArray[np.float32]
    second_profile: NDArray[np.float32] | None
    """How the second verifier knows them, where it is installed."""


def seen_sources(verifier: SpeakerVerifier) -> list[Source]:
    """People the embedded model knows."""
    return [_source(by_name()[name], verifier) for name in SEEN_SPEAKERS]


def unseen_sources(verifier: SpeakerVerifier) -> list[Source]:
    """The one person it has never heard."""
    return [_source(unseen_voice(), verifier)]


def other_profiles(verifier: SpeakerVerifier) -> list[NDArray[np.float32]]:
    """How the verifier knows ten people who are none of the sources."""
    people = [speaker for speaker in training_speakers() if speaker.name not in SEEN_SPEAKERS]
    chosen = people[:: len(people) // _NUM_OTHERS][:_NUM_OTHERS]
    return [profile([_say(speaker, text) for text in _OTHER_SENTENCES], verifier) for speaker in chosen]


def profile(sounds: list[NDArray[np.float32]], verifier: SpeakerVerifier) -> NDArray[np.float32]:
    """The mean direction of a person's utterances."""
    mean = np.mean([verifier.embed(sound) for sound in sounds], axis=0)
    return np.asarray(mean / np.linalg.norm(mean), np.float32)


def source_of(
    name: str,
    say: Callable[[str], NDArray[np.float32]],
    verifier: SpeakerVerifier,
    references: Sequence[str],
    others: Sequence[str] = _OTHER_SENTENCES,
) -> Source:
    """A person as the benchmark knows them, who can say these texts at least."""
    spoken = [say(text) for text in references]
    pause = np.zeros(int(_PAUSE_SECONDS * engines.SAMPLE_RATE_HZ), np.float32)
    samples = np.concatenate([part for sound in spoken for part in (pause, sound)][1:])
    rate_hz = engines.SAMPLE_RATE_HZ
    recording = Recording(
        samples=samples,
        sample_rate=rate_hz,
        source_name=name,
        source_sample_rate=rate_hz,
        source_channels=1,
        source_seconds=len(samples) / rate_hz,
        container="none",
        codec="none",
    )
    known = [*spoken, *(say(text) for text in others)]
    second = load_second_verifier()
    return Source(
        name=name,
        say=say,
        recording=recording,
        transcript=" ".join(references),
        profile=profile(known, verifier),
        second_profile=None if second is None else profile(known, second),
    )


def _source(speaker: Speaker, verifier: SpeakerVerifier) -> Source:
    return source_of(speaker.name, lambda text: _say(speaker, text), verifier, REFERENCE_SENTENCES)


def _say(speaker: Speaker, text: str) -> NDArray[np.float32]:
    return engines.synthesize(speaker, text).astype(np.float32) / np.float32(32768)
