import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from training.pretrain.corpus import speakers
from training.pretrain.corpus import tts_engines as engines
from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ, synthesize

TEXT = "We were away a year ago, when all our money ran low."


def f0_hz(audio: NDArray[np.int16]) -> float:
    """Median pitch of the voiced frames, by autocorrelation."""
    window = np.hanning(1024)
    window_correlation = np.fft.irfft(np.abs(np.fft.rfft(window, 2048)) ** 2)[:230]
    found = []
    for start in range(0, len(audio) - 1024, 320):
        frame = audio[start : start + 1024] / 32768
        correlation = np.fft.irfft(np.abs(np.fft.rfft((frame - frame.mean()) * window, 2048)) ** 2)[:230]
        correlation = correlation / window_correlation
        lag = 38 + int(correlation[38:].argmax())
        if np.sqrt(np.square(frame).mean()) > 0.04 and correlation[lag] > 0.6 * correlation[0]:
            found.append(SAMPLE_RATE_HZ / lag)
    return float(np.median(found))


def formant_shift(plain: NDArray[np.int16], shifted: NDArray[np.int16]) -> float:
    """The factor that lays one long-term spectrum's shape over the other's, 300 to 4500 Hz."""
    smooth = np.hanning(61) / np.hanning(61).sum()
    hz = np.linspace(300, 4500, 400)

    def spectrum(audio: NDArray[np.int16]) -> NDArray[np.float64]:
        frames = np.lib.stride_tricks.sliding_window_view(audio.astype(float), 512)[::128] * np.hanning(512)
        power = np.square(np.abs(np.fft.rfft(frames, 2048))).mean(axis=0)
        shape: NDArray[np.float64] = np.convolve(np.log(power + 1e-9), smooth, "same")
        return shape

    bins = np.fft.rfftfreq(2048, 1 / SAMPLE_RATE_HZ)
    before, after = spectrum(plain), spectrum(shifted)

    def mismatch(factor: float) -> float:
        difference = np.interp(hz, bins, after) - np.interp(hz / factor, bins, before)
        return float((difference - np.polyval(np.polyfit(hz, difference, 1), hz)).std())

    candidates: list[float] = np.geomspace(0.7, 1.4, 71).tolist()
    return min(candidates, key=mismatch)


def check_changes(
    plain_speaker: speakers.Speaker, changed: dict[str, Any], tolerance: float, of_formants: float
) -> None:
    """What is changed has changed by that factor, and nothing else has."""
    plain = synthesize(plain_speaker, TEXT)
    shifted = synthesize(dataclasses.replace(plain_speaker, **changed), TEXT)
    wanted = {"f0": 1.0, "formants": 1.0, "rate": 1.0} | changed
    assert f0_hz(shifted) / f0_hz(plain) == pytest.approx(wanted["f0"], rel=tolerance)
    assert formant_shift(plain, shifted) == pytest.approx(wanted["formants"], rel=of_formants)
    assert len(plain) / len(shifted) == pytest.approx(wanted["rate"], rel=tolerance)


def test_the_held_out_voice_speaks_in_no_training_utterance():
    everyone = [*speakers.training_speakers(), *speakers.unseen_parameter_speakers()]
    assert speakers.HELD_OUT_VOICE not in {speaker.voice for speaker in everyone}
    assert speakers.unseen_voice() == speakers.Speaker(name="rms", engine="flite", voice="rms")


def test_speakers_are_several_hundred_and_all_different():
    training = speakers.training_speakers()
    assert len(training) >= 400
    extra = [speaker for engine in speakers.EXTRA_VOICES for speaker in speakers.extra_speakers(engine)]
    others = [*speakers.foreign_speakers(), *speakers.like_speakers(), *speakers.unseen_parameter_speakers()]
    others.append(speakers.unseen_voice())
    assert len(speakers.by_name()) == len(training) + len(extra) + len(others)
    settings = {dataclasses.replace(speaker, name="") for speaker in speakers.by_name().values()}
    assert len(settings) == len(speakers.by_name())
    share_of_espeak = sum(speaker.engine == speakers.ESPEAK for speaker in training) / len(training)
    assert 0.03 <= share_of_espeak <= 0.07


@pytest.mark.parametrize("engine", speakers.EXTRA_VOICES)
def test_an_extra_voice_has_as_many_speakers_as_any_other_voice_of_flite(engine: str):
    extra, voices = speakers.extra_speakers(engine), speakers.EXTRA_VOICES[engine]
    for voice, name in voices.names.items():
        own = [speaker for speaker in extra if speaker.voice == voice]
        assert 400 <= len(own) <= 1000
        assert own[0] == speakers.Speaker(name=name, engine=engine, voice=voice)
        assert len({speaker.timbre for speaker in own}) > len(own) / 2
    assert {speaker.engine for speaker in extra} == {engine}
    for of, (low, high) in {
        "f0": voices.f0_range,
        "formants": voices.formant_range,
        "rate": voices.rate_range,
    }.items():
        values = [getattr(speaker, of) for speaker in extra]
        assert low <= min(values) < low * 1.02
        assert high * 0.98 < max(values) <= high


def test_voices_of_other_languages_read_nothing_to_the_talker():
    taught = {speaker.voice for speaker in (*speakers.training_speakers(), *speakers.extra_speakers(speakers.RHVOICE))}
    foreign = {(engine, voice) for engine, voices in speakers.FOREIGN_VOICES.items() for voice in voices}
    assert not taught & {voice for _, voice in foreign}
    assert {(speaker.engine, speaker.voice) for speaker in speakers.foreign_speakers()} == foreign
    # The judges' voices are in no part.
    assert not {"ked_diphone", "rms"} & {voice for _, voice in foreign}


@pytest.mark.needs_program("rhvoice")
def test_a_voice_that_is_not_installed_is_not_taken_for_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "zdenek").mkdir()
    monkeypatch.setattr(engines, "_RHVOICE_VOICES", tmp_path)
    assert speakers.RHVOICE not in engines.installed_extras()
    speaking = [speaker for speaker in engines.installed_foreign_speakers() if speaker.engine == speakers.RHVOICE]
    assert {speaker.voice for speaker in speaking} == {"Zdenek"}


def test_no_pitch_of_rhvoice_is_beyond_what_it_speaks():
    everyone = [*speakers.extra_speakers(speakers.RHVOICE), *speakers.foreign_speakers()]
    pitches = [speaker.f0 / speaker.formants for speaker in everyone]
    assert min(pitches) >= 0.5
    assert max(pitches) <= 2


@pytest.mark.needs_program("rhvoice")
@pytest.mark.parametrize(
    "changed", [{"f0": 0.7}, {"f0": 1.5}, {"formants": 0.82}, {"formants": 1.2}, {"rate": 0.85}, {"rate": 1.25}]
)
def test_each_number_changes_what_rhvoice_says_and_nothing_else(changed: dict[str, Any]):
    check_changes(speakers.by_name()["bdl"], changed, 0.06, 0.05)


@pytest.mark.needs_program("libttspico-utils")
@pytest.mark.parametrize(
    "changed", [{"f0": 0.7}, {"f0": 1.3}, {"formants": 0.8}, {"formants": 1.08}, {"rate": 0.85}, {"rate": 1.25}]
)
def test_each_number_changes_what_pico_says_and_nothing_else(changed: dict[str, Any]):
    check_changes(speakers.by_name()["pico-us"], changed, 0.06, 0.05)


@pytest.mark.needs_program("libttspico-utils")
def test_pico_takes_no_text_for_a_tag():
    speaker = speakers.by_name()["pico-gb"]
    plain = synthesize(speaker, "It is less than that.")
    assert len(synthesize(speaker, 'It is <pitch level="50"> less than that.')) > len(plain)


@pytest.mark.parametrize(
    ("of", "wide", "limits"),
    [
        ("f0", False, speakers.F0_RANGE),
        ("formants", False, speakers.FORMANT_RANGE),
        ("rate", False, speakers.RATE_RANGE),
        ("f0", True, speakers.WIDE_F0_RANGE),
        ("formants", True, speakers.WIDE_FORMANT_RANGE),
        ("rate", True, speakers.WIDE_RATE_RANGE),
    ],
)
def test_speakers_fill_the_ranges_and_stay_inside(of: str, wide: bool, limits: tuple[float, float]):
    low, high = limits
    values = [getattr(speaker, of) for speaker in speakers.training_speakers() if ("-wide-" in speaker.name) is wide]
    assert low <= min(values) < low * 1.02
    assert high * 0.98 < max(values) <= high


@pytest.mark.needs_program("flite")
@pytest.mark.parametrize("voice", ["slt", "awb"])
@pytest.mark.parametrize(
    "changed", [{"f0": 0.75}, {"f0": 1.45}, {"formants": 0.84}, {"formants": 1.2}, {"rate": 0.88}, {"rate": 1.15}]
)
def test_each_number_changes_what_it_says_and_nothing_else(voice: str, changed: dict[str, Any]):
    check_changes(speakers.Speaker(name=voice, engine=speakers.FLITE, voice=voice), changed, 0.04, 0.04)


@pytest.mark.needs_program("flite")
def test_an_utterance_is_trimmed_and_as_loud_as_the_others():
    for speaker in (speakers.by_name()["kal16"], speakers.unseen_voice()):
        audio = synthesize(speaker, "Good morning.").astype(float)
        energies = np.square(audio[: len(audio) // 160 * 160].reshape(-1, 160)).mean(axis=1)
        loud = np.flatnonzero(energies > energies.max() * 10**-4.2)
        num_silent_frames = int(engines.MAX_SILENCE_SECONDS * 100) + 2
        assert 0 < loud[0] <= num_silent_frames
        assert 0 < len(energies) - 1 - loud[-1] <= num_silent_frames
        assert 20 * np.log10(np.sqrt(np.square(audio).mean()) / 32768) == pytest.approx(-23, abs=0.2)


@pytest.mark.needs_program("espeak-ng")
def test_espeak_follows_pitch_and_rate():
    plain_speaker = speakers.Speaker(name="espeak", engine=speakers.ESPEAK, voice="en-us+f3")
    plain = synthesize(plain_speaker, TEXT)
    higher = synthesize(dataclasses.replace(plain_speaker, f0=1.2), TEXT)
    faster = synthesize(dataclasses.replace(plain_speaker, rate=1.15), TEXT)
    assert f0_hz(higher) / f0_hz(plain) == pytest.approx(1.2, rel=0.08)
    assert len(plain) / len(faster) == pytest.approx(1.15, rel=0.06)
