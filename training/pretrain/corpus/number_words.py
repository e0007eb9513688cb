"""Numbers in words, because corpus texts contain no digits."""

from __future__ import annotations

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
_SCALES = ((1_000_000_000, "billion"), (1_000_000, "million"), (1_000, "thousand"))
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
LIMIT = 1_000_000_000_000
"""Numbers from here on have no words."""


def cardinal(number: int) -> str:
    """Say a count: 1204 is "one thousand two hundred and four". `number` lies in [0, LIMIT)."""
    if not 0 <= number < LIMIT:
        raise ValueError(f"{number} is outside 0 to {LIMIT - 1}.")
    parts = []
    rest = number
    for scale, name in _SCALES:
        if rest >= scale:
            parts.append(f"{_below_thousand(rest // scale)} {name}")
            rest %= scale
    if rest or not parts:
        parts.append(f"and {_below_thousand(rest)}" if parts and rest < 100 else _below_thousand(rest))
    return " ".join(parts)


def ordinal(number: int) -> str:
    """Say a rank: 21 is "twenty-first"."""
    words = cardinal(number)
    cut = max(words.rfind(" "), words.rfind("-")) + 1
    head, last = words[:cut], words[cut:]
    if last in _ORDINALS:
        return head + _ORDINALS[last]
    return head + (last[:-1] + "ieth" if last.endswith("y") else last + "th")


def year(number: int) -> str:
    """Say a year from 1100 to 2099: 1984 is "nineteen eighty-four"."""
    century, rest = divmod(number, 100)
    if 2000 <= number < 2010:
        return cardinal(number)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def digits(text: str) -> str:
    """Say digits one by one, as in a telephone number."""
    return " ".join(_SMALL[int(digit)] for digit in text)


def _below_thousand(number: int) -> str:
    if number >= 100:
        hundreds = f"{_SMALL[number // 100]} hundred"
        return hundreds if number % 100 == 0 else f"{hundreds} and {_below_thousand(number % 100)}"
    if number < 20:
        return _SMALL[number]
    tens = _TENS[number // 10]
    return tens if number % 10 == 0 else f"{tens}-{_SMALL[number % 10]}"
