"""Lucene's StandardTokenizer: the words of a text by UAX #29, emoji by UTS #51.

Every character becomes one letter that stands for its set of properties; the grammar is a regular
expression over those letters. At each place the longest match of any rule is a token; a character
that starts no match is skipped. Tokens longer than 255 UTF-16 units are matched again within a
window of 255, as Lucene's scanner sees them, so they come in pieces.

The properties are those of Unicode 12.1, as in Lucene 9; Lucene 8 has those of Unicode 9, which
differ for emoji modifiers after letters and for characters that came later.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

MAX_TOKEN_LENGTH: Final = 255
"""In UTF-16 code units."""

Ranges = list[tuple[int, int]]
"""Half-open ranges of code points."""

_OTHER_PROPERTIES: Final = {
    "Keycap": "20E3",
    "Keycap_Base": "23 2A 30-39",
    "Emoji_Selector": "FE0F",
    "Selector": "FE0E-FE0F",
    "Tag": "E0020-E007E",
    "Tag_End": "E007F",
}
_IN_WORDS: Final = frozenset({"ALetter", "Hebrew_Letter", "Numeric", "Katakana", "ExtendNumLet"})
_NOT_PICTOGRAPH: Final = frozenset({"Regional_Indicator", "Keycap_Base", "Emoji_Modifier"})
_ASCII_WORD = re.compile(
    r"\w+(?:(?:(?<=[A-Za-z])[.:'](?=[A-Za-z])|(?<=[0-9])[.,;'](?=[0-9]))\w+)*", re.ASCII
)
"""Words of ASCII text, and runs of low lines, which are none."""


def words(text: str) -> list[str]:
    """The tokens of a text, spelled as in the text."""
    if text.isascii():
        return _ascii_words(text)
    return [word for part in text.split(" ") for word in _part_words(part)]


@lru_cache(maxsize=1 << 14)
def _part_words(part: str) -> list[str]:
    """The tokens of a text without spaces, which no token holds."""
    return _ascii_words(part) if part.isascii() else _Scanner.shared().words(part)


def _ascii_words(text: str) -> list[str]:
    found: list[str] = _ASCII_WORD.findall(text)
    if "_" in text:
        found = [word for word in found if word.strip("_")]
    if len(text) > MAX_TOKEN_LENGTH and max(map(len, found), default=0) > MAX_TOKEN_LENGTH:
        return _Scanner.shared().words(text)
    return found


def utf16_length(text: str) -> int:
    """The length of a text in Java's characters."""
    return len(text) if text.isascii() else len(text) + sum(char > "\uffff" for char in text)


class _Letters(dict[int, str]):
    """Code point to letter, worked out when a code point is first met."""

    def __init__(self, starts: list[int], letters: list[str]) -> None:
        super().__init__()
        self._starts = starts
        self._letters = letters

    def __missing__(self, code_point: int) -> str:
        letter = self._letters[bisect_right(self._starts, code_point) - 1]
        self[code_point] = letter
        return letter


class _Scanner:
    """The grammar, compiled for the letters of this table of properties."""

    def __init__(self, properties: dict[str, Ranges]) -> None:
        starts, sets = _runs(properties)
        kinds = {
            has: chr(0x100 + number) for number, has in enumerate(sorted(set(sets), key=sorted))
        }
        self._letters = _Letters(starts, [kinds[has] for has in sets])
        self._rules = [re.compile(rule) for rule in _rules(kinds)]
        self._any_rule = re.compile("|".join(rule.pattern for rule in self._rules))
        self._ambiguous = frozenset(letter for has, letter in kinds.items() if _num_rules(has) > 1)

    @staticmethod
    @cache
    def shared() -> _Scanner:
        """The scanner of this process; building it takes some milliseconds."""
        text = files("sero_core.envs.webshop").joinpath("data/word_break.json").read_text("utf-8")
        table: dict[str, str] = {**json.loads(text), **_OTHER_PROPERTIES}
        del table["origin"]
        return _Scanner({name: _parse_ranges(ranges) for name, ranges in table.items()})

    def words(self, text: str) -> list[str]:
        letters = text.translate(self._letters)
        found: list[str] = []
        place = 0
        while match := self._any_rule.search(letters, place):
            start, end = match.span()
            if letters[start] in self._ambiguous:
                end = self._longest(letters, start, len(letters))
            if utf16_length(text[start:end]) > MAX_TOKEN_LENGTH:
                end = self._longest(letters, start, start + _window(text, start))
            if end > start:
                found.append(text[start:end])
            place = max(end, start + 1)
        return found

    def _longest(self, letters: str, start: int, end: int) -> int:
        """The end of the longest match at `start` that reaches no further than `end`."""
        matches = (rule.match(letters, start, end) for rule in self._rules)
        return max((match.end() for match in matches if match), default=start)


def _rules(kinds: dict[frozenset[str], str]) -> tuple[str, ...]:
    """Lucene's rules over the letters of `kinds`, each written so that greedy means longest."""

    def where(is_meant: Callable[[frozenset[str]], bool]) -> str:
        return "[" + "".join(letter for has, letter in kinds.items() if is_meant(has)) + "]"

    def one_of(*names: str) -> str:
        return where(lambda has: bool(has & set(names)))

    extend = one_of("Extend") + "*"
    letter = one_of("ALetter", "Hebrew_Letter") + extend
    hebrew = one_of("Hebrew_Letter") + extend
    number = one_of("Numeric") + extend
    low_line = one_of("ExtendNumLet") + extend
    single_quote = one_of("Single_Quote") + extend
    double_quote = one_of("Double_Quote") + extend
    in_word = one_of("MidLetter", "MidNumLet", "Single_Quote") + extend
    in_number = one_of("MidNum", "MidNumLet", "Single_Quote") + extend
    katakana = f"(?:{one_of('Katakana')}{extend})+"
    # WB5-WB13: a Hebrew letter takes a quote along; other links need a letter or digit after them
    part = (
        f"(?:{hebrew}(?:{single_quote}|{double_quote}{hebrew})"
        f"|{letter}(?:{in_word}{letter})*|{number}(?:{in_number}{number})*)+"
    )
    parts = f"(?:{part}|{katakana})"
    word = f"(?:{low_line})*{parts}(?:(?:{low_line})+{parts})*(?:{low_line})*"
    # UTS #51; a joiner may have been taken as an extender of the emoji before it
    plain = where(lambda has: "Extend" in has and "Selector" not in has) + "*"
    joiner = one_of("ZWJ")
    selector = one_of("Emoji_Selector")
    modifier = one_of("Emoji_Modifier")
    single = f"(?:{joiner}*{where(_is_pictograph)}{plain}{selector}?|{modifier}{plain})"
    emoji = (
        f"{single}(?:{one_of('Tag')}+{one_of('Tag_End')}|(?:(?:(?<={joiner})|{joiner}){single})*)"
    )
    keycap = f"{one_of('Keycap_Base')}{plain}{selector}?{one_of('Keycap')}{plain}"
    flag = f"(?:{one_of('Regional_Indicator')}{extend}){{2}}"
    south_east_asian = f"(?:{one_of('Complex_Context')}{extend})+"
    return (
        word,
        emoji,
        keycap,
        flag,
        south_east_asian,
        one_of("Han") + extend,
        one_of("Hiragana") + extend,
    )


def _is_pictograph(has: frozenset[str]) -> bool:
    return "Extended_Pictographic" in has or ("Emoji" in has and not has & _NOT_PICTOGRAPH)


def _num_rules(has: frozenset[str]) -> int:
    """How many rules a character with these properties may start. A keycap on a digit counts as
    none: the digit's word reaches at least as far.
    """
    return (
        bool(has & _IN_WORDS)
        + (_is_pictograph(has) or "Emoji_Modifier" in has)
        + ("Complex_Context" in has)
        + ("Han" in has)
        + ("Hiragana" in has)
    )


def _window(text: str, start: int) -> int:
    """How many characters from `start` fit into 255 UTF-16 units."""
    units = 0
    for number, char in enumerate(text[start : start + MAX_TOKEN_LENGTH]):
        units += 2 if char > "\uffff" else 1
        if units > MAX_TOKEN_LENGTH:
            return number
    return MAX_TOKEN_LENGTH


def _runs(properties: dict[str, Ranges]) -> tuple[list[int], list[frozenset[str]]]:
    """Where the set of properties changes, and the set from there on."""
    bounds = {0, *(bound for ranges in properties.values() for pair in ranges for bound in pair)}
    starts = sorted(bounds)
    sets: list[set[str]] = [set() for _ in starts]
    for name, ranges in properties.items():
        for first, end in ranges:
            for run in sets[bisect_left(starts, first) : bisect_left(starts, end)]:
                run.add(name)
    return starts, [frozenset(run) for run in sets]


def _parse_ranges(text: str) -> Ranges:
    pairs = (part.partition("-") for part in text.split())
    return [(int(first, 16), int(last or first, 16) + 1) for first, _, last in pairs]
