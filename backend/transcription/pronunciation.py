"""How an English word is probably said, where no dictionary knows it: names, mostly.

Good enough to find such a word in a recording, not to judge how it was said.
"""

from __future__ import annotations

# Sounds as the CMU dictionary writes them; of several letters that match, the longest wins. Letters that fall silent
# have no sounds. A pattern that begins with ^ or ends with $ is for the beginning or the end of a word only.
_SOUNDS = {
    "^kn": "N", "^gn": "N", "^wr": "R", "^ps": "S", "^x": "Z", "^y": "Y", "^wh": "W", "^sch": "SH",
    "mb$": "M", "e$": "", "es$": "Z", "ed$": "D", "le$": "AH L", "y$": "IY", "ey$": "IY", "ie$": "IY", "ue$": "UW",
    "tion": "SH AH N", "sion": "ZH AH N", "cial": "SH AH L", "cian": "SH AH N", "ture": "CH ER", "ough": "AO",
    "augh": "AO", "eigh": "EY", "igh": "AY", "tch": "CH", "dge": "JH", "sch": "SH", "qu": "K W", "ck": "K", "ch": "CH",
    "sh": "SH", "th": "TH", "ph": "F", "gh": "G", "ng": "NG", "nk": "NG K", "sc": "S K", "sce": "S EH", "sci": "S AY",
    "ce": "S EH", "ci": "S IH", "cy": "S IY", "ce$": "S", "ge": "JH EH", "gi": "JH IH", "gy": "JH IY", "ge$": "JH",
    "bb": "B", "cc": "K", "dd": "D", "ff": "F", "gg": "G", "kk": "K", "ll": "L", "mm": "M", "nn": "N", "pp": "P",
    "rr": "R", "ss": "S", "tt": "T", "vv": "V", "zz": "Z",
    "ai": "EY", "ay": "EY", "au": "AO", "aw": "AO", "ar": "AA R", "ea": "IY", "ee": "IY", "ei": "IY", "er": "ER",
    "eu": "Y UW", "ew": "Y UW", "ia": "IY AH", "ie": "IY", "io": "IY OW", "ir": "ER", "oa": "OW", "oi": "OY",
    "oo": "UW", "or": "AO R", "ou": "AW", "ow": "OW", "oy": "OY", "ui": "UW", "ur": "ER", "yr": "ER",
    "a": "AE", "b": "B", "c": "K", "d": "D", "e": "EH", "f": "F", "g": "G", "h": "HH", "i": "IH", "j": "JH", "k": "K",
    "l": "L", "m": "M", "n": "N", "o": "OW", "p": "P", "q": "K", "r": "R", "s": "S", "t": "T", "u": "AH", "v": "V",
    "w": "W", "x": "K S", "y": "IH", "z": "Z",
}  # fmt: skip
_LETTER_NAMES = {
    "a": "EY", "b": "B IY", "c": "S IY", "d": "D IY", "e": "IY", "f": "EH F", "g": "JH IY", "h": "EY CH", "i": "AY",
    "j": "JH EY", "k": "K EY", "l": "EH L", "m": "EH M", "n": "EH N", "o": "OW", "p": "P IY", "q": "K Y UW",
    "r": "AA R", "s": "EH S", "t": "T IY", "u": "Y UW", "v": "V IY", "w": "D AH B AH L Y UW", "x": "EH K S",
    "y": "W AY", "z": "Z IY",
}  # fmt: skip
_LONGEST_PATTERN = 4
_VOWELS = frozenset("aeiouy")
_HISSING = frozenset("S Z SH ZH CH JH".split())
_VOICELESS = frozenset("P T K F TH".split())


def guess_pronunciation(word: str) -> str:
    """Sounds for a word in lower case, separated by spaces; empty where none of its letters are English ones."""
    letters = "".join(letter for letter in word if "a" <= letter <= "z")
    if not _VOWELS & set(letters):
        return " ".join(_LETTER_NAMES[letter] for letter in letters)
    sounds: list[str] = []
    place = 0
    while place < len(letters):
        for length in range(min(_LONGEST_PATTERN, len(letters) - place), 0, -1):
            piece = letters[place : place + length]
            found = _pattern_at(piece, place == 0, place + length == len(letters))
            if found is not None:
                sounds += found.split()
                place += length
                break
    return " ".join(sounds)


def with_plural_s(sounds: str) -> str:
    """The sounds of a word with 's after it."""
    last = sounds.rsplit(" ", 1)[-1]
    ending = "IH Z" if last in _HISSING else "S" if last in _VOICELESS else "Z"
    return f"{sounds} {ending}"


def _pattern_at(piece: str, is_first: bool, is_last: bool) -> str | None:
    # A word that is over with its only vowel has to keep it: "she", "the".
    if is_last and f"{piece}$" in _SOUNDS and not (is_first and not _SOUNDS[f"{piece}$"]):
        return _SOUNDS[f"{piece}$"]
    if is_first and f"^{piece}" in _SOUNDS:
        return _SOUNDS[f"^{piece}"]
    return _SOUNDS.get(piece)
