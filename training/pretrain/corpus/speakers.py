"""The speakers of the corpus: a few engine voices, each varied into many by four numbers, and many by a timbre too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from training.pretrain.corpus.likeness import Likeness
from training.pretrain.corpus.timbre import Timbre

FLITE, ESPEAK, PICO, RHVOICE = "flite", "espeak-ng", "pico2wave", "RHVoice-test"
FESTIVAL, RECORDED = "text2wave", "recordings"
HELD_OUT_VOICE = "rms"
"""flite's voice that no training utterance uses: the unseen speaker."""

# Ranges beyond which the result stops sounding like a person.
F0_RANGE = (0.75, 1.45)
FORMANT_RANGE = (0.84, 1.20)
RATE_RANGE = (0.88, 1.15)

# Wider for some speakers, so that the voices of children and very low or fast ones are not far from those known.
WIDE_F0_RANGE = (0.62, 1.7)
WIDE_FORMANT_RANGE = (0.78, 1.28)
WIDE_RATE_RANGE = (0.8, 1.3)

# Voice -> number of speakers derived from it. kal16 is a diphone voice: less natural, but distinct.
_FLITE_VOICES = {"slt": 225, "awb": 225, "kal16": 120}
_WIDE_FLITE_VOICES = {"slt": 300, "awb": 300, "kal16": 120}
# With timbres of their own. In the wide ranges too, some of them would not be understood any more.
_OTHER_FLITE_VOICES = {"slt": 480, "awb": 480, "kal16": 160}
# Standard deviation of f0 in Hz, from monotonous to lively; kal16 loses its pitch marks above 20.
_F0_SPREAD_HZ = {"slt": (12.0, 45.0), "awb": (10.0, 40.0), "kal16": (6.0, 20.0)}
# Robotic, hence only one speaker in twenty.
_ESPEAK_VOICES = ("en-us", "en-us+f2", "en-us+f3", "en-us+f4", "en-us+m3", "en-us+m7", "en-gb", "en-gb+f5")
_NUM_ESPEAK = 60
_NUM_OTHER_ESPEAK = 40
# Voices of other languages, as far as their licences let them be altered. They read English by rules of their own, so
# that the talker hears them without text, if at all. festival's ked is the judges', and none of these.
FOREIGN_VOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        RHVOICE: (
            *("Aleksandr", "Alicja", "Anatol", "Anna", "Azamat", "Elena", "Irina", "Magda"),
            *("Michal", "Natalia", "Natan", "Nazgul", "Ondro", "Spomenka", "Zdenek"),
        ),
        PICO: ("de-DE", "es-ES", "fr-FR", "it-IT"),
        FESTIVAL: (
            *("czech_dita", "czech_krb", "czech_machac", "czech_ph", "hy_fi_mv_diphone", "lp_diphone", "pc_diphone"),
            *("suo_fi_lj_diphone", "upc_ca_ona_hts", "msu_ru_nsh_clunits"),
        ),
        RECORDED: ("asterisk-ru",),
    }
)
_SAY_OWN_SENTENCES = ("msu_ru_nsh_clunits", "asterisk-ru")
"""Two Russians, see own_sentences.py."""
_NUM_FOREIGN = 40
# Made like people of those, of each voice that speaks English well; in turn with timbres of their own.
_NUM_LIKE = 600
_LIKE_FLITE_VOICES = ("slt", "awb")
_NUM_UNSEEN_PER_VOICE = {"slt": 4, "awb": 4, "kal16": 2}


@dataclass(frozen=True, kw_only=True)
class Speaker:
    """One speaker: an engine's voice, and how it differs from the engine's defaults."""

    name: str
    engine: str
    voice: str
    f0: float = 1.0
    """Pitch relative to the voice's own."""
    formants: float = 1.0
    """Formant frequencies relative to the voice's own: above 1 a shorter vocal tract."""
    rate: float = 1.0
    """Speaking rate relative to the voice's own."""
    f0_spread_hz: float | None = None
    """Standard deviation of f0 passed to flite; None for the voice's own."""
    likeness: Likeness | None = None
    """Whom it is made like."""
    timbre: Timbre | None = None
    """What its sound is filtered by, in the end."""

    @property
    def says_own_sentences(self) -> bool:
        """Whether it does not say what it is given."""
        return self.voice in _SAY_OWN_SENTENCES


@dataclass(frozen=True, kw_only=True)
class ExtraVoices:
    """An engine's voices that speak in the training part where it is installed: Debian keeps it outside of main."""

    names: Mapping[str, str]
    """Voice -> name of the speaker who is that voice as it is; others are called after it."""
    f0_range: tuple[float, float]
    formant_range: tuple[float, float]
    rate_range: tuple[float, float]
    num_speakers: int
    """Derived from each voice."""
    num_others: int
    """Derived from each voice, with timbres of their own."""


EXTRA_VOICES: Mapping[str, ExtraVoices] = MappingProxyType(
    {
        # Two women's, and clear. With shorter tracts than these they are hard to understand: most are longer.
        PICO: ExtraVoices(
            names={"en-US": "pico-us", "en-GB": "pico-gb"},
            f0_range=(0.6, 1.3),
            formant_range=(0.78, 1.08),
            rate_range=(0.85, 1.25),
            num_speakers=250,
            num_others=350,
        ),
        # A Scot, an American and an American woman. Two other voices may not be altered under their licence, and slt is
        # flite's, too. The engine keeps pitch between half and twice the voice's own.
        RHVOICE: ExtraVoices(
            names={"Alan": "alan", "Bdl": "bdl", "Clb": "clb"},
            f0_range=(0.7, 1.5),
            formant_range=(0.82, 1.22),
            rate_range=(0.85, 1.25),
            num_speakers=200,
            num_others=300,
        ),
    }
)


@cache
def training_speakers() -> tuple[Speaker, ...]:
    """The speakers of the training part, the unmodified engine voices first."""
    plain = [Speaker(name=voice, engine=FLITE, voice=voice) for voice in _FLITE_VOICES]
    varied = [
        _varied(f"{voice}-{number:03d}", voice, number)
        for voice, num_speakers in _FLITE_VOICES.items()
        for number in range(1, num_speakers)
    ]
    wide = [
        _varied(f"{voice}-wide-{number:03d}", voice, number, wide=True)
        for voice, num_speakers in _WIDE_FLITE_VOICES.items()
        for number in range(1, num_speakers + 1)
    ]
    other = [
        _varied(f"{voice}-other-{number:03d}", voice, number, has_timbre=True)
        for voice, num_speakers in _OTHER_FLITE_VOICES.items()
        for number in range(1, num_speakers + 1)
    ]
    robots = [_espeak(number, has_timbre=number >= _NUM_ESPEAK) for number in range(_NUM_ESPEAK + _NUM_OTHER_ESPEAK)]
    return (*plain, *varied, *wide, *other, *robots)


@cache
def extra_speakers(engine: str) -> tuple[Speaker, ...]:
    """More speakers of the training part, where one of `EXTRA_VOICES` is installed."""
    voices = EXTRA_VOICES[engine]
    plain = [Speaker(name=name, engine=engine, voice=voice) for voice, name in voices.names.items()]
    varied = [
        _extra(f"{name}-{number:03d}", engine, voice, number, has_timbre=False)
        for voice, name in voices.names.items()
        for number in range(1, voices.num_speakers)
    ]
    other = [
        _extra(f"{name}-other-{number:03d}", engine, voice, voices.num_speakers + number, has_timbre=True)
        for voice, name in voices.names.items()
        for number in range(voices.num_others)
    ]
    return (*plain, *varied, *other)


@cache
def foreign_speakers() -> tuple[Speaker, ...]:
    """Speakers made of voices of other languages, those voices as they are first."""
    voices = [(engine, voice) for engine, voices in FOREIGN_VOICES.items() for voice in voices]
    plain = [Speaker(name=voice.lower(), engine=engine, voice=voice) for engine, voice in voices]
    varied = [
        _foreign(f"{voice.lower()}-{number:03d}", engine, voice, number)
        for engine, voice in voices
        for number in range(1, _NUM_FOREIGN)
    ]
    return (*plain, *varied)


@cache
def like_speakers() -> tuple[Speaker, ...]:
    """More speakers of the training part, where voices of other languages are installed that they are made like."""
    voices = [(FLITE, voice, voice) for voice in _LIKE_FLITE_VOICES]
    voices += [(engine, voice, name) for engine, of in EXTRA_VOICES.items() for voice, name in of.names.items()]
    return tuple(
        _like(f"{name}-like-{number:03d}", engine, voice, number)
        for engine, voice, name in voices
        for number in range(1, _NUM_LIKE + 1)
    )


@cache
def unseen_parameter_speakers() -> tuple[Speaker, ...]:
    """Speakers of the training voices with numbers that no training speaker has."""
    return tuple(
        _varied(f"{voice}-unseen-{number}", voice, _FLITE_VOICES[voice] + 37 * (number + 1))
        for voice, num_speakers in _NUM_UNSEEN_PER_VOICE.items()
        for number in range(num_speakers)
    )


@cache
def unseen_voice() -> Speaker:
    """The held-out voice as the engine speaks it; flite cannot change its pitch."""
    return Speaker(name=HELD_OUT_VOICE, engine=FLITE, voice=HELD_OUT_VOICE)


@cache
def by_name() -> Mapping[str, Speaker]:
    """All speakers by name."""
    extra = (speaker for engine in EXTRA_VOICES for speaker in extra_speakers(engine))
    others = (*foreign_speakers(), *like_speakers(), *unseen_parameter_speakers(), unseen_voice())
    everyone = (*training_speakers(), *extra, *others)
    return MappingProxyType({speaker.name: speaker for speaker in everyone})


def _varied(name: str, voice: str, number: int, *, wide: bool = False, has_timbre: bool = False) -> Speaker:
    low_hz, high_hz = _F0_SPREAD_HZ[voice]
    return Speaker(
        name=name,
        engine=FLITE,
        voice=voice,
        f0=_between(WIDE_F0_RANGE if wide else F0_RANGE, number, base=2),
        formants=_between(WIDE_FORMANT_RANGE if wide else FORMANT_RANGE, number, base=3),
        rate=_between(WIDE_RATE_RANGE if wide else RATE_RANGE, number, base=5),
        f0_spread_hz=round(low_hz + (high_hz - low_hz) * _halton(number, base=7), 1),
        timbre=Timbre.drawn(name) if has_timbre else None,
    )


def _espeak(number: int, *, has_timbre: bool) -> Speaker:
    name = f"espeak-{number:03d}"
    return Speaker(
        name=name,
        engine=ESPEAK,
        voice=_ESPEAK_VOICES[number % len(_ESPEAK_VOICES)],
        f0=_between(F0_RANGE, number + 1, base=2),
        formants=_between(FORMANT_RANGE, number + 1, base=3),
        rate=_between(RATE_RANGE, number + 1, base=5),
        timbre=Timbre.drawn(name) if has_timbre else None,
    )


def _extra(name: str, engine: str, voice: str, number: int, *, has_timbre: bool) -> Speaker:
    ranges = EXTRA_VOICES[engine]
    return Speaker(
        name=name,
        engine=engine,
        voice=voice,
        f0=_between(ranges.f0_range, number, base=2),
        formants=_between(ranges.formant_range, number, base=3),
        rate=_between(ranges.rate_range, number, base=5),
        timbre=Timbre.drawn(name) if has_timbre else None,
    )


def _foreign(name: str, engine: str, voice: str, number: int) -> Speaker:
    has_timbre = number % 2 == 0
    if engine in EXTRA_VOICES:
        return _extra(name, engine, voice, number, has_timbre=has_timbre)
    # Pitch and rate of these cannot be set, and change with the tract.
    tract = _between(FORMANT_RANGE, number, base=3)
    timbre = Timbre.drawn(name) if has_timbre else None
    return Speaker(name=name, engine=engine, voice=voice, f0=tract, formants=tract, rate=tract, timbre=timbre)


def _like(name: str, engine: str, voice: str, number: int) -> Speaker:
    pitches, rates = WIDE_F0_RANGE, RATE_RANGE
    if engine in EXTRA_VOICES:
        pitches, rates = EXTRA_VOICES[engine].f0_range, EXTRA_VOICES[engine].rate_range
    people = tuple(voice.lower() for voices in FOREIGN_VOICES.values() for voice in voices)
    return Speaker(
        name=name,
        engine=engine,
        voice=voice,
        f0=_between(pitches, number, base=2),
        rate=_between(rates, number, base=5),
        likeness=Likeness.drawn(name, people),
        timbre=Timbre.drawn(name) if number % 2 == 0 else None,
    )


def _between(limits: tuple[float, float], number: int, *, base: int) -> float:
    """A value of the range, distributed evenly over its logarithm."""
    low, high = limits
    return round(float(low * (high / low) ** _halton(number, base=base)), 4)


def _halton(number: int, *, base: int) -> float:
    """A low-discrepancy sequence: any run of numbers covers (0, 1) evenly, without drawing at random."""
    value, weight = 0.0, 1.0
    while number:
        number, digit = divmod(number, base)
        weight /= base
        value += digit * weight
    return value
