"""What may become of a recording on its way to the one who wants to know: codecs, rooms, platforms."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import av
import numpy as np

from backend.audio.resample import resample
from tests.benchmarks.watermark_takes import RATE, Sound
from training.tempo import Tempo

_MUSIC_SECONDS, _TONE_SECONDS = 60, 3


def code(samples: Sound, codec: str, container: str, bit_rate: int, rate: int = RATE) -> Sound:
    """What is left after a codec."""
    sink = io.BytesIO()
    with av.open(sink, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate, layout="mono", bit_rate=bit_rate)
        resampler = av.AudioResampler(format=stream.format.name, layout="mono", rate=rate)
        integers = (np.clip(samples, -1, 1) * 32767).astype(np.int16)
        frame = av.AudioFrame.from_ndarray(integers.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE, 0, Fraction(1, RATE)
        for piece in (*resampler.resample(frame), *resampler.resample(None)):
            file.mux(stream.encode(piece))
        file.mux(stream.encode(None))
    sink.seek(0)
    with av.open(sink) as file:
        resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE)
        frames = [piece for frame in file.decode(audio=0) for piece in resampler.resample(frame)]
        return np.concatenate([frame.to_ndarray().reshape(-1) for frame in (*frames, *resampler.resample(None))])


def telephone(samples: Sound) -> Sound:
    """300 to 3400 Hz at 8 kHz, mu-law in 8 bits."""
    narrow = resample(samples, RATE, 8000).astype(np.float64)
    spectrum, frequencies = np.fft.rfft(narrow), np.fft.rfftfreq(len(narrow), 1 / 8000)
    narrow = np.clip(np.fft.irfft(spectrum * ((frequencies > 300) & (frequencies < 3400)), n=len(narrow)), -1, 1)
    levels = np.round(np.sign(narrow) * np.log1p(255 * np.abs(narrow)) / np.log1p(255) * 127) / 127
    heard = np.sign(levels) * np.expm1(np.abs(levels) * np.log1p(255)) / 255
    return resample(heard.astype(np.float32), 8000, RATE)


def noise(samples: Sound) -> Sound:
    """White noise 20 dB below."""
    added = np.random.default_rng(len(samples)).standard_normal(len(samples))
    return (samples + added * math.sqrt(float(np.mean(samples**2)) / 100)).astype(np.float32)


def room(samples: Sound) -> Sound:
    """A small room: 0.3 s of reverberation, 3 dB below the direct sound."""
    times = np.arange(round(0.36 * RATE)) / RATE
    response = np.random.default_rng(1).standard_normal(len(times)) * 10 ** (-3 * times / 0.3)
    response[: round(0.003 * RATE)] = 0
    response *= math.sqrt(0.5 / float((response**2).sum()))
    response[0] = 1
    size = 1 << (len(samples) + len(response)).bit_length()
    heard = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(response, size), size)
    return heard[: len(samples)].astype(np.float32)


def equalised(samples: Sound) -> Sound:
    """Six decibels more in the bass and six less in the treble, softer by twelve."""
    spectrum, frequencies = np.fft.rfft(samples), np.fft.rfftfreq(len(samples), 1 / RATE)
    decibels = np.interp(np.log2(np.maximum(frequencies, 50)), np.log2([50, 300, 1500, 8000]), [6, 4, -2, -6]) - 12
    return np.fft.irfft(spectrum * 10 ** (decibels / 20), n=len(samples)).astype(np.float32)


@cache
def played_music() -> Sound:
    """A minute of chords with a beat."""
    draw, times = np.random.default_rng(0), np.arange(_MUSIC_SECONDS * RATE) / RATE
    played = np.zeros(len(times))
    for beat in range(2 * _MUSIC_SECONDS):
        root, begins = (220, 174.6, 261.6, 196)[beat // 4 % 4], beat * RATE // 2
        since = times[begins : begins + _TONE_SECONDS * RATE] - beat / 2
        decay = np.exp(-4 * since)
        tone = 0.8 * decay**10 * draw.standard_normal(len(since))
        for multiple in (1, 1.25, 1.5, 2, 3, 4, 5, 6, 8):
            tone += decay * np.sin(2 * np.pi * root * multiple * since + 6 * draw.random()) / multiple**0.7
        played[begins : begins + len(tone)] += tone
    return played.astype(np.float32)


def music(samples: Sound) -> Sound:
    """Music 10 dB below the speech."""
    played = np.resize(played_music(), len(samples))
    return samples + played * np.float32(math.sqrt(float(np.mean(samples**2)) / float(np.mean(played**2)) / 10))


def faster(samples: Sound, speed: float) -> Sound:
    """Played faster, and so higher."""
    return resample(samples, round(RATE * speed), RATE)


def in_time(samples: Sound, speed: float) -> Sound:
    """Faster at the same pitch."""
    tempo = Tempo(speed, RATE)
    return np.concatenate([tempo.add(samples), tempo.finish()])


CHANGES: dict[str, Callable[[Sound], Sound]] = {
    "untouched": lambda sound: sound,
    "mp3 64 kbit/s": lambda sound: code(sound, "libmp3lame", "mp3", 64_000),
    "mp3 32 kbit/s": lambda sound: code(sound, "libmp3lame", "mp3", 32_000),
    "opus 24 kbit/s": lambda sound: code(sound, "libopus", "ogg", 24_000, 48_000),
    "m4a (AAC) 64 kbit/s": lambda sound: code(sound, "aac", "mp4", 64_000),
    "12 dB louder, clipped": lambda sound: np.clip(sound * 4, -1, 1),
    "equalised and 12 dB softer": equalised,
    "16 kHz": lambda sound: resample(resample(sound, RATE, 16_000), 16_000, RATE),
    "telephone (8 kHz, mu-law)": telephone,
    "noise at 20 dB": noise,
    "small room": room,
    "speed and pitch +3 %": lambda sound: faster(sound, 1.03),
    "speed and pitch -4.75 %": lambda sound: faster(sound, 0.9525),
    "speed alone +4 %": lambda sound: in_time(sound, 1.04),
    "pitch alone -3 %": lambda sound: in_time(faster(sound, 0.97), 1 / 0.97),
    "music at 10 dB": music,
}
