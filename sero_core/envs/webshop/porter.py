"""Porter's stemmer as its author's Java program runs, which Lucene ships.

M. F. Porter, An algorithm for suffix stripping, Program 14(3), 1980, with the three departures of
tartarus.org/martin/PorterStemmer: words of one or two letters stay, "bli" becomes "ble" (not
"abli" "able"), "logi" becomes "log". Works on any characters: what is no vowel is a consonant.
"""

from __future__ import annotations

from typing import Final

STEP_2: Final = {
    "a": (("ational", "ate"), ("tional", "tion")),
    "c": (("enci", "ence"), ("anci", "ance")),
    "e": (("izer", "ize"),),
    "l": (("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous")),
    "o": (("ization", "ize"), ("ation", "ate"), ("ator", "ate")),
    "s": (("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous")),
    "t": (("aliti", "al"), ("iviti", "ive"), ("biliti", "ble")),
    "g": (("logi", "log"),),
}
"""By the last letter but one: the first suffix that fits decides."""
STEP_3: Final = {
    "e": (("icate", "ic"), ("ative", ""), ("alize", "al")),
    "i": (("iciti", "ic"),),
    "l": (("ical", "ic"), ("ful", "")),
    "s": (("ness", ""),),
}
"""By the last letter."""
STEP_4: Final = {
    "a": ("al",),
    "c": ("ance", "ence"),
    "e": ("er",),
    "i": ("ic",),
    "l": ("able", "ible"),
    "n": ("ant", "ement", "ment", "ent"),
    "o": ("ion", "ou"),
    "s": ("ism",),
    "t": ("ate", "iti"),
    "u": ("ous",),
    "v": ("ive",),
    "z": ("ize",),
}
"""By the last letter but one."""


def stem(word: str) -> str:
    """The stem of a lower-case word."""
    if len(word) <= 2:
        return word
    word = _past_forms(_plurals(word))
    if word[-1] == "y" and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(word, STEP_2.get(word[-2:-1], ()))
    word = _replaced(word, STEP_3.get(word[-1:], ()))
    return _final_letters(_without_endings(word))


def _plurals(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith("ies"):
        return word[:-2]
    if word.endswith("s") and word[-2] != "s":
        return word[:-1]
    return word


def _past_forms(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            return _repaired(base) if _has_vowel(base) else word
    return word


def _repaired(word: str) -> str:
    """What is left after "ed" or "ing" gets its "e" back, or loses a doubled consonant."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _ends_in_double_consonant(word):
        return word if word[-1] in "lsz" else word[:-1]
    if _measure(word) == 1 and _ends_in_cvc(word):
        return word + "e"
    return word


def _replaced(word: str, suffixes: tuple[tuple[str, str], ...]) -> str:
    for suffix, other in suffixes:
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            return base + other if _measure(base) > 0 else word
    return word


def _without_endings(word: str) -> str:
    for suffix in STEP_4.get(word[-2:-1], ()):
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            if suffix == "ion" and not base.endswith(("s", "t")):
                continue
            return base if _measure(base) > 1 else word
    return word


def _final_letters(word: str) -> str:
    if word.endswith("e"):
        measure = _measure(word)
        if measure > 1 or (measure == 1 and not _ends_in_cvc(word[:-1])):
            word = word[:-1]
    if word.endswith("ll") and _measure(word) > 1:
        word = word[:-1]
    return word


def _shape(word: str) -> str:
    """c or v per letter; y is a vowel after a consonant."""
    shape = ""
    for letter in word:
        is_vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if is_vowel else "c"
    return shape


def _measure(word: str) -> int:
    """How often a consonant follows a vowel."""
    return _shape(word).count("vc")


def _has_vowel(word: str) -> bool:
    return "v" in _shape(word)


def _ends_in_double_consonant(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _shape(word)[-1] == "c"


def _ends_in_cvc(word: str) -> bool:
    return len(word) > 2 and _shape(word)[-3:] == "cvc" and word[-1] not in "wxy"
