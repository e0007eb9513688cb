"""openai-whisper behind the `Transcriber` protocol; also for small models that hear less than 30 seconds at once."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import whisper
from numpy.typing import NDArray
from whisper.audio import HOP_LENGTH, log_mel_spectrogram, pad_or_trim
from whisper.decoding import DecodingOptions
from whisper.timing import add_word_timestamps
from whisper.tokenizer import LANGUAGES, get_tokenizer

from backend.transcription.errors import TranscriptionError, WhisperDamaged
from backend.transcription.transcriber import TRANSCRIBER_HZ
from backend.transcription.transcript import Passage, Transcript, Word, assemble_transcript
from backend.transcription.whisper_weights import WhisperWeights

# Whisper's own frontend looks 30 seconds ahead, in 10 ms frames; each token of its encoder covers two.
_FRAMES_PER_TOKEN = 2
_USUAL_AUDIO_TOKENS = 1_500
# Shorter sounds hold no word, and the alignment of nothing fails.
_SHORTEST_SECONDS = 0.1
# More silence than this between two words and Whisper suspects itself of making them up.
_SUSPICIOUS_SILENCE_SECONDS = 2.0
# The moment at which a piece that is too long is cut is looked for in its last part, by the level of such windows.
_SEARCHED_SHARE = 0.5
_QUIET_WINDOW_SECONDS = 0.1
_SEED = 0

_Segment = dict[str, Any]  # Any: texts, numbers and lists, as openai-whisper returns them


class WhisperTranscriber:
    """A loaded Whisper model. The same sound gives the same transcript, wherever it is heard."""

    def __init__(self, weights: WhisperWeights, *, device: str = "cpu", piece_seconds: float | None = None) -> None:
        """Load the weights.

        Args:
            weights: from `find_whisper`.
            device: where torch computes.
            piece_seconds: the longest sound to listen to at once, if it is not that of the weights.

        Raises:
            WhisperDamaged: the file holds no Whisper model.
        """
        self._model = _load(weights, device)
        self._name = weights.name
        native_seconds = self._model.dims.n_audio_ctx * _FRAMES_PER_TOKEN * HOP_LENGTH / TRANSCRIBER_HZ
        self._piece_seconds = min(piece_seconds or weights.piece_seconds, native_seconds)

    @property
    def name(self) -> str:
        """Which model listens."""
        return self._name

    @property
    def piece_seconds(self) -> float:
        """The longest sound it hears at once."""
        return self._piece_seconds

    @property
    def is_multilingual(self) -> bool:
        """Whether it knows other languages than English."""
        return bool(self._model.is_multilingual)

    def transcribe(self, samples_16k: NDArray[np.float32], language: str | None = None) -> Transcript:
        """Write down mono samples (samples,) at 16 kHz; without `language` the first piece decides on one.

        Raises:
            TranscriptionError: the model does not know the language.
        """
        if language is not None and language not in LANGUAGES:
            raise TranscriptionError(f"{language!r} is no language Whisper knows. Use a code such as en, de or zh.")
        words: list[Word] = []
        passages: list[Passage] = []
        start_seconds = 0.0
        for piece in split_at_quiet_moments(samples_16k, self._piece_seconds):
            if len(piece) >= _SHORTEST_SECONDS * TRANSCRIBER_HZ:
                segments, language = self._hear(np.ascontiguousarray(piece, dtype=np.float32), language)
                words += [word.shifted(start_seconds) for word in _words_of(segments)]
                passages += [passage.shifted(start_seconds) for passage in _passages_of(segments)]
            start_seconds += len(piece) / TRANSCRIBER_HZ
        return assemble_transcript(words, passages, language or "")

    def _hear(self, piece: NDArray[np.float32], language: str | None) -> tuple[list[_Segment], str]:
        """Listen to one piece; returns what openai-whisper calls segments, and the language."""
        if not self._model.is_multilingual:
            language = "en"
        # Where the most probable text runs in circles Whisper draws others; they shall be the same each time.
        with torch.random.fork_rng(), torch.inference_mode():
            torch.manual_seed(_SEED)
            if self._model.dims.n_audio_ctx != _USUAL_AUDIO_TOKENS:
                return self._hear_at_once(piece, language)
            result = self._model.transcribe(
                piece,
                language=language,
                word_timestamps=True,
                condition_on_previous_text=False,
                hallucination_silence_threshold=_SUSPICIOUS_SILENCE_SECONDS,
                fp16=self._model.device.type == "cuda",
            )
        return result["segments"], result["language"]

    def _hear_at_once(self, piece: NDArray[np.float32], language: str | None) -> tuple[list[_Segment], str]:
        """What `whisper.transcribe` does, for a model whose window is not 30 seconds long."""
        dims = self._model.dims
        num_frames = min(len(piece) // HOP_LENGTH, dims.n_audio_ctx * _FRAMES_PER_TOKEN)
        spectrum = log_mel_spectrogram(torch.from_numpy(piece), dims.n_mels)
        spectrum = pad_or_trim(spectrum, dims.n_audio_ctx * _FRAMES_PER_TOKEN).to(self._model.device)
        options = DecodingOptions(language=language, without_timestamps=True, fp16=False)
        heard = self._model.decode(spectrum, options)
        segment: _Segment = {
            "seek": 0,
            "start": 0.0,
            "end": len(piece) / TRANSCRIBER_HZ,
            "tokens": heard.tokens,
            "avg_logprob": heard.avg_logprob,
            "compression_ratio": heard.compression_ratio,
            "no_speech_prob": heard.no_speech_prob,
            "words": [],
        }
        tokenizer = get_tokenizer(
            self._model.is_multilingual, num_languages=self._model.num_languages, language=heard.language
        )
        add_word_timestamps(
            segments=[segment],
            model=self._model,
            tokenizer=tokenizer,
            mel=spectrum,
            num_frames=num_frames,
            last_speech_timestamp=0.0,
        )
        return [segment], heard.language


def split_at_quiet_moments(samples: NDArray[np.float32], piece_seconds: float) -> Iterator[NDArray[np.float32]]:
    """Cut samples (samples,) at 16 kHz into pieces that are not longer, each at the quietest moment of its last half."""
    longest = int(piece_seconds * TRANSCRIBER_HZ)
    window = int(_QUIET_WINDOW_SECONDS * TRANSCRIBER_HZ)
    while len(samples) > longest:
        begin = int(longest * (1 - _SEARCHED_SHARE))
        energy = np.convolve(np.square(samples[begin:longest], dtype=np.float64), np.ones(window), mode="valid")
        cut = begin + int(np.argmin(energy)) + window // 2
        yield samples[:cut]
        samples = samples[cut:]
    yield samples


def _load(weights: WhisperWeights, device: str) -> whisper.Whisper:
    """Read the weights file; it is a pickle, of which torch accepts nothing but tensors and plain values."""
    try:
        model = whisper.load_model(str(weights.path), device=device)
    except (KeyError, TypeError, ValueError, RuntimeError, EOFError, AssertionError, pickle.UnpicklingError) as error:
        raise WhisperDamaged(
            f"{weights.path.name} holds no Whisper model ({type(error).__name__}). Download it again."
        ) from error
    except OSError as error:
        raise WhisperDamaged(f"{weights.path} cannot be read ({error.strerror or error}). Check the file.") from error
    if weights.published_name:
        model.set_alignment_heads(whisper._ALIGNMENT_HEADS[weights.published_name])
    return model.eval()


def _words_of(segments: Sequence[_Segment]) -> Iterator[Word]:
    for segment in segments:
        for word in segment["words"]:
            text: str = word["word"]
            if text.strip():
                yield Word(
                    text=text.strip(),
                    start_seconds=float(word["start"]),
                    end_seconds=float(word["end"]),
                    probability=float(word["probability"]),
                    has_space_before=text[0].isspace(),
                )


def _passages_of(segments: Sequence[_Segment]) -> Iterator[Passage]:
    for segment in segments:
        mean_log_probability = float(segment["avg_logprob"])
        yield Passage(
            start_seconds=float(segment["start"]),
            end_seconds=float(segment["end"]),
            no_speech_probability=float(segment["no_speech_prob"]),
            compression_ratio=float(segment["compression_ratio"]),
            mean_log_probability=mean_log_probability if math.isfinite(mean_log_probability) else -math.inf,
        )
