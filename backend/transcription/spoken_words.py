"""A text as the words that are said: without case and punctuation, with numbers, signs and abbreviations spelled out.

"$20", "Dr.", "1984" and "don't" can be said, and written, in more than one way. All of them are kept, so that a
comparison with what was heard may choose.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

Reading = tuple[str, ...]
"""The words of one way to say something; empty where it may be left unsaid."""

# Languages whose texts have no spaces are compared sign by sign.
_UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
_SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (10**3, "thousand"), (100, "hundred"))
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
# Longer numbers are nobody's quantity: they are read digit by digit.
_MOST_DIGITS = 15

_CURRENCIES = {"$": ("dollar", "dollars"), "£": ("pound", "pounds"), "€": ("euro", "euros")}
_SIGNS: dict[str, tuple[Reading, ...]] = {
    "&": (("and",),),
    "%": (("percent",),),
    "+": (("plus",),),
    "=": (("equals",), ("is",)),
    "@": (("at",),),
    "°": (("degrees",), ("degree",)),
    "*": ((), ("star",), ("asterisk",)),
    "#": ((), ("pound",), ("hash",), ("number",)),
}
# Written with a dot mostly; whether "no." is a number or an answer only the sound knows.
_ABBREVIATIONS: dict[str, tuple[str, ...]] = {
    "mr": ("mister",),
    "mrs": ("missus", "misses"),
    "dr": ("doctor", "drive"),
    "prof": ("professor",),
    "st": ("saint", "street"),
    "jr": ("junior",),
    "sr": ("senior",),
    "capt": ("captain",),
    "lt": ("lieutenant",),
    "gen": ("general",),
    "col": ("colonel",),
    "sgt": ("sergeant",),
    "gov": ("governor",),
    "rev": ("reverend",),
    "ave": ("avenue",),
    "blvd": ("boulevard",),
    "rd": ("road",),
    "mt": ("mount",),
    "ft": ("fort", "feet", "foot"),
    "vs": ("versus",),
    "etc": ("et cetera",),
    "approx": ("approximately",),
    "dept": ("department",),
    "inc": ("incorporated",),
    "ltd": ("limited",),
    "co": ("company",),
    "corp": ("corporation",),
    "no": ("no", "number"),
    "nos": ("numbers",),
    "vol": ("volume",),
    "fig": ("figure", "fig"),
    "jan": ("january", "jan"),
    "feb": ("february",),
    "mar": ("march", "mar"),
    "apr": ("april",),
    "aug": ("august",),
    "sept": ("september",),
    "sep": ("september",),
    "oct": ("october",),
    "nov": ("november",),
    "dec": ("december",),
    "e.g": ("for example", "e g"),
    "i.e": ("that is", "i e"),
}

# What is said fast is written as one word by one listener and as two by the next: "don't", "do not", "dont".
_NOT = "do does did is are was were has have had could would should might must need".split()
_CONTRACTIONS: dict[tuple[str, str], str] = {
    **{(verb, "not"): f"{verb}nt" for verb in _NOT},
    ("can", "not"): "cant",
    ("will", "not"): "wont",
    ("i", "am"): "im",
    ("let", "us"): "lets",
    **{(who, "are"): f"{who}re" for who in ("you", "we", "they", "there")},
    **{(who, "have"): f"{who}ve" for who in ("i", "you", "we", "they", "could", "would", "should", "might", "must")},
    **{(who, "will"): f"{who}ll" for who in ("i", "you", "he", "she", "it", "we", "they", "that", "there")},
    **{
        (who, verb): f"{who}d"
        for who in ("i", "you", "he", "she", "it", "we", "they", "there")
        for verb in ("would", "had")
    },
    **{
        (who, verb): f"{who}s"
        for who in ("he", "she", "it", "that", "there", "what", "who", "where", "how", "here")
        for verb in ("is", "has")
    },
}
# Words that are contractions already, where letters alone do not show it.
_JOINED = {"cannot": "cant"}

# British and American ways to write one word come to the same key; keys are compared, never shown.
_SPELLINGS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?<=\w{2})our(?=(s|ed|ing|ful|ite|ites|able|er|ers|less|ly|al|hood|hoods)?$)", "or"),
        (r"(?<=\w{3})is(?=(e|es|ed|er|ers|ing|ation|ations)$)", "iz"),
        (r"ys(?=(e|es|ed|ing)$)", "yz"),
        (r"(?<=[tb])re(s?)$", r"er\1"),
        (r"ll(?=(ed|ing|er|ers)$)", "l"),
        (r"ogue(s?)$", r"og\1"),
        (r"(?<=def|off|lic|ret)ence(s?)$", r"ense\1"),
    )
)
_SPELLED = {
    "grey": "gray",
    "okay": "ok",
    "cheque": "check",
    "cheques": "checks",
    "programme": "program",
    "programmes": "programs",
    "tyre": "tire",
    "tyres": "tires",
    "plough": "plow",
    "mould": "mold",
    "storey": "story",
}
_SHORTEST_SPELLING = 5

_PARTS = re.compile(r"[$£€]?\d[\d,]*(?:\.\d+)?(?:st|nd|rd|th|s)?(?![^\W_])%?|\d{1,2}:\d{2}|\d+|[^\W\d_]+|\S")
_LARGE_AMOUNT = re.compile(r"([$£€])(\d[\d,.]*) (hundred|thousand|million|billion|trillion)\b", re.IGNORECASE)
_DIRECTION = re.compile(r"\[[^\]]*\]")
_REMARK = re.compile(r"(\([^()]*\))")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]?")
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc`\u00b4", "'"))


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word of a text.

    Attributes:
        shown: for people and dictionaries, in lower case, with apostrophes.
        key: what is compared; equal for ways to write the same.
    """

    shown: str
    key: str


def spoken_words(text: str, language: str = "en") -> tuple[SpokenWord, ...]:
    """The words of a text, each number and abbreviation in its likeliest reading."""
    return as_words([readings[0] for readings in readings_of(text, language)], language)


def as_words(chosen: list[Reading], language: str = "en") -> tuple[SpokenWord, ...]:
    """Put chosen readings into one row of words."""
    words = [word for reading in chosen for word in reading]
    if language != "en":
        return tuple(SpokenWord(word, word.replace("'", "")) for word in words)
    return tuple(_joined([SpokenWord(word, _key_of(word)) for word in words]))


def readings_of(text: str, language: str = "en") -> list[tuple[Reading, ...]]:
    """For each piece of a text the ways to say it, the likeliest first."""
    text = unicodedata.normalize("NFKC", text)
    if language != "en":
        return [((word,),) for word in _plain_words(text, language in _UNSPACED_LANGUAGES)]
    text = _DIRECTION.sub(" ", text)
    text = _LARGE_AMOUNT.sub(lambda amount: f"{amount[2]} {amount[3]} {_CURRENCIES[amount[1]][1]}", text)
    found: list[tuple[Reading, ...]] = []
    for part in _REMARK.split(text):
        readings = [each for chunk in part.split() for each in _chunk_readings(chunk.lower())]
        if _REMARK.fullmatch(part):
            # "(a tone is heard)" may be said or not.
            said = tuple(word for options in readings for word in options[0])
            readings = [(said, ())] if said else []
        found += readings
    return found


def _plain_words(text: str, is_unspaced: bool) -> list[str]:
    """Words of any language: letters, digits, accents and the apostrophes between them; all else separates."""
    joined = text.lower().translate(_APOSTROPHES)
    kept = "".join(sign if sign == "'" or unicodedata.category(sign)[0] in "LNM" else " " for sign in joined)
    if is_unspaced:
        return [sign for sign in kept if sign not in " '"]
    return [bare for word in kept.split() if (bare := word.strip("'"))]


def _chunk_readings(chunk: str) -> Iterator[tuple[Reading, ...]]:
    bare = chunk.strip("\"'\u201c\u201d\u2018\u2019(){},;:!?\u2026-\u2013\u2014_")
    if (expanded := _abbreviation(bare)) is not None:
        yield expanded
    elif _INITIALS.fullmatch(bare) and len(bare) > 2:  # "u.s.", "p.m."
        yield ((bare.replace(".", ""),),)
    elif bare in _SIGNS:
        yield _SIGNS[bare]
    elif not any(sign.isdigit() for sign in chunk) and not any(sign in chunk for sign in "&%+=@°"):
        yield from (((word,),) for word in _plain_words(chunk, False))
    else:
        for part in _PARTS.findall(chunk.translate(_APOSTROPHES)):
            if any(sign.isdigit() for sign in part):
                yield _number(part)
            elif part in _SIGNS and part not in "*#":
                yield _SIGNS[part]
            else:
                yield from (((word,),) for word in _plain_words(part, False))


def _abbreviation(bare: str) -> tuple[Reading, ...] | None:
    stem = bare.removesuffix(".")
    if stem not in _ABBREVIATIONS or (stem == bare and stem in ("no", "co", "mar", "fig", "gen", "col", "dec", "sep")):
        return None
    return (*(tuple(each.split()) for each in _ABBREVIATIONS[stem]), (stem.replace(".", ""),))


def _number(part: str) -> tuple[Reading, ...]:
    """The ways to say something with digits in it."""
    if match := re.fullmatch(r"([$£€])(\d[\d,]*)(?:\.(\d\d))?", part):
        return _amount(match[1], match[2].replace(",", ""), match[3])
    if match := re.fullmatch(r"(\d{1,2}):(\d\d)", part):
        return _clock(int(match[1]), match[2])
    plain = part.lstrip("$£€").replace(",", "")
    if plain.endswith("%"):
        return tuple((*reading, "percent") for reading in _number(plain[:-1]))
    if match := re.fullmatch(r"(\d+)(?:st|nd|rd|th)", plain):
        return tuple((*reading[:-1], _ordinal(reading[-1])) for reading in _cardinals(match[1]))
    if match := re.fullmatch(r"(\d+)s", plain):
        return tuple((*reading[:-1], _plural(reading[-1])) for reading in _whole(match[1]))
    if match := re.fullmatch(r"(\d+)\.(\d+)", plain):
        fraction = [_ONES[int(digit)] for digit in match[2]]
        return tuple((*reading, "point", *fraction) for reading in _cardinals(match[1]))
    return _whole(plain) if plain.isdecimal() and plain.isascii() else ((plain,),)


def _amount(sign: str, whole: str, cents: str | None) -> tuple[Reading, ...]:
    unit = _CURRENCIES[sign][int(whole) != 1]
    amounts = tuple((*reading, unit) for reading in _cardinals(whole))
    if cents is None or int(cents) == 0:
        return amounts
    small = _cardinals(cents)[0]
    return tuple(
        longer for amount in amounts for longer in ((*amount, *small), (*amount, "and", *small, "cents"))
    ) + tuple((*amount[:-1], *small) for amount in amounts)


def _clock(hours: int, minutes: str) -> tuple[Reading, ...]:
    hour = _cardinals(str(hours))[0]
    if minutes == "00":
        return ((*hour, "o'clock"), hour, (*hour, "hundred"))
    small = _cardinals(minutes)[0]
    return ((*hour, "oh", *small), (*hour, "zero", *small)) if minutes[0] == "0" else ((*hour, *small),)


def _whole(digits: str) -> tuple[Reading, ...]:
    """Ways to say a whole number: as a quantity, as a year, digit by digit."""
    found = list(_cardinals(digits))
    if len(digits) == 4 and digits[0] != "0":
        century, rest = digits[:2], digits[2:]
        first = _cardinals(century)[0]
        if rest == "00":
            year: Reading = (*first, "hundred")
        else:
            year = (*first, *(("oh",) if rest[0] == "0" else ()), *_cardinals(rest)[0])
        is_year = "1100" <= digits <= "1999" or "2010" <= digits <= "2099"
        found.insert(0 if is_year else len(found), year)
    if len(digits) == 3 and digits[0] != "0" and digits[1:] != "00":
        found.append(
            (*_cardinals(digits[0])[0], *(("oh",) if digits[1] == "0" else ()), *_cardinals(digits[1:])[0]),
        )
    if len(digits) > 1:
        spelled = tuple(_ONES[int(digit)] for digit in digits)
        found.insert(0 if digits[0] == "0" else len(found), spelled)
        if "0" in digits:
            found.append(tuple("oh" if word == "zero" else word for word in spelled))
    return tuple(dict.fromkeys(found))


@cache
def _cardinals(digits: str) -> tuple[Reading, ...]:
    """A number as a quantity: "two hundred six", "two hundred and six"."""
    if len(digits) > _MOST_DIGITS:
        return (tuple(_ONES[int(digit)] for digit in digits),)
    plain, joined = tuple(_quantity(int(digits), "")), tuple(_quantity(int(digits), "and"))
    found = (plain,) if plain == joined else (plain, joined)
    if plain[0] == "one" and len(plain) > 1:
        return (*found, *(("a", *reading[1:]) for reading in found))
    return found


def _quantity(value: int, junction: str) -> list[str]:
    for scale, name in _SCALES:
        if value >= scale:
            rest = value % scale
            words = [*_quantity(value // scale, junction), name]
            if rest:
                words += [junction] if junction and rest < 100 else []
                words += _quantity(rest, junction)
            return words
    if value < len(_ONES):
        return [_ONES[value]]
    return [_TENS[value // 10]] + ([_ONES[value % 10]] if value % 10 else [])


def _ordinal(word: str) -> str:
    if word in _ORDINALS:
        return _ORDINALS[word]
    return f"{word.removesuffix('y')}ieth" if word.endswith("y") else f"{word.removesuffix('t')}th"


def _plural(word: str) -> str:
    if word.endswith("y"):
        return f"{word.removesuffix('y')}ies"
    return f"{word}es" if word.endswith("x") else f"{word}s"


@cache
def _key_of(word: str) -> str:
    word = word.replace("'", "")
    if word in _SPELLED:
        return _SPELLED[word]
    if len(word) >= _SHORTEST_SPELLING and word.isalpha():
        for pattern, replacement in _SPELLINGS:
            word = pattern.sub(replacement, word)
    return _JOINED.get(word, word)


def _joined(words: list[SpokenWord]) -> Iterator[SpokenWord]:
    """Contractions, and letters that are said one by one, as one word each."""
    index = 0
    while index < len(words):
        pair = tuple(word.key for word in words[index : index + 2])
        end = index + 1
        while end < len(words) and all(len(word.key) == 1 and word.key.isalpha() for word in words[index : end + 1]):
            end += 1
        if end - index > 1 and not all(word.key in ("a", "i") for word in words[index:end]):
            shown = " ".join(word.shown for word in words[index:end])
            yield SpokenWord(shown, "".join(word.key for word in words[index:end]))
        elif len(pair) == 2 and pair in _CONTRACTIONS:
            end = index + 2
            yield SpokenWord(f"{words[index].shown} {words[index + 1].shown}", _CONTRACTIONS[pair])
        else:
            end = index + 1
            yield words[index]
        index = end
