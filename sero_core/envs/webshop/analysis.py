"""Anserini's DefaultEnglishAnalyzer, which WebShop's index and its queries go through.

Lucene's standard tokeniser, English possessives, lower case letter by letter, 33 stop words,
Porter's stemmer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from sero_core.envs.webshop.porter import stem
from sero_core.envs.webshop.word_break import words

_STOP_WORDS: Final = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then "
    "there these they this to was will with"
)
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())


def analyze(text: str) -> list[str]:
    """The terms of a text in order."""
    return [term for word in words(text) if (term := term_of(word))]


@lru_cache(maxsize=1 << 16)
def term_of(word: str) -> str:
    """The term of one token, empty for a stop word."""
    if len(word) >= 2 and word[-1] in "sS" and word[-2] in "'\u2019\uff07":
        word = word[:-2]
    word = _lower(word)
    if word in STOP_WORDS:
        return ""
    if word.isascii():
        return stem(word)
    return _characters(stem(_code_units(word)))


def _lower(word: str) -> str:
    """Letter by letter, as Java's Character.toLowerCase: a final sigma is no other letter, and
    U+0130 becomes i alone.
    """
    return word.lower() if word.isascii() else "".join(char.lower()[0] for char in word)


def _code_units(word: str) -> str:
    """Characters beyond U+FFFF as two surrogates: Java's stemmer counts them as two letters."""
    raw = word.encode("utf-16-le", "surrogatepass")
    return "".join(chr(int.from_bytes(raw[i : i + 2], "little")) for i in range(0, len(raw), 2))


def _characters(word: str) -> str:
    return word.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
