"""pocketsphinx behind the `Transcriber` protocol: what listens to English where no larger model is.

Its models come with its package, and nobody trained or tuned them to a voice of ours. Beside writing down what it hears
it can lay a given text over a sound and say, for each moment, how badly the two fit.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import soxr
from numpy.typing import NDArray

from backend.transcription.errors import LanguageUnsupported
from backend.transcription.pieces import split_at_quiet_moments
from backend.transcription.pronunciation import guess_pronunciation, with_plural_s
from backend.transcription.spoken_words import spoken_words
from backend.transcription.transcriber import TRANSCRIBER_HZ
from backend.transcription.transcript import Passage, Transcript, Word, assemble_transcript

if TYPE_CHECKING:
    from pocketsphinx import Decoder

POCKETSPHINX = "pocketsphinx"
POCKETSPHINX_PIECE_SECONDS = 30.0
"""The longest sound it hears at once."""

_DICTIONARY = "en-us/cmudict-en-us.dict"
_FRAMES_PER_SECOND = 100
# It takes the beginning of what it hears for the background.
_SILENCE_SECONDS = 0.25
_CHOICE = "choice"
_SHORTEST_SECONDS = 0.1
# A word of the dictionary that has several pronunciations: "the(2)".
_VARIANT = "("
_SILENT = frozenset({"<s>", "</s>", "<sil>", "[NOISE]", "[SPEECH]", "[COUGH]", "[SMACK]", "[UH]", "[UM]", "++NOISE++"})
# Sounds of words followed at once, and words that may end, in 10 ms. It listens in half the time that the package's own
# limits (30,000 and all) take; letters wrong in recordings of six synthetic voices: .157 instead of .151.
_LIMITS = {"maxhmmpf": 1500, "maxwpf": 20}
# While a given text is laid over a sound, or a few are compared, little else is searched, so the beams may be wide.
# Wider ones make scores overflow, and words get lost.
_WIDE_BEAMS = {"beam": 1e-80, "pbeam": 1e-80, "wbeam": 1e-60, "maxhmmpf": 30_000, "maxwpf": -1}
# Scores of alignments are logarithms to the base 1.0001, divided by 1024.
_NATS_PER_SCORE = 1024 * math.log(1.0001)


@dataclass(frozen=True, kw_only=True)
class PlacedWord:
    """A word of a given text where it fits best.

    Attributes:
        text: as the dictionary writes it; empty for silence.
        cost: nats by which the sound is less probable as this word than as whatever sound would fit best, per frame
            of 10 ms; below 2 where the word was said, above 4 where another was.
    """

    text: str
    start_seconds: float
    end_seconds: float
    cost: float


@dataclass(frozen=True, kw_only=True)
class PlacedText:
    """A given text laid over a sound.

    Attributes:
        words: all of the text in order, with the silences between.
        frame_costs: (frames,) of 10 ms; see `PlacedWord.cost`.
    """

    words: tuple[PlacedWord, ...]
    frame_costs: NDArray[np.float32]


class PocketsphinxTranscriber:
    """English only. The same sound gives the same transcript, wherever and after whatever it is heard.

    Nothing is loaded before it first listens (half a second, 110 MB). One object may be used by several threads, which
    then wait for each other; it travels to other processes without what it has loaded.
    """

    languages = frozenset({"en"})

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._one_at_a_time = threading.Lock()

    @property
    def name(self) -> str:
        """Which model listens."""
        return POCKETSPHINX

    @property
    def piece_seconds(self) -> float:
        """The longest sound it hears at once."""
        return POCKETSPHINX_PIECE_SECONDS

    def transcribe(
        self, samples: NDArray[np.float32], language: str | None = None, *, sample_rate: int = TRANSCRIBER_HZ
    ) -> Transcript:
        """Write down mono samples (samples,); words in lower case, numbers as words, without punctuation.

        Raises:
            LanguageUnsupported: the language is not English.
        """
        if language not in (None, *self.languages):
            raise LanguageUnsupported(f"pocketsphinx hears English only, not {language!r}. Download a Whisper model.")
        words: list[Word] = []
        passages: list[Passage] = []
        start_seconds = 0.0
        for piece in split_at_quiet_moments(_at_16_khz(samples, sample_rate), self.piece_seconds):
            seconds = len(piece) / TRANSCRIBER_HZ
            if seconds >= _SHORTEST_SECONDS:
                with self._one_at_a_time:
                    heard = list(self._hear(piece))
                words += [word.shifted(start_seconds) for word in heard]
                passages.append(_passage_of(heard, seconds).shifted(start_seconds))
            start_seconds += seconds
        return assemble_transcript(words, passages, "en" if passages else "", transcriber=self.name)

    def place(
        self, samples: NDArray[np.float32], words: Sequence[str], *, sample_rate: int = TRANSCRIBER_HZ
    ) -> PlacedText | None:
        """Lay words over mono samples (samples,) so that they fit as well as they can; None where they cannot.

        Words are as `backend.transcription.spoken_words` shows them. Those the dictionary lacks are said as their
        letters suggest. Not for more than `piece_seconds` at once.
        """
        sound = _at_16_khz(samples, sample_rate)
        if not words or len(sound) < _SHORTEST_SECONDS * TRANSCRIBER_HZ:
            return None
        with self._one_at_a_time:
            known = [word for word in words if self._learn(word)]
            return self._placed(sound, known) if known else None

    def choose(
        self,
        samples: NDArray[np.float32],
        columns: Sequence[Sequence[str]],
        *,
        sample_rate: int = TRANSCRIBER_HZ,
    ) -> str | None:
        """What mono samples (samples,) say if they say one text of each column, in this order; None if they do not.

        All that can be said so is compared at once. Not for more than `piece_seconds`.
        """
        sound = _at_16_khz(samples, sample_rate)
        if len(sound) < _SHORTEST_SECONDS * TRANSCRIBER_HZ:
            return None
        with self._one_at_a_time:
            parts = []
            for column in columns:
                texts = ([word for word in words_to_place(text) if self._learn(word)] for text in column)
                parts.append(f"({' | '.join(' '.join(words) for words in texts if words)})")
            grammar = f"#JSGF V1.0; grammar {_CHOICE}; public <{_CHOICE}> = {' '.join(parts)};"
            with _wide_beams(self._decoder):
                self._decoder.add_jsgf_string(_CHOICE, grammar)
            self._decoder.activate_search(_CHOICE)
            self._listen(sound)
            heard = self._decoder.hyp()
            return None if heard is None else str(heard.hypstr)

    @cached_property
    def _decoder(self) -> Decoder:
        # Here: pocketsphinx is needed by those only who listen, and reads 30 MB.
        from pocketsphinx import Decoder  # noqa: PLC0415 - see above

        return Decoder(samprate=TRANSCRIBER_HZ, loglevel="FATAL", cmn="batch", **_LIMITS)

    def _hear(self, piece: NDArray[np.float32]) -> Iterator[Word]:
        # To a decoder that has heard nothing yet, digital silence is a word like any other.
        if not _to_integers(piece).any():
            return
        self._decoder.activate_search()
        self._listen(piece)
        seconds = len(piece) / TRANSCRIBER_HZ
        if self._decoder.hyp() is None:
            return
        for segment in self._decoder.seg():
            if segment.word not in _SILENT:
                yield Word(
                    text=segment.word.partition(_VARIANT)[0],
                    start_seconds=_second(segment.start_frame, seconds),
                    end_seconds=_second(segment.end_frame + 1, seconds),
                    probability=min(max(float(segment.prob), 0.0), 1.0),
                )

    def _listen(self, piece: NDArray[np.float32]) -> None:
        """Let the active search hear a piece; what was heard before leaves no trace."""
        # Its estimate of the background goes on from sound to sound otherwise.
        self._decoder.reinit_feat()
        silence = np.zeros(round(_SILENCE_SECONDS * TRANSCRIBER_HZ), np.float32)
        padded = np.concatenate([silence, piece, silence])
        self._decoder.start_utt()
        self._decoder.process_raw(_to_integers(padded).tobytes(), full_utt=True)
        self._decoder.end_utt()

    def _placed(self, sound: NDArray[np.float32], words: Sequence[str]) -> PlacedText | None:
        decoder, seconds = self._decoder, len(sound) / TRANSCRIBER_HZ
        with _wide_beams(decoder):
            decoder.set_align_text(" ".join(words))
        try:
            self._listen(sound)
            first = [(each.word, each.start_frame, each.end_frame + 1, each.ascore) for each in decoder.seg() or ()]
        except RuntimeError:
            # More sounds than the recording has frames for, say.
            return None
        # Where no path through all words is left, there is no segment at all.
        if sum(name not in _SILENT for name, *_ in first) != len(words):
            return None
        try:
            # Only a second pass knows how well each sound of a word fits.
            decoder.set_alignment()
            self._listen(sound)
            parts = [
                (word.name, [(sound.start, sound.duration, -sound.score) for sound in word])
                for word in decoder.get_alignment()
            ]
        except RuntimeError:
            parts = [
                (name, [(start, end - start, -math.log(max(score, 1e-300)) / _NATS_PER_SCORE)])
                for name, start, end, score in first
            ]
        num_frames = max(start + duration for _, sounds in parts for start, duration, _ in sounds)
        costs = np.zeros(num_frames, np.float32)
        placed = []
        for name, sounds in parts:
            for start, duration, cost in sounds:
                costs[start : start + duration] = cost * _NATS_PER_SCORE / max(duration, 1)
            begin, end = sounds[0][0], sounds[-1][0] + sounds[-1][1]
            placed.append(
                PlacedWord(
                    text="" if name in _SILENT else name.partition(_VARIANT)[0],
                    start_seconds=_second(begin, seconds),
                    end_seconds=_second(end, seconds),
                    cost=float(costs[begin:end].mean()) if end > begin else 0.0,
                )
            )
        offset = round(_SILENCE_SECONDS * _FRAMES_PER_SECOND)
        return PlacedText(words=tuple(placed), frame_costs=costs[offset : num_frames - offset])

    def _learn(self, word: str) -> bool:
        """See to it that the dictionary knows a word; false where it cannot be said."""
        if self._decoder.lookup_word(word) is not None:
            return True
        stem = word.removesuffix("'s")
        known = self._decoder.lookup_word(stem) if stem != word else None
        sounds = with_plural_s(known) if known else guess_pronunciation(word)
        if not sounds:
            return False
        self._decoder.add_word(word, sounds, update=False)
        return True


def _to_integers(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    return (np.clip(samples, -1.0, 1.0) * 32767).astype("<i2")


def is_installed() -> bool:
    """Whether pocketsphinx is on this machine; without importing it."""
    return importlib.util.find_spec("pocketsphinx") is not None


def version() -> str:
    """Of the package with its models, without importing it; empty where it is not installed."""
    try:
        return importlib.metadata.version(POCKETSPHINX)
    except importlib.metadata.PackageNotFoundError:
        return ""


def unknown_words(words: Iterable[str]) -> frozenset[str]:
    """Those of the words (as `spoken_words` shows them) that it can never write down: names, mostly.

    Needs no decoder.
    """
    known = _dictionary()
    return frozenset(
        word for shown in words for word in (shown, *shown.split()) if any(part not in known for part in word.split())
    )


@cache
def _dictionary() -> frozenset[str]:
    # Here: as in `PocketsphinxTranscriber._decoder`.
    from pocketsphinx import get_model_path  # noqa: PLC0415 - see above

    lines = Path(get_model_path(_DICTIONARY)).read_text(encoding="utf-8").splitlines()
    return frozenset(line.partition(" ")[0] for line in lines)


def words_to_place(text: str) -> list[str]:
    """A text as the words that `PocketsphinxTranscriber.place` takes."""
    return [word for spoken in spoken_words(text) for word in spoken.shown.split()]


def _at_16_khz(samples: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    if sample_rate != TRANSCRIBER_HZ:
        samples = soxr.resample(samples, sample_rate, TRANSCRIBER_HZ)
    return np.ascontiguousarray(samples, dtype=np.float32)


def _second(frame: int, seconds: float) -> float:
    """When a frame of the padded sound begins in the sound itself."""
    return min(max(frame / _FRAMES_PER_SECOND - _SILENCE_SECONDS, 0.0), seconds)


@contextmanager
def _wide_beams(decoder: Decoder) -> Iterator[None]:
    """Searches that are made meanwhile look further."""
    narrow = {name: decoder.config[name] for name in _WIDE_BEAMS}
    try:
        _configure(decoder, _WIDE_BEAMS)
        yield
    finally:
        _configure(decoder, narrow)


def _configure(decoder: Decoder, values: Mapping[str, float]) -> None:
    for name, value in values.items():
        decoder.config[name] = value


def _passage_of(words: Sequence[Word], seconds: float) -> Passage:
    """It never runs in circles, and says how sure it is word by word."""
    return Passage(
        start_seconds=0.0,
        end_seconds=seconds,
        no_speech_probability=0.0 if words else 1.0,
        compression_ratio=1.0,
        mean_log_probability=0.0,
    )
