"""openai-whisper's own files are loaded and its networks listen: fields, times, pieces, languages."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import whisper
from whisper import timing

from backend.transcription.errors import TranscriptionError, WhisperDamaged
from backend.transcription.pieces import split_at_quiet_moments
from backend.transcription.transcriber import TRANSCRIBER_HZ, Transcriber, WhisperWeights
from backend.transcription.transcript import join_words
from backend.transcription.whisper_transcriber import WhisperTranscriber
from backend.transcription.whisper_weights import find_whisper
from tests.backend.audio.sounds import sing
from tests.backend.transcription.conftest import MULTILINGUAL_TOKENS, save_tiny_whisper


@pytest.fixture(scope="module")
def transcriber(tiny_whisper: Path) -> WhisperTranscriber:
    return WhisperTranscriber(find_whisper(str(tiny_whisper)))


def test_a_piece_becomes_words_with_times_and_numbers(transcriber: WhisperTranscriber) -> None:
    protocol: Transcriber = transcriber
    heard = protocol.transcribe(sing(3.0, TRANSCRIBER_HZ), None)
    assert heard.language == "en"
    assert heard.words
    assert heard.text == join_words(heard.words)
    for word in heard.words:
        assert 0.0 <= word.start_seconds <= word.end_seconds <= 3.0
        assert 0.0 <= word.probability <= 1.0
        assert word.text == word.text.strip() != ""
    assert all(a.start_seconds <= b.start_seconds for a, b in itertools.pairwise(heard.words))
    assert 0.0 <= heard.no_speech_probability <= 1.0
    assert heard.compression_ratio > 0.0
    assert heard.mean_log_probability < 0.0
    assert [(each.start_seconds, each.end_seconds) for each in heard.passages] == [(0.0, 3.0)]


def test_the_same_sound_gives_the_same_transcript_whatever_was_heard_before(transcriber: WhisperTranscriber) -> None:
    first = transcriber.transcribe(sing(2.0, TRANSCRIBER_HZ))
    torch.manual_seed(1)
    transcriber.transcribe(sing(1.0, TRANSCRIBER_HZ, pitch_hz=90.0))
    assert transcriber.transcribe(sing(2.0, TRANSCRIBER_HZ)) == first


def test_listening_leaves_the_random_numbers_of_others_alone(transcriber: WhisperTranscriber) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    transcriber.transcribe(sing(1.0, TRANSCRIBER_HZ))
    assert torch.equal(torch.rand(3), expected)


def test_listening_compiles_nothing_and_starts_no_threads(transcriber: WhisperTranscriber) -> None:
    """Numba would take seconds of each process that listens, and give torch as many threads as there are cores."""
    num_threads = torch.get_num_threads()
    assert transcriber.transcribe(sing(1.0, TRANSCRIBER_HZ), "en").words, "nothing was timed"
    assert not timing.dtw_cpu.signatures
    assert not timing.backtrace.signatures
    assert torch.get_num_threads() == num_threads


def test_what_is_longer_than_its_window_is_heard_in_pieces(transcriber: WhisperTranscriber) -> None:
    assert transcriber.piece_seconds == 4.0
    heard = transcriber.transcribe(sing(9.0, TRANSCRIBER_HZ))
    assert len(heard.passages) >= 3
    assert heard.passages[0].start_seconds == 0.0
    assert heard.passages[-1].end_seconds == pytest.approx(9.0)
    for left, right in itertools.pairwise(heard.passages):
        assert left.end_seconds == pytest.approx(right.start_seconds)
        assert left.end_seconds - left.start_seconds <= 4.0
    assert max(word.start_seconds for word in heard.words) > 4.0


def test_pieces_may_be_shorter_than_the_window(tiny_whisper: Path) -> None:
    weights = find_whisper(str(tiny_whisper))
    assert WhisperTranscriber(weights, piece_seconds=1.5).piece_seconds == 1.5
    assert WhisperTranscriber(weights, piece_seconds=100.0).piece_seconds == 4.0


@pytest.mark.parametrize("num_samples", [0, 1, 800])
def test_what_is_too_short_for_a_word(transcriber: WhisperTranscriber, num_samples: int) -> None:
    heard = transcriber.transcribe(np.zeros(num_samples, np.float32))
    assert (heard.text, heard.words, heard.no_speech_probability) == ("", (), 1.0)


def test_a_model_of_many_languages_is_told_one_or_finds_it(tmp_path: Path) -> None:
    path = save_tiny_whisper(tmp_path / "many.pt", audio_tokens=100, text_tokens=MULTILINGUAL_TOKENS)
    transcriber = WhisperTranscriber(find_whisper(str(path)))
    assert transcriber.is_multilingual
    samples = sing(1.5, TRANSCRIBER_HZ)
    assert transcriber.transcribe(samples, "de").language == "de"
    assert len(transcriber.transcribe(samples).language) in (2, 3)
    with pytest.raises(TranscriptionError, match="'klingon' is not a language"):
        transcriber.transcribe(samples, "klingon")


def test_the_usual_window_of_thirty_seconds(tmp_path: Path) -> None:
    path = save_tiny_whisper(tmp_path / "usual.pt", audio_tokens=1_500)
    transcriber = WhisperTranscriber(find_whisper(str(path)))
    assert transcriber.piece_seconds == 24.0
    assert len(transcriber.transcribe(sing(6.0, TRANSCRIBER_HZ)).passages) == 1


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("pwned",)


@pytest.mark.parametrize("kind", ["text", "empty", "other tensors", "code"])
def test_a_file_that_is_no_model(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "broken.pt"
    match kind:
        case "text":
            path.write_text("not a model")
        case "empty":
            path.touch()
        case "other tensors":
            torch.save({"dims": {"n_mels": 80}, "model_state_dict": {}}, path)
        case "code":
            path.write_bytes(pickle.dumps({"dims": Evil(), "model_state_dict": {}}, protocol=2))
    with pytest.raises(WhisperDamaged, match=r"broken\.pt holds no Whisper model"):
        WhisperTranscriber(WhisperWeights(path=path, name="broken", identity=""))
    assert not (tmp_path / "pwned").exists()


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(WhisperDamaged):
        WhisperTranscriber(WhisperWeights(path=tmp_path / "absent.pt", name="absent", identity=""))


def test_silence_enough_is_heard_after_a_sound_and_no_full_window(tiny_whisper: Path) -> None:
    """With so much of it that the window is full, both listen to the same."""
    sound = sing(1.5, TRANSCRIBER_HZ)
    usual, full, short = (
        WhisperTranscriber(dataclasses.replace(find_whisper(str(tiny_whisper)), silence_seconds=seconds))
        for seconds in (None, 100.0, 0.5)
    )
    with torch.inference_mode():
        assert torch.equal(usual._encode(sound), full._encode(sound))
        assert (len(usual._encode(sound)), len(short._encode(sound))) == (200, 100)
    assert short.transcribe(sound).words[-1].end_seconds <= 1.5


def test_the_encoder_hears_what_whisper_would_make_of_a_full_window(tiny_whisper: Path) -> None:
    sound = sing(1.5, TRANSCRIBER_HZ)
    theirs = whisper.load_model(str(tiny_whisper), device="cpu").eval()
    with torch.inference_mode():
        spectrum = whisper.log_mel_spectrogram(whisper.pad_or_trim(sound, 4 * TRANSCRIBER_HZ), 80)
        expected = theirs.encoder(spectrum.unsqueeze(0))[0]
        torch.testing.assert_close(WhisperTranscriber(find_whisper(str(tiny_whisper)))._encode(sound), expected)


def test_a_piece_that_is_too_long_is_cut_where_it_is_quiet() -> None:
    samples = np.ones(12 * TRANSCRIBER_HZ, np.float32)
    samples[int(6.5 * TRANSCRIBER_HZ) : 7 * TRANSCRIBER_HZ] = 0.0
    pieces = list(split_at_quiet_moments(samples, 8.0))
    assert sum(map(len, pieces)) == len(samples)
    assert 6.5 <= len(pieces[0]) / TRANSCRIBER_HZ <= 7.0
    assert [len(piece) for piece in split_at_quiet_moments(samples[:100], 8.0)] == [100]
