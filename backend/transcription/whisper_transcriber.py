"""openai-whisper behind the `Transcriber` protocol; also for small models that hear less than 30 seconds at once."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import whisper
from numpy.typing import NDArray
from torch.nn import functional
from whisper import timing
from whisper.audio import HOP_LENGTH, log_mel_spectrogram, pad_or_trim
from whisper.decoding import DecodingOptions, DecodingResult
from whisper.model import AudioEncoder
from whisper.tokenizer import LANGUAGES, get_tokenizer

from backend.transcription.dtw import warp_times
from backend.transcription.errors import TranscriptionError, WhisperDamaged
from backend.transcription.hallucination import (
    MAX_COMPRESSION_RATIO,
    MAX_NO_SPEECH_PROBABILITY,
    MIN_MEAN_LOG_PROBABILITY,
)
from backend.transcription.pieces import split_at_quiet_moments
from backend.transcription.transcriber import TRANSCRIBER_HZ, WhisperWeights
from backend.transcription.transcript import Passage, Transcript, Word, assemble_transcript

# The encoder makes one token of two spectrum frames of 10 ms.
_FRAMES_PER_TOKEN = 2
# At which Whisper's authors try again when a text seems to be made up.
_TEMPERATURES = (0.0, 0.2, 0.4)
# Shorter sounds hold no word, and the alignment of nothing fails.
_MIN_SECONDS = 0.1
_SEED = 0

# Whisper hooks into its network to see what it attends to, and switches a class attribute to do so.
_ONE_AT_A_TIME = threading.Lock()

_Segment = dict[str, Any]  # Any: texts, numbers and lists, as openai-whisper returns them


class WhisperTranscriber:
    """A loaded Whisper model. The same sound gives the same transcript, wherever it is heard."""

    def __init__(self, weights: WhisperWeights, *, device: str = "cpu", piece_seconds: float | None = None) -> None:
        """Load the weights.

        Args:
            weights: from `find_whisper`.
            device: where torch computes.
            piece_seconds: the longest sound to transcribe at once, if it is not that of the weights.

        Raises:
            WhisperDamaged: the file holds no Whisper model.
        """
        self._model = _load(weights, device)
        # What Whisper does with a spectrum it now does with a sound that is encoded already: it would encode each piece
        # once to write it down, once more to time the words, and there without the fast form of attention.
        self._encoder, self._model.encoder = self._model.encoder, torch.nn.Identity()
        # Whisper's own would be compiled again in each process.
        timing.dtw = warp_times
        self._name = weights.name
        self._window_samples: int = self._model.dims.n_audio_ctx * _FRAMES_PER_TOKEN * HOP_LENGTH
        self._silence_seconds = weights.silence_seconds
        self._piece_seconds: float = min(piece_seconds or weights.piece_seconds, self._window_samples / TRANSCRIBER_HZ)

    @property
    def name(self) -> str:
        """Which model it is."""
        return self._name

    @property
    def piece_seconds(self) -> float:
        """The longest sound it takes at once."""
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
            raise TranscriptionError(
                f"{language!r} is not a language that Whisper knows. Use a code such as en, de or zh."
            )
        words: list[Word] = []
        passages: list[Passage] = []
        start_seconds = 0.0
        for piece in split_at_quiet_moments(samples_16k, self._piece_seconds):
            if len(piece) >= _MIN_SECONDS * TRANSCRIBER_HZ:
                segment, language = self._hear(np.ascontiguousarray(piece, dtype=np.float32), language)
                words += [word.shifted(start_seconds) for word in _words_of(segment)]
                passages.append(_passage_of(segment, len(piece) / TRANSCRIBER_HZ).shifted(start_seconds))
            start_seconds += len(piece) / TRANSCRIBER_HZ
        return assemble_transcript(words, passages, language or "", transcriber=self.name)

    def _hear(self, piece: NDArray[np.float32], language: str | None) -> tuple[_Segment, str]:
        """Transcribe one piece; returns what openai-whisper calls a segment, and the language.

        `whisper.transcribe` is not used: it continues from the position that the model reports, and with a poor model
        never ends. Here a piece fits into one window, is decoded at once, and no text before it misleads.
        """
        # Where the most probable text runs in circles others are drawn; they shall be the same each time.
        gpus = range(torch.cuda.device_count())
        with _ONE_AT_A_TIME, torch.random.fork_rng(devices=gpus), torch.inference_mode():
            torch.manual_seed(_SEED)
            encoded = self._encode(piece)
            heard = self._decode(encoded, language if self._model.is_multilingual else "en")
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
            timing.add_word_timestamps(
                segments=[segment],
                model=self._model,
                tokenizer=tokenizer,
                mel=encoded,
                num_frames=min(len(piece), self._window_samples) // HOP_LENGTH,
                last_speech_timestamp=0.0,
            )
        return segment, heard.language

    def _encode(self, piece: NDArray[np.float32]) -> torch.Tensor:
        """The piece and the silence after it, encoded: (tokens, width)."""
        num_samples = self._window_samples
        if self._silence_seconds is not None:
            num_samples = min(num_samples, len(piece) + round(self._silence_seconds * TRANSCRIBER_HZ))
        num_samples -= num_samples % (_FRAMES_PER_TOKEN * HOP_LENGTH)
        # The silence is added to the sound, as in training: zeros in its spectrum would be a noise.
        sound = pad_or_trim(torch.from_numpy(piece), num_samples)
        spectrum = log_mel_spectrogram(sound, self._model.dims.n_mels).to(self._model.device)
        return _encode(self._encoder, spectrum.unsqueeze(0).to(self._dtype))[0]

    @property
    def _dtype(self) -> torch.dtype:
        return torch.float16 if self._model.device.type == "cuda" else torch.float32

    def _decode(self, encoded: torch.Tensor, language: str | None) -> DecodingResult:
        """Decode greedily; if that runs in circles or is a guess, take the first drawn text that is neither."""
        results: list[DecodingResult] = []
        for temperature in _TEMPERATURES:
            options = DecodingOptions(
                language=language,
                temperature=temperature,
                without_timestamps=True,
                fp16=self._dtype is torch.float16,
            )
            results.append(self._model.decode(encoded, options))
            runs_in_circles = results[-1].compression_ratio > MAX_COMPRESSION_RATIO
            is_guess = results[-1].avg_logprob < MIN_MEAN_LOG_PROBABILITY
            if results[-1].no_speech_prob > MAX_NO_SPEECH_PROBABILITY or not (runs_in_circles or is_guess):
                return results[-1]
        # None is good; the greedy one says so by its own numbers.
        return results[0]


def _encode(encoder: AudioEncoder, spectrum: torch.Tensor) -> torch.Tensor:
    """What the encoder makes of (1, mels, frames); its own `forward` refuses what does not fill its window."""
    hidden = functional.gelu(encoder.conv1(spectrum))
    hidden = functional.gelu(encoder.conv2(hidden)).permute(0, 2, 1)
    hidden = (hidden + encoder.positional_embedding[: hidden.shape[1]]).to(hidden.dtype)
    for block in encoder.blocks:
        hidden = block(hidden)
    encoded: torch.Tensor = encoder.ln_post(hidden)
    return encoded


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


def _words_of(segment: _Segment) -> Iterator[Word]:
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


def _passage_of(segment: _Segment, seconds: float) -> Passage:
    return Passage(
        start_seconds=0.0,
        end_seconds=seconds,
        no_speech_probability=float(segment["no_speech_prob"]),
        compression_ratio=float(segment["compression_ratio"]),
        mean_log_probability=float(segment["avg_logprob"]),
    )
