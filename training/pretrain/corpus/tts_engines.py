"""Text to speech by flite, espeak-ng and, where they are installed, pico2wave, RHVoice and festival.

It makes the corpus; the app does not need it.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from training.pretrain.corpus.likeness import VoiceSpectrum, made_like
from training.pretrain.corpus.own_sentences import RUSSIAN_PROMPTS, own_sentence, recorded
from training.pretrain.corpus.speakers import (
    ESPEAK,
    EXTRA_VOICES,
    FESTIVAL,
    FLITE,
    PICO,
    RECORDED,
    RHVOICE,
    Speaker,
    by_name,
    foreign_speakers,
    like_speakers,
)
from training.pretrain.errors import CorpusError

SAMPLE_RATE_HZ = 16_000
MAX_SILENCE_SECONDS = 0.12
"""Maximum silence before and after an utterance."""

# flite's own stretch, which `duration_stretch` replaces.
_FLITE_STRETCH = {"kal16": 1.1}
_ESPEAK_WORDS_PER_MINUTE = 160  # as fast as the flite voices
_ESPEAK_PITCH_PER_OCTAVE = 70  # measured: 20, 50 and 80 give 84, 101 and 138 Hz
_PICO_SPEED = 115  # as fast as the flite voices
_RHVOICE_VOICES = Path("/usr/share/RHVoice/voices")
_FESTIVAL_VOICES = Path("/usr/share/festival/voices")
_LEVEL_DBFS = -23.0
_FULL_SCALE = 32768
# Half a minute that voices of all languages can say, and for those that say sentences of their own, as many of these.
_KNOWN_BY = (
    "Please remember to bring a warm coat and a good pair of shoes.",
    "Nobody told us about the long delay at the station.",
    "A young man in a red hat is waiting for you outside.",
    "Do you want to come along, or would you rather stay at home?",
    "In summer the garden is full of birds and butterflies.",
    "My uncle sold the old boat and bought a small farm in the hills.",
    "You can pay now or later, just as you like.",
    "They found a box of letters under the floor of the empty house.",
    "Our team lost the first game and won the other five.",
    "The doctor said that you need a lot of sleep.",
)
_PEAK = 0.9
_FRAME = SAMPLE_RATE_HZ // 100
# Frames this far below the loudest one are silence: quieter than any speech sound here, louder than kal16's hum.
_SILENCE_DB = -42.0
_ENGINE_SECONDS = (
    600  # an utterance takes 0.1 s; this is for an engine that hangs, and a busy machine may stop it for long
)


def installed_extras() -> tuple[str, ...]:
    """Which of the engines with `EXTRA_VOICES` can speak: good voices, but Debian keeps them outside of main."""
    return tuple(
        engine
        for engine, voices in EXTRA_VOICES.items()
        if shutil.which(engine) is not None and all(_has_voice(engine, voice) for voice in voices.names)
    )


def installed_foreign_speakers() -> tuple[Speaker, ...]:
    """Those of `foreign_speakers` whose voices are installed."""
    return tuple(speaker for speaker in foreign_speakers() if _can_speak(speaker))


def installed_like_speakers() -> tuple[Speaker, ...]:
    """Those of `like_speakers` whose own voice and both people's are installed."""
    people = {speaker.name for speaker in installed_foreign_speakers()}
    return tuple(
        speaker
        for speaker in like_speakers()
        if _can_speak(speaker) and speaker.likeness is not None and people.issuperset(speaker.likeness.people)
    )


def _can_speak(speaker: Speaker) -> bool:
    if speaker.engine == RECORDED:
        return RUSSIAN_PROMPTS.is_dir()
    return shutil.which(speaker.engine) is not None and _has_voice(speaker.engine, speaker.voice)


def _has_voice(engine: str, voice: str) -> bool:
    if engine == FESTIVAL:
        return any(_FESTIVAL_VOICES.glob(f"*/{voice}"))
    # RHVoice says what it is given with any other voice where it does not have the one.
    return engine != RHVOICE or (_RHVOICE_VOICES / voice.lower()).is_dir()


def versions() -> dict[str, str]:
    """Version of each engine; of those that tell none, a digest of what they say.

    Raises:
        CorpusError: one that is needed is not installed.
    """
    found = {}
    for engine in (FLITE, ESPEAK):
        if shutil.which(engine) is None:
            raise CorpusError(f"{engine} is not installed. Install it with: apt-get install {engine}")
        said = subprocess.run([engine, "--version"], capture_output=True, text=True, check=False)
        version = re.search(r"(?:version:? flite-|text-to-speech: )(\S+)", said.stdout + said.stderr)
        found[engine] = version[1] if version else "unknown"
    for engine in installed_extras():
        voice, name = next(iter(EXTRA_VOICES[engine].names.items()))
        sample = _engine_output(Speaker(name=name, engine=engine, voice=voice), "One, two, three.")
        found[engine] = hashlib.sha256(sample).hexdigest()[:12]
    for speaker in installed_foreign_speakers():
        if speaker.engine not in (RECORDED, *found):
            found[speaker.engine] = hashlib.sha256(_engine_output(speaker, "One, two, three.")).hexdigest()[:12]
    return found


def synthesize(speaker: Speaker, text: str) -> NDArray[np.int16]:
    """Speak a text: 16 kHz mono, silence trimmed, loudness normalised.

    Raises:
        CorpusError: the engine failed, or made no sound.
    """
    samples, rate_hz = soundfile.read(io.BytesIO(_engine_output(speaker, text)), dtype="float32")
    # Playing faster by the formant factor shortens the vocal tract; pitch and rate were compensated in advance.
    samples = soxr.resample(samples, rate_hz * speaker.formants, SAMPLE_RATE_HZ)
    if speaker.likeness is not None and len(samples):
        first, second = (_spectrum(by_name()[name]) for name in speaker.likeness.people)
        # At the voice's own pitch, of which so few coefficients know nothing.
        own = _spectrum(Speaker(name=speaker.voice, engine=speaker.engine, voice=speaker.voice))
        wanted = first.towards(second, speaker.likeness.share)
        samples = made_like(samples, own, wanted, speaker.likeness.amount)
    if speaker.timbre is not None and len(samples):
        samples = speaker.timbre.applied(samples)
    tidied = tidy(samples)
    if tidied is None:
        raise CorpusError(f"{speaker.engine} makes no sound for {text!r} as {speaker.name}.")
    return tidied


@cache
def _spectrum(speaker: Speaker) -> VoiceSpectrum:
    """What a voice is like; of each it takes some seconds once."""
    said = [synthesize(speaker, text).astype(np.float32) / np.float32(_FULL_SCALE) for text in _KNOWN_BY]
    return VoiceSpectrum.of(said)


def tidy(samples: NDArray[np.float32]) -> NDArray[np.int16] | None:
    """Trim and level speech at SAMPLE_RATE_HZ as all of the corpus is; None if it is nothing but silence."""
    trimmed = _trim(samples)
    return _level(trimmed) if len(trimmed) else None


def _engine_output(speaker: Speaker, text: str) -> bytes:
    """The file that the engine writes."""
    if speaker.engine == RECORDED:
        return recorded(text)
    if speaker.says_own_sentences:
        text = own_sentence(text)
    with tempfile.TemporaryDirectory(prefix="speech-") as folder:
        # pico2wave and RHVoice write to no pipe, festival not how much there is, and pico2wave asks for this ending.
        file = Path(folder) / "said.wav"
        command = _command(speaker, text, file)
        typed = text.encode() if speaker.engine in (RHVOICE, FESTIVAL) else None
        said = subprocess.run(command, input=typed, capture_output=True, check=False, timeout=_ENGINE_SECONDS)
        output = file.read_bytes() if file.is_file() else said.stdout
    if said.returncode != 0 or not output:
        reason = said.stderr.decode(errors="replace").strip() or "no audio"
        raise CorpusError(f"{speaker.engine} cannot say {text!r} as {speaker.name}: {reason}")
    return output


def _command(speaker: Speaker, text: str, file: Path) -> list[str]:
    if speaker.engine == PICO:
        return _pico_command(speaker, text, file)
    if speaker.engine == RHVOICE:
        return _rhvoice_command(speaker, file)
    if speaker.engine == FESTIVAL:
        return [FESTIVAL, "-eval", f"(voice_{speaker.voice})", "-o", str(file)]
    return _flite_command(speaker, text) if speaker.engine == FLITE else _espeak_command(speaker, text)


def _flite_command(speaker: Speaker, text: str) -> list[str]:
    stretch = _FLITE_STRETCH.get(speaker.voice, 1.0) * speaker.formants / speaker.rate
    settings = {"f0_shift": speaker.f0 / speaker.formants, "duration_stretch": stretch}
    if speaker.f0_spread_hz is not None:
        settings["int_f0_target_stddev"] = speaker.f0_spread_hz
    options = [part for name, value in settings.items() for part in ("--setf", f"{name}={value:.4f}")]
    return [FLITE, "-voice", speaker.voice, *options, "-t", text, "-o", "/dev/stdout"]


def _espeak_command(speaker: Speaker, text: str) -> list[str]:
    pitch = 50 + _ESPEAK_PITCH_PER_OCTAVE * math.log2(speaker.f0 / speaker.formants)
    words_per_minute = _ESPEAK_WORDS_PER_MINUTE * speaker.rate / speaker.formants
    pitch = min(max(pitch, 0), 99)
    options = ["-v", speaker.voice, "-p", f"{pitch:.0f}", "-s", f"{words_per_minute:.0f}"]
    return [ESPEAK, *options, "--stdout", text]


def _pico_command(speaker: Speaker, text: str, file: Path) -> list[str]:
    pitch = 100 * speaker.f0 / speaker.formants
    speed = _PICO_SPEED * speaker.rate / speaker.formants
    # It knows tags, but no entities.
    plain = re.sub("[<>]", " ", text)
    said = f'<pitch level="{pitch:.0f}"><speed level="{speed:.0f}">{plain}</speed></pitch>'
    return [PICO, "--lang", speaker.voice, "--wave", str(file), said]


def _rhvoice_command(speaker: Speaker, file: Path) -> list[str]:
    pitch = 100 * speaker.f0 / speaker.formants
    rate = 100 * speaker.rate / speaker.formants
    return [RHVOICE, "-p", speaker.voice, "-t", f"{pitch:.0f}", "-r", f"{rate:.0f}", "-o", str(file)]


def _trim(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Trim silence at both ends to MAX_SILENCE_SECONDS; empty if all is silence."""
    num_frames = len(samples) // _FRAME
    energies = np.square(samples[: num_frames * _FRAME].reshape(num_frames, _FRAME)).mean(axis=1)
    if not num_frames or energies.max() == 0:
        return samples[:0]
    loud = np.flatnonzero(energies > energies.max() * 10 ** (_SILENCE_DB / 10))
    margin = int(MAX_SILENCE_SECONDS * SAMPLE_RATE_HZ)
    return samples[max(0, loud[0] * _FRAME - margin) : (loud[-1] + 1) * _FRAME + margin]


def _level(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """Normalise the loudness, with less gain if peaks would clip."""
    wanted = 10 ** (_LEVEL_DBFS / 20) / float(np.sqrt(np.square(samples, dtype=np.float64).mean()))
    gain = min(wanted, _PEAK / float(np.abs(samples).max()))
    return np.round(samples * (gain * (_FULL_SCALE - 1))).astype(np.int16)
