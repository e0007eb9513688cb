from __future__ import annotations

import os
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest
import soxr
from av.container import OutputContainer
from av.video.stream import VideoStream
from numpy.typing import NDArray

from backend.audio.decoding import decode_recording
from backend.audio.limits import DecodingLimits
from backend.audio.recording import Recording
from backend.errors import (
    RecordingDamaged,
    RecordingNotAudio,
    RecordingNotFound,
    RecordingTooLarge,
    RecordingTooLong,
    RecordingUnsupported,
)
from tests.backend.audio.sounds import FORMATS, Format, alignment, encode, sing, write_raw_wav, write_silent_flac

RATE = 24_000
# A codec's frame of padding at the end, and a delay at the start that no header tells (raw AAC).
MAX_PADDING_SECONDS = 0.05
WAV = Format(suffix="wav", codec="pcm_s16le", container="wav")
FLAC = Format(suffix="flac", codec="flac", container="flac")
M4A = Format(suffix="m4a", codec="aac", container="mp4")
WEBM = Format(suffix="webm", codec="libopus", container="matroska")
MP3 = Format(suffix="mp3", codec="libmp3lame", container="mp3")


@pytest.fixture(autouse=True)
def _leaves_no_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []


def decode(path: Path, limits: DecodingLimits | None = None) -> Recording:
    return decode_recording(path, sample_rate=RATE, limits=limits or DecodingLimits())


def to_pcm16(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    integers: NDArray[np.int16] = np.rint(samples * 32767).astype(np.int16)
    return integers


def add_video_track(container: OutputContainer) -> VideoStream:
    video = container.add_stream("mpeg4", rate=25)
    video.width = video.height = 64
    video.pix_fmt = "yuv420p"
    return video


def write_black_pictures(container: OutputContainer, video: VideoStream) -> None:
    for _ in range(25):
        container.mux(video.encode(av.VideoFrame(64, 64, "yuv420p")))
    container.mux(video.encode(None))


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: f"{form.suffix}-{form.codec}")
def test_every_container_comes_back_as_the_sound_that_went_in(tmp_path: Path, form: Format) -> None:
    original = sing(2.0, form.rate)
    recording = decode(encode(tmp_path / f"take.{form.suffix}", original, form))

    expected = soxr.resample(original, form.rate, RATE, quality="HQ")
    assert recording.samples.dtype == np.float32
    assert recording.samples.ndim == 1
    assert abs(recording.seconds - 2.0) <= MAX_PADDING_SECONDS
    assert alignment(recording.samples, expected, max_shift=int(MAX_PADDING_SECONDS * RATE)) > form.correlation
    assert (recording.sample_rate, recording.source_sample_rate) == (RATE, form.rate)
    assert recording.container == form.container
    assert recording.source_channels == {"mono": 1, "stereo": 2}[form.layout]
    assert recording.source_name == f"take.{form.suffix}"
    if form.lossless:
        np.testing.assert_allclose(recording.samples, expected, atol=2 / 32768)


def test_a_file_at_the_wanted_rate_is_not_resampled(tmp_path: Path) -> None:
    original = sing(1.0, RATE)
    recording = decode(write_raw_wav(tmp_path / "take.wav", original, rate=RATE))
    np.testing.assert_array_equal(recording.samples, original)


@pytest.mark.parametrize("rate", [8_000, 11_025, 44_100, 96_000])
def test_every_rate_keeps_length_and_sound(tmp_path: Path, rate: int) -> None:
    recording = decode(write_raw_wav(tmp_path / "take.wav", sing(1.5, rate), rate=rate))
    expected = sing(1.5, RATE)
    assert abs(len(recording.samples) - len(expected)) <= 1
    assert alignment(recording.samples, expected, max_shift=1) > 0.98
    assert recording.source_seconds == pytest.approx(1.5, abs=1 / rate)


@pytest.mark.parametrize("channels", [2, 8])
def test_channels_are_averaged(tmp_path: Path, channels: int) -> None:
    voices = np.stack([sing(1.0, RATE, pitch_hz=110.0 + 40 * channel) for channel in range(channels)], axis=1)
    path = write_raw_wav(tmp_path / "take.wav", to_pcm16(voices), rate=RATE, channels=channels)
    recording = decode(path)
    np.testing.assert_allclose(recording.samples, voices.mean(axis=1), atol=1e-4)
    assert recording.source_channels == channels


def test_the_sound_of_a_film_is_taken_and_its_pictures_are_not(tmp_path: Path) -> None:
    original, path = to_pcm16(sing(2.0, RATE)), tmp_path / "film.mkv"
    with av.open(path, "w") as container:
        video = add_video_track(container)
        audio = container.add_stream("pcm_s16le", rate=RATE)
        audio.layout = "mono"
        write_black_pictures(container, video)
        for begin in range(0, len(original), RATE // 10):
            frame = av.AudioFrame.from_ndarray(original[None, begin : begin + RATE // 10], format="s16", layout="mono")
            frame.rate, frame.pts = RATE, begin
            container.mux(audio.encode(frame))
    recording = decode(path)
    assert recording.codec == "pcm_s16le"
    np.testing.assert_array_equal(recording.samples, original.astype(np.float32) / 32768)


@pytest.mark.parametrize("size", [0, 0x7FFFF000, 0xFFFFFFFF])
def test_a_wav_from_a_recorder_that_streams_is_read_to_its_end(tmp_path: Path, size: int) -> None:
    path = write_raw_wav(tmp_path / "take.wav", to_pcm16(sing(1.0, RATE)), size=size)
    assert decode(path).seconds == 1.0


@pytest.mark.parametrize("form", [MP3, FLAC], ids=lambda form: form.suffix)
def test_a_tag_with_a_cover_picture_is_skipped(tmp_path: Path, form: Format) -> None:
    path = encode(tmp_path / f"take.{form.suffix}", sing(1.0, 48_000), form)
    picture = b"\xff\xfb\x90\x00#EXTM3U" * 30_000
    size = bytes(len(picture) >> shift & 0x7F for shift in (21, 14, 7, 0))
    path.write_bytes(b"ID3\x04\x00\x00" + size + picture + path.read_bytes())
    assert decode(path).container == form.container


def test_tags_in_an_old_encoding_do_not_matter(tmp_path: Path) -> None:
    samples = to_pcm16(sing(1.0, RATE)).tobytes()
    title = "Müller".encode("latin-1") + b"\0\0"
    info = b"INFOINAM" + len(title).to_bytes(4, "little") + title
    path = write_raw_wav(tmp_path / "take.wav", to_pcm16(sing(1.0, RATE)))
    header = path.read_bytes()[:44]
    path.write_bytes(header + samples + b"LIST" + len(info).to_bytes(4, "little") + info)
    assert decode(path).seconds == 1.0


@pytest.mark.parametrize(
    "name", ['it\'s "mine" & yours; $(true).wav', " two  spaces .wav", "голос 🎤.wav", "no suffix", "-y.wav"]
)
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    assert decode(write_raw_wav(tmp_path / name, sing(1.0, RATE))).source_name == name


def test_what_is_not_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.wav"
    os.mkfifo(pipe)
    (tmp_path / "broken.wav").symlink_to("nowhere")
    for path in (tmp_path, pipe, tmp_path / "broken.wav", tmp_path / "absent.wav", tmp_path / "absent" / "take.wav"):
        with pytest.raises(RecordingNotFound):
            decode(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"Dear diary, this is not a recording.\n" * 100,
        b"PK\x03\x04" + bytes(5_000),
        b"<!doctype html><html><audio src=x></html>" * 50,
        b"RIFF\x24\x00\x00\x00AVI LIST" + bytes(5_000),
        # An ID3 tag that claims to be larger than the file.
        b"ID3\x04\x00\x00\x7f\x7f\x7f\x7f" + bytes(5_000),
    ],
    ids=["empty", "text", "zip", "html", "avi", "endless tag"],
)
def test_what_is_not_audio(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "take.wav"
    path.write_bytes(content)
    with pytest.raises(RecordingNotAudio):
        decode(path)


@pytest.mark.parametrize(("name", "kind"), [("take.wav", "hls"), ("take.m3u8", "hls"), ("take.wav", "concat")])
def test_a_playlist_leads_nowhere(tmp_path: Path, name: str, kind: str) -> None:
    secret = encode(tmp_path / "secret.aac", sing(2.0, 48_000), Format(suffix="aac", codec="aac", container="aac"))
    text = {
        "hls": f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{secret.as_uri()}\n#EXT-X-ENDLIST\n",
        "concat": f"ffconcat version 1.0\nfile '{secret}'\n",
    }
    path = tmp_path / name
    path.write_text(text[kind])
    with pytest.raises(RecordingNotAudio):
        decode(path)


def test_a_film_without_sound(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    with av.open(path, "w") as container:
        write_black_pictures(container, add_video_track(container))
    with pytest.raises(RecordingNotAudio, match="holds no sound"):
        decode(path)


@pytest.mark.parametrize("channels", [9, 1024])
def test_too_many_channels(tmp_path: Path, channels: int) -> None:
    path = write_raw_wav(tmp_path / "take.wav", np.zeros(channels * 50, np.int16), rate=8_000, channels=channels)
    with pytest.raises(RecordingUnsupported, match="channels"):
        decode(path)


@pytest.mark.parametrize("rate", [0, 1, 1_000, 10_000_000, 2**32 - 1])
def test_a_rate_that_no_recorder_has(tmp_path: Path, rate: int) -> None:
    with pytest.raises(RecordingUnsupported, match=f"{rate} Hz"):
        decode(write_raw_wav(tmp_path / "take.wav", np.zeros(2_000, np.int16), rate=rate))


def test_a_codec_beyond_the_list(tmp_path: Path) -> None:
    form = Format(suffix="wav", codec="adpcm_ima_wav", container="wav")
    with pytest.raises(RecordingUnsupported, match="adpcm_ima_wav"):
        decode(encode(tmp_path / "take.wav", sing(1.0, 48_000), form))


@pytest.mark.parametrize("form", [WAV, FLAC, M4A, WEBM], ids=lambda form: form.suffix)
def test_a_broken_off_upload_is_refused(tmp_path: Path, form: Format) -> None:
    path = encode(tmp_path / f"take.{form.suffix}", sing(3.0, 48_000), form)
    os.truncate(path, path.stat().st_size * 6 // 10)
    with pytest.raises(RecordingDamaged):
        decode(path)


def test_a_broken_off_upload_says_how_much_is_there(tmp_path: Path) -> None:
    path = encode(tmp_path / "take.m4a", sing(3.0, 48_000), M4A, container_options={"movflags": "faststart"})
    os.truncate(path, path.stat().st_size * 6 // 10)
    with pytest.raises(RecordingDamaged, match=r"ends after 1\.\d s of the 3\.0 s"):
        decode(path)


def test_a_hole_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = encode(tmp_path / "take.mp3", sing(3.0, 48_000), MP3)
    content = bytearray(path.read_bytes())
    third = len(content) // 3
    content[third : 2 * third] = np.random.default_rng(0).bytes(third)
    path.write_bytes(content)
    with pytest.raises(RecordingDamaged):
        decode(path)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_sample_that_is_no_number(tmp_path: Path, value: float) -> None:
    samples = sing(1.0, 48_000)
    samples[30_000] = value
    with pytest.raises(RecordingDamaged, match="not numbers"):
        decode(write_raw_wav(tmp_path / "take.wav", samples, rate=48_000))


def test_numbers_that_overflow_in_the_resampler_are_no_sound(tmp_path: Path) -> None:
    """Each of them is finite; what came out was not."""
    samples = sing(1.0, 48_000)
    samples[30_000:30_400:2], samples[30_001:30_400:2] = 3e38, -3e38
    with pytest.raises(RecordingDamaged, match=r"3e\+38 times full scale"):
        decode(write_raw_wav(tmp_path / "take.wav", samples, rate=48_000))


def test_a_decompression_bomb_costs_nothing_here(tmp_path: Path) -> None:
    path = write_silent_flac(tmp_path / "take.flac", minutes=30)
    tracemalloc.start()
    try:
        with pytest.raises(RecordingTooLong, match="300 s"):
            decode(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2_000_000


def test_exactly_the_permitted_length_passes(tmp_path: Path) -> None:
    path = encode(tmp_path / "take.flac", sing(2.0, 48_000), FLAC)
    assert decode(path, DecodingLimits(max_seconds=2.0)).seconds == 2.0
    with pytest.raises(RecordingTooLong):
        decode(path, DecodingLimits(max_seconds=1.999))


def test_too_many_bytes_are_not_even_opened(tmp_path: Path) -> None:
    path = tmp_path / "take.wav"
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(RecordingTooLarge):
        decode(path)
