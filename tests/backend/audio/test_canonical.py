"""Recordings of any kind and length become canonical WAV files, or one line says why not."""

from __future__ import annotations

import errno
import tracemalloc
import wave
from pathlib import Path

import numpy as np
import pytest

from backend.audio.canonical import CANONICAL_HZ, read_blocks, read_part, store_recording
from backend.audio.decoding import decode_recording
from backend.audio.limits import DecodingLimits, recording_decoding
from backend.audio.resample import resample, resample_blocks
from backend.audio.writing import WavWriter, write_wav
from backend.errors import (
    RecordingDamaged,
    RecordingNotAudio,
    RecordingNotFound,
    RecordingTooLong,
    RecordingUnsupported,
)
from tests.backend.audio.sounds import FORMATS, Format, alignment, encode, sing, write_raw_wav, write_silent_flac

BY_SUFFIX = {form.suffix: form for form in FORMATS}


@pytest.mark.parametrize("suffix", ["wav", "flac", "mp3", "ogg", "opus", "m4a", "aac", "mp4", "webm"])
def test_every_container_becomes_the_same_kind_of_file(tmp_path: Path, suffix: str) -> None:
    form = BY_SUFFIX[suffix]
    source = encode(tmp_path / f"take.{suffix}", sing(1.5, form.rate), form)
    stored = store_recording(source, tmp_path / "stored.wav")
    with wave.open(str(stored.path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, CANONICAL_HZ)
        seconds = file.getnframes() / file.getframerate()
    assert stored.seconds == seconds == pytest.approx(1.5, abs=0.15)
    assert (stored.container, stored.source_sample_rate) == (form.container, form.rate)
    samples, _ = read_part(stored.path)
    assert alignment(samples, sing(1.5, CANONICAL_HZ), max_shift=CANONICAL_HZ // 8) > form.correlation
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([source.name, "stored.wav"])


def test_the_samples_are_those_of_a_decoded_reference(tmp_path: Path) -> None:
    source = encode(tmp_path / "take.flac", sing(1.0, 44_100), Format(suffix="flac", codec="flac", container="flac"))
    stored = store_recording(source, tmp_path / "stored.wav")
    expected = decode_recording(source, sample_rate=CANONICAL_HZ).samples
    np.testing.assert_allclose(read_part(stored.path)[0], expected, atol=1 / 32_767)


def test_a_recording_of_twenty_minutes_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    source = write_silent_flac(tmp_path / "long.flac", minutes=20, rate=8_000)
    tracemalloc.start()
    try:
        stored = store_recording(source, tmp_path / "stored.wav")
        num_samples = sum(map(len, read_blocks(stored.path)))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stored.seconds == 1_200.0
    assert num_samples == 1_200 * CANONICAL_HZ
    assert peak_bytes < 10_000_000  # as 16-bit integers it has 57 MB


def test_three_hours_of_silence_cost_no_more_than_the_limit(tmp_path: Path) -> None:
    bomb = write_silent_flac(tmp_path / "bomb.flac", minutes=180, rate=4_000)
    with pytest.raises(RecordingTooLong, match="60 s"):
        store_recording(bomb, tmp_path / "stored.wav", limits=recording_decoding(max_seconds=60.0))
    assert [path.name for path in tmp_path.iterdir()] == ["bomb.flac"]


def test_limits_grow_with_the_permitted_length() -> None:
    two_hours, one_minute = recording_decoding(), recording_decoding(max_seconds=60.0, max_bytes=10)
    assert (two_hours.max_seconds, two_hours.max_bytes) == (7_200.0, 500_000_000)
    assert one_minute.max_bytes == 10
    assert two_hours.cpu_seconds > one_minute.cpu_seconds


def test_what_cannot_be_stored_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "stored"
    folder.mkdir()
    nan = np.full(CANONICAL_HZ, np.nan, np.float32)
    m4a = encode(tmp_path / "cut.m4a", sing(2.0, 48_000), BY_SUFFIX["m4a"])
    m4a.write_bytes(m4a.read_bytes()[: m4a.stat().st_size // 2])
    (tmp_path / "text.wav").write_text("Dear diary")
    (tmp_path / "empty.wav").touch()
    cases = {
        tmp_path / "text.wav": RecordingNotAudio,
        tmp_path / "empty.wav": RecordingNotAudio,
        tmp_path / "absent.wav": RecordingNotFound,
        m4a: RecordingDamaged,
        write_raw_wav(tmp_path / "nan.wav", nan): RecordingDamaged,
        write_raw_wav(tmp_path / "many.wav", np.zeros(51_200, np.int16), channels=1_024): RecordingUnsupported,
        write_raw_wav(tmp_path / "rate.wav", np.zeros(2_000, np.int16), rate=400_000_000): RecordingUnsupported,
    }
    for path, kind in cases.items():
        with pytest.raises(kind, match="shown name"):
            store_recording(path, folder / "stored.wav", name="shown name")
    assert list(folder.iterdir()) == []


def test_a_part_is_read_without_the_rest(tmp_path: Path) -> None:
    samples = sing(3.0, CANONICAL_HZ)
    write_wav(tmp_path / "take.wav", samples, CANONICAL_HZ)
    part, rate = read_part(tmp_path / "take.wav", 1.0, 2.0)
    assert rate == CANONICAL_HZ
    np.testing.assert_allclose(part, samples[CANONICAL_HZ : 2 * CANONICAL_HZ], atol=1e-4)
    assert len(read_part(tmp_path / "take.wav", 2.5, 9.0)[0]) == CANONICAL_HZ // 2
    assert len(read_part(tmp_path / "take.wav", 5.0, 9.0)[0]) == 0


def test_reading_and_writing_again_changes_no_sample(tmp_path: Path) -> None:
    write_wav(tmp_path / "one.wav", sing(1.0, CANONICAL_HZ), CANONICAL_HZ)
    write_wav(tmp_path / "two.wav", read_part(tmp_path / "one.wav")[0], CANONICAL_HZ)
    assert (tmp_path / "one.wav").read_bytes() == (tmp_path / "two.wav").read_bytes()


def test_integers_are_written_as_they_are(tmp_path: Path) -> None:
    integers = np.array([-32_768, -1, 0, 1, 32_767], np.int16)
    with WavWriter(tmp_path / "take.wav", CANONICAL_HZ) as writer:
        writer.write_pcm16(integers)
    with wave.open(str(tmp_path / "take.wav")) as file:
        assert np.frombuffer(file.readframes(5), "<i2").tolist() == integers.tolist()


def test_what_encore_has_not_written_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("no wav")
    (tmp_path / "empty.wav").touch()
    write_raw_wav(tmp_path / "stereo.wav", np.zeros(100, np.int16), channels=2)
    for name in ("text.wav", "empty.wav", "stereo.wav"):
        with pytest.raises(RecordingDamaged):
            read_part(tmp_path / name)
    with pytest.raises(RecordingNotFound, match=errno.errorcode[errno.ENOENT] + "|No such file"):
        read_part(tmp_path / "absent.wav")


def test_a_file_cut_off_after_it_was_written_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "take.wav"
    write_wav(path, sing(1.0, CANONICAL_HZ), CANONICAL_HZ)
    path.write_bytes(path.read_bytes()[:10_000])
    with pytest.raises(RecordingDamaged, match="end before"):
        read_part(path)


def test_resampling_in_blocks_leaves_no_seams() -> None:
    samples = sing(2.0, CANONICAL_HZ)
    blocks = np.array_split(samples, 7)
    joined = np.concatenate(list(resample_blocks(blocks, CANONICAL_HZ, 16_000)))
    whole = resample(samples, CANONICAL_HZ, 16_000)
    assert abs(len(joined) - len(whole)) <= 1
    num_samples = min(len(joined), len(whole))
    np.testing.assert_allclose(joined[:num_samples], whole[:num_samples], atol=1e-3)
    assert resample(samples, CANONICAL_HZ, CANONICAL_HZ) is samples


def test_a_permitted_length_is_permitted(tmp_path: Path) -> None:
    source = write_raw_wav(tmp_path / "take.wav", sing(2.0, CANONICAL_HZ))
    assert store_recording(source, tmp_path / "out.wav", limits=DecodingLimits(max_seconds=2.0)).seconds == 2.0
