"""The people a voice benchmark clones: engine voices that say every sentence themselves, for comparison."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.audio.recording import Recording
from backend.evaluation.speaker_verifier import SpeakerVerifier
from training.pretrain.corpus import tts_engines as engines
from training.pretrain.corpus.sample_voices import join
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

    speaker: Speaker
    recording: Recording
    transcript: str
    profile: NDArray[np.float32]

    def say(self, text: str) -> NDArray[np.float32]:
        """What this person says themselves, at the corpus's rate."""
        return _say(self.speaker, text)


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


def _source(speaker: Speaker, verifier: SpeakerVerifier) -> Source:
    spoken = [(_say(speaker, text), text) for text in REFERENCE_SENTENCES]
    piece = join(spoken, [0.0, _PAUSE_SECONDS], 0.0)
    rate_hz = engines.SAMPLE_RATE_HZ
    recording = Recording(
        samples=piece.samples,
        sample_rate=rate_hz,
        source_name=speaker.name,
        source_sample_rate=rate_hz,
        source_channels=1,
        source_seconds=len(piece.samples) / rate_hz,
        container="none",
        codec="none",
    )
    known = profile([*(sound for sound, _ in spoken), *(_say(speaker, text) for text in _OTHER_SENTENCES)], verifier)
    return Source(speaker=speaker, recording=recording, transcript=" ".join(REFERENCE_SENTENCES), profile=known)


def _say(speaker: Speaker, text: str) -> NDArray[np.float32]:
    return engines.synthesize(speaker, text).astype(np.float32) / np.float32(32768)
